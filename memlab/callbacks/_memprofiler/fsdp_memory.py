"""torch's tracker of FSDP2's memory, made safe, and its figures as plain data and as
text.

Owns the guards around the tracker, which reaches into FSDP's hooks: nothing raises into
the training, and memory is counted only once.  Also owns the layout of the reports,
which is the tracker's own.
"""

from __future__ import annotations

import contextlib
import functools
import re

from memlab.callbacks._memprofiler.config import UNITS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    import torch

    # By device, then by kind of memory, as "Sharded Param", and "Total": bytes.
    Snapshot = dict[str, dict[str, int]]

_TOTAL = "Total"
_RULE = "-" * 80


def plain(snapshot: dict) -> Snapshot:
    """SNAPSHOT of torch's tracker, with names for its enumerations and devices."""
    return {
        str(device): {
            getattr(kind, "value", kind): size for kind, size in kinds.items()
        }
        for device, kinds in snapshot.items()
    }


def new_tracker(module: torch.nn.Module, optimizer: Any, failed: Callable) -> Any:
    """A torch FSDPMemTracker of MODULE and OPTIMIZER (or None).  Its failures are
    passed to FAILED, with the exception, and end only its tracking.

    Raises ImportError if torch has none.
    """
    tracker = _tracker_type()(module, optimizer)
    tracker.failed = failed
    return tracker


@functools.cache
def _tracker_type():
    from torch._subclasses.fake_tensor import FakeTensor
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker

    class Tracker(FSDPMemTracker):
        """FSDPMemTracker that gives up instead of raising."""

        failed: Callable[[Exception], None]
        gave_up = False

        def __enter__(self):
            try:
                return super().__enter__()
            except Exception:
                with contextlib.suppress(Exception):
                    self._deregister_module_and_optimizer_hooks()
                self._restore_resize()
                raise

        def figures(self) -> dict[str, Any]:
            """The last window's figures, as plain data."""
            return {
                "peak": plain(self.get_tracker_snapshot("peak")),
                "modules": {
                    stats.mod_fqn: {
                        f"{state.value} # {i + 1}": plain(snapshot)
                        for state, snapshots in stats.snapshots.items()
                        for i, snapshot in enumerate(snapshots)
                    }
                    for stats in list(self.memory_tracking.values())
                },
            }

        def _give_up(self, error):
            if not self.gave_up:
                self.gave_up = True
                self.failed(error)

        def _guarded(self, make, module, original):
            """MAKE's wrapper of ORIGINAL, a step of FSDP's on MODULE, which runs
            exactly once whatever the tracker does around it.
            """

            def step(*args, **kwargs):
                if self.gave_up:
                    return original(*args, **kwargs)
                taken = []

                def once(*args, **kwargs):
                    taken.append(None)
                    taken[0] = (original(*args, **kwargs),)
                    return taken[0][0]

                try:
                    with _another_call(self._mod_tracker):
                        return make(module, once)(*args, **kwargs)
                except Exception as error:
                    if taken == [None]:
                        raise  # FSDP's own
                    self._give_up(error)
                    return taken[0][0] if taken else original(*args, **kwargs)

            return step

        def _fsdp_state_pre_forward(self, module, original):
            return self._guarded(super()._fsdp_state_pre_forward, module, original)

        def _fsdp_state_post_forward(self, module, original):
            return self._guarded(super()._fsdp_state_post_forward, module, original)

        def _fsdp_param_group_pre_backward(self, module, original):
            return self._guarded(
                super()._fsdp_param_group_pre_backward, module, original
            )

        def _fsdp_param_group_post_backward(self, module, original):
            return self._guarded(
                super()._fsdp_param_group_post_backward, module, original
            )

        # The tracker's other work within the program's own operations.

        def _quiet(self, method, *args, **kwargs):
            if self.gave_up:
                return None
            try:
                return method(*args, **kwargs)
            except Exception as error:
                self._give_up(error)
                return None

        def _update_and_maybe_create_winfos(self, *args, **kwargs):
            method = super()._update_and_maybe_create_winfos
            return self._quiet(method, *args, **kwargs) or set()

        def _update_snap(self, *args, **kwargs):
            return self._quiet(super()._update_snap, *args, **kwargs)

        def _update_peak_stats(self, *args, **kwargs):
            return self._quiet(super()._update_peak_stats, *args, **kwargs)

        def _track(self, kind, tensor):
            # DTensor uses those to work out shapes; they have no memory.
            if not isinstance(tensor, FakeTensor):
                self._quiet(super()._track, kind, tensor)

        def _track_optimizer_states(self, *args, **kwargs):
            return self._quiet(super()._track_optimizer_states, *args, **kwargs)

    return Tracker


class _another_call:
    """The tracker refuses a second forward pass of the root in one window, because it
    does not look like the next step.
    """

    def __init__(self, modules):
        self._modules = modules

    def __enter__(self):
        self._parents = self._modules.parents
        self._parents.add("memlab")

    def __exit__(self, *exception):
        self._parents.discard("memlab")


def report(
    figures: dict[str, Any],
    name: str,
    iteration: int,
    *,
    depth: int,
    units: str,
    tabulate: bool,
) -> str:
    """FIGURES of the call ITERATION of the function NAME as text.

    depth: levels of modules; units: of UNITS; tabulate: as tables.
    """
    snapshot_text = _table if tabulate else _lines
    parts = [
        f"Iteration {iteration} {name} Peak FSDP memory stats:",
        _RULE,
        *snapshot_text({"": figures["peak"]}, units),
        _RULE,
        f"Iteration {iteration} {name} Modulewise FSDP memory stats:",
        _RULE,
    ]
    for module in sorted(figures["modules"], key=_natural):
        if module.count(".") < depth:
            parts.append(f"Module:  {module}")
            parts += snapshot_text(figures["modules"][module], units)
            if not tabulate:
                parts.append("")
    return "\n".join([*parts, _RULE, ""])


def _natural(name):
    """A sort key with layers.10 after layers.9."""
    return [
        (0, int(part), "") if part.isdecimal() else (1, 0, part.lower())
        for part in re.split("([0-9]+)", name)
    ]


def _amount(size, units):
    return f"{size if units == 'B' else round(size / UNITS[units], 2)} {units}"


def _seen(snapshot, units):
    """The devices of SNAPSHOT with a non-zero figure in UNITS."""
    return {d: s for d, s in snapshot.items() if round(s[_TOTAL] / UNITS[units], 2) > 0}


def _lines(snapshots, units):
    """SNAPSHOTS, by their states ("": only one), a line for each figure."""
    state_before = None
    for call, snapshot in snapshots.items():
        state, _, number = call.partition(" # ")
        if call and state != state_before:
            yield state
            state_before = state
        if call:
            yield f"# {number}:"
        if not snapshot:
            yield "No memory tracked."
        for device, kinds in _seen(snapshot, units).items():
            yield f"Device: {device}"
            yield from (f"\t{kind}: {_amount(kinds[kind], units)}" for kind in kinds)


def _table(snapshots, units):
    """SNAPSHOTS as a table of reStructuredText, a row for each state and device."""
    rows = []
    for call, snapshot in snapshots.items():
        for i, (device, kinds) in enumerate(_seen(snapshot, units).items()):
            # A row with an empty first cell would continue the row before.
            first = [] if not call else [call if i == 0 else ".."]
            if not rows:
                rows.append([*["State & Call"] * len(first), "Device", *kinds])
            rows.append([*first, device, *(_amount(kinds[k], units) for k in kinds)])
    if not rows:
        yield "No memory tracked."
        return
    widths = [max(len(c[0]) + 2, *map(len, c)) for c in zip(*rows)]
    rule = "  ".join("=" * width for width in widths)
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    yield from (rule, lines[0], rule, *lines[1:], rule)
