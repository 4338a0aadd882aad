"""Tells a recording who owns device memory: through optimizers' steps, and by a look at
the program's modules and optimizers whenever a recording is read."""

import sys
import warnings
import weakref

from memlab import _core


class Owners:
    """Watches the optimizers of the process on behalf of one recording.

    What fails here is counted and switched off, never raised into the program.
    """

    def __init__(self, snapshot):
        # torch keeps the hooks: a recording that the program forgot must not live on
        # because of them.
        self._snapshot = weakref.ref(snapshot, lambda _: self.stop())
        self._handles = []
        self._steps_named = False

    def start(self) -> None:
        """Names the modules there are and hooks optimizer steps; nothing where torch is
        not imported."""
        if "torch" not in sys.modules:
            return
        self._guarded(self._name)
        from torch.optim.optimizer import (
            register_optimizer_step_post_hook,
            register_optimizer_step_pre_hook,
        )

        self._handles = [
            # Before the step every gradient of it exists, after it all its state.
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]

    def stop(self) -> None:
        """Removes the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def scan(self) -> None:
        """Tags what modules and optimizers own at this moment."""
        if "torch" in sys.modules:
            self._guarded(self._tag)

    def _before_step(self, optimizer, args, kwargs):
        # By the first step the model is there, whenever the recording began.
        if not self._steps_named:
            self._steps_named = True
            self._guarded(self._name)
        self._guarded(self._tag_step, optimizer, False)

    def _after_step(self, optimizer, args, kwargs):
        self._guarded(self._tag_step, optimizer, True)

    def _tag_step(self, optimizer, after):
        import torch

        snapshot = self._snapshot()
        if snapshot is not None:
            _core.tag_step(snapshot, torch.Tensor, optimizer, after)

    def _name(self):
        import torch

        _core.name_modules(torch.nn.Module)

    def _tag(self):
        import torch

        snapshot = self._snapshot()
        if snapshot is None:
            return
        _core.tag_owners(snapshot, torch.Tensor, torch.nn.Module, torch.optim.Optimizer)

    def _guarded(self, function, *args):
        if self._snapshot is None:
            return
        try:
            function(*args)
        except Exception as error:
            self._snapshot = None
            warnings.warn(
                f"memlab: owners of memory are no longer followed: {error!r}",
                RuntimeWarning,
                stacklevel=2,
            )
