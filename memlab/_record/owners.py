"""Tells a recording the owners of device memory.  The program's modules and optimizers
are looked at when a module is first called, when the recording is read, at optimizers'
steps, and at each module's death.
"""

import sys
import weakref

from memlab import _core
from memlab._errors import tell
from memlab._record import optimizers
from memlab._text.code import MOST_BYTES_AT_STEP


class Owners:
    """Watches the process's modules and optimizers for one recording.

    A failure here is counted and ends the watch; it never raises into the program.
    """

    def __init__(self, snapshot):
        # A recording that the program dropped must not stay alive because it watches.
        self._snapshot = weakref.ref(snapshot)
        self._steps_named = False
        self._steps = 0
        self._failed = False

    def start(self) -> None:
        """Names the existing modules, and follows modules' calls and optimizers' steps;
        does nothing if torch is not imported.
        """
        if "torch" not in sys.modules:
            return
        self._guarded(self._name)
        self._guarded(self._watch)
        optimizers.watch(self)

    def stop(self) -> None:
        """Stops following calls and steps."""
        optimizers.forget(self)
        snapshot = self._snapshot()
        if snapshot is not None:
            _core.forget_calls(snapshot)

    def scan(self) -> None:
        """Tags the current possessions of modules and optimizers."""
        if "torch" in sys.modules:
            self._guarded(self._tag)

    def before_step(self, optimizer) -> None:
        """Before a step, all its gradients exist."""
        # By the first step, the model exists, whenever the recording began.
        if not self._steps_named:
            self._steps_named = True
            self._guarded(self._name)
        self._guarded(self._tag_step, optimizer, False)

    def after_step(self, optimizer) -> None:
        """After a step, all its state exists."""
        self._guarded(self._tag_step, optimizer, True)
        self._steps += 1
        # Less and less often: later steps run the same code as the first ones.
        if self._steps & (self._steps - 1) == 0:
            self._guarded(self._tell_lines)

    def _tell_lines(self):
        snapshot = self._snapshot()
        if snapshot is not None:
            # The rest waits until the recording is read.
            snapshot._tell_lines(MOST_BYTES_AT_STEP)

    def _tag_step(self, optimizer, after):
        import torch

        snapshot = self._snapshot()
        if snapshot is not None:
            _core.tag_step(snapshot, torch.Tensor, optimizer, after)

    def _watch(self):
        import torch

        snapshot = self._snapshot()
        if snapshot is not None:
            _core.watch_calls(
                snapshot, torch.Tensor, torch.nn.Module, torch.optim.Optimizer
            )

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
        if self._failed:
            return
        try:
            function(*args)
        except Exception as error:
            self._failed = True
            tell(f"owners of memory are no longer followed: {error!r}")
