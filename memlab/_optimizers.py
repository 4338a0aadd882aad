"""The steps of the process's optimizers, from torch's hooks to whoever watches.

Owns the two hooks, which stay in torch once they are there.  torch goes through its hooks
while it runs them: a step during which one is taken away, by another thread, by a hook of
the program or by the garbage collector, raises.
"""

import threading
import weakref

# References to the watchers, by insertion, as dicts keep it; added to and taken from in one
# operation each.  The references have no callback, which would run while the interpreter is
# torn down: one whose watcher is gone is dropped at the next step.
_watchers = {}
_hooking = threading.Lock()
_hooked = False


def watch(watcher) -> None:
    """Calls watcher.before_step(optimizer) and watcher.after_step(optimizer) from now on,
    which must not raise, for as long as it lives.  torch is imported."""
    global _hooked
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    with _hooking:
        if not _hooked:
            register_optimizer_step_pre_hook(_before_step)
            register_optimizer_step_post_hook(_after_step)
            _hooked = True
    _watchers[weakref.ref(watcher)] = True


def forget(watcher) -> None:
    """Calls WATCHER no longer; nothing for one that does not watch."""
    _watchers.pop(weakref.ref(watcher), None)


def _watching():
    for reference in tuple(_watchers):
        watcher = reference()
        if watcher is None:
            _watchers.pop(reference, None)
        else:
            yield watcher


def _before_step(optimizer, args, kwargs):
    for watcher in _watching():
        watcher.before_step(optimizer)


def _after_step(optimizer, args, kwargs):
    for watcher in _watching():
        watcher.after_step(optimizer)
