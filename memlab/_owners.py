"""Tells a recording who owns device memory: through optimizers' steps, and by a look at
the program's modules and optimizers whenever a recording is read."""

import sys
import weakref

from memlab import _core, _optimizers
from memlab._errors import tell


class Owners:
    """Watches the optimizers of the process on behalf of one recording.

    What fails here is counted and switched off, never raised into the program.
    """

    def __init__(self, snapshot):
        # A recording that the program forgot must not live on because it watches.
        self._snapshot = weakref.ref(snapshot)
        self._steps_named = False

    def start(self) -> None:
        """Names the modules there are and follows optimizers' steps; nothing where torch
        is not imported."""
        if "torch" not in sys.modules:
            return
        self._guarded(self._name)
        _optimizers.watch(self)

    def stop(self) -> None:
        """Follows no more steps."""
        _optimizers.forget(self)

    def scan(self) -> None:
        """Tags what modules and optimizers own at this moment."""
        if "torch" in sys.modules:
            self._guarded(self._tag)

    def before_step(self, optimizer) -> None:
        """Before the step every gradient of it exists."""
        # By the first step the model is there, whenever the recording began.
        if not self._steps_named:
            self._steps_named = True
            self._guarded(self._name)
        self._guarded(self._tag_step, optimizer, False)

    def after_step(self, optimizer) -> None:
        """After the step all its state exists."""
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
            tell(f"owners of memory are no longer followed: {error!r}")
