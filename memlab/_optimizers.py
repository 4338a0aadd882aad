"""The steps of the process's optimizers, from torch's hooks to whoever watches.

Owns the two hooks, which stay in torch once they are there.  torch goes through its hooks
while it runs them: a step during which one is taken away, by another thread, by a hook of
the program or by the garbage collector, raises.
"""

import threading

# By insertion, as dicts keep it; added to and taken from in one operation each.
_watchers = {}
_hooking = threading.Lock()
_hooked = False


def watch(watcher) -> None:
    """Calls watcher.before_step(optimizer) and watcher.after_step(optimizer) from now on,
    which must not raise.  torch is imported."""
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
    _watchers[watcher] = True


def forget(watcher) -> None:
    """Calls WATCHER no longer; nothing for one that does not watch."""
    _watchers.pop(watcher, None)


def _before_step(optimizer, args, kwargs):
    for watcher in tuple(_watchers):
        watcher.before_step(optimizer)


def _after_step(optimizer, args, kwargs):
    for watcher in tuple(_watchers):
        watcher.after_step(optimizer)
