"""The steps of the process's optimizers, passed from torch's hooks to watchers.

Owns the two hooks, which stay in torch.  torch iterates over its hooks while it runs
them.  If another thread, a hook of the program or the garbage collector adds or removes
one meanwhile, that step raises.
"""

import sys
import threading
import weakref

from memlab import _core

# References to the watchers in insertion order, changed by single operations.  The
# references have no callback, which would run during the interpreter's shutdown: a dead
# watcher is removed at the next step.
_watchers = {}
_hooking = threading.Lock()


class _Hook:
    """memlab's hook on all steps.  It has its own place among torch's hooks; or, if a
    step was iterating over them when it was added, it stands behind the last of them.
    """

    __slots__ = ("_key", "_name", "_run", "_settled", "first")

    def __init__(self, name, run):
        self._name = name
        self._run = run
        self._key = None
        self._settled = False
        self.first = None

    def settle(self):
        """Takes a place of its own as soon as possible.  torch.optim is imported."""
        # The holder of the lock does it, or the next step.
        if self._settled or not _hooking.acquire(blocking=False):
            return
        try:
            hooks = vars(sys.modules["torch.optim.optimizer"])
            if self._key is None:
                from torch.utils.hooks import RemovableHandle

                self._key = RemovableHandle(hooks[self._name]).id
            self._settled = _core.put_step_hook(
                hooks, self._name, self._key, self._run, self
            )
        finally:
            _hooking.release()

    def __call__(self, optimizer, args, kwargs):
        result = self.first(optimizer, args, kwargs)
        self._run(optimizer, args, kwargs)
        return result


def watch(watcher) -> None:
    """Calls watcher.before_step(optimizer) and watcher.after_step(optimizer) from now
    on, while it lives; they must not raise.  torch is imported.
    """
    _watchers[weakref.ref(watcher)] = True
    _before.settle()
    _after.settle()


def forget(watcher) -> None:
    """Stops calling WATCHER; does nothing for one that does not watch."""
    _watchers.pop(weakref.ref(watcher), None)


def _watching():
    for reference in tuple(_watchers):
        watcher = reference()
        if watcher is None:
            _watchers.pop(reference, None)
        else:
            yield watcher


# Each settles the other: a step iterates over one kind of hooks at a time.


def _before_step(optimizer, args, kwargs):
    _settle(_after)
    for watcher in _watching():
        watcher.before_step(optimizer)


def _after_step(optimizer, args, kwargs):
    _settle(_before)
    for watcher in _watching():
        watcher.after_step(optimizer)


def _settle(hook):
    try:
        hook.settle()
    except MemoryError:
        # The next step tries again.
        pass


_before = _Hook("_global_optimizer_pre_hooks", _before_step)
_after = _Hook("_global_optimizer_post_hooks", _after_step)
