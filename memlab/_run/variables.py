"""Variables that hold memory in vain: from an optimizer's step until they are set again.

Of each large tensor all references are searched.  Where all of them are variables that nothing
reads any more, by the code of their functions, they are noted with the line that sets them
again.  No code of the program runs.
"""

from __future__ import annotations

import gc
import sys
import types

from memlab import _core
from memlab._native import bridge
from memlab._record import training_loop

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import Any

_LEAST_BYTES = 1 << 20
_OBJECTS = 3_000_000


def look(source: str, frame: FrameType) -> None:
    """Notes the variables of FRAME and its callers in all recordings of SOURCE."""
    if source != "cuda" or sys.getallocatedblocks() > _OBJECTS:
        return
    places, tensors, suspended = _large()
    if not tensors:
        return
    frames: dict[tuple[str, str, int], FrameType] = {}
    for each in (*training_loop.outwards(frame), *suspended):
        frames.setdefault(_key(each), each)
    for (device, address), paths in zip(places, _paths(tensors), strict=True):
        found = _variables(paths, frames)
        if found:
            # The loop's own first, then those of generators that it takes its data from.
            line = next(iter(found.values()))[1]
            said = [f"{', '.join(sorted(names))} of {of}" for of, (names, _) in found.items()]
            _core.note_holder(source, device, address, "; ".join(said), line)


def _key(frame):
    code = frame.f_code
    name = code.co_name if sys.version_info < (3, 11) else code.co_qualname
    return name, code.co_filename, frame.f_lineno


def _large():
    """[(device, address)] and [tensor] of large blocks, one tensor each; and the frames of
    suspended generators."""
    import torch

    found, suspended = {}, []
    for each in gc.get_objects():
        if type(each) is torch.Tensor and each.is_cuda:
            storage = each.untyped_storage()
            if storage.nbytes() >= _LEAST_BYTES:
                found.setdefault((each.device.index, storage.data_ptr()), each)
        elif type(each) is types.GeneratorType and each.gi_frame is not None:
            suspended.append(each.gi_frame)
    return list(found), list(found.values()), suspended


def _paths(targets):
    """Of each target its references, as memlab._objects.holders has them; none where some are
    not known."""
    import torch

    if not targets:
        return []
    _core.use_graph(bridge.load()._graph)
    found = _core.find_holders(targets, (torch.Tensor, torch.UntypedStorage))
    return [paths if unmet <= 0 else [] for paths, unmet in found]


def _variables(paths, frames) -> dict[str, tuple[set[str], int]]:
    """By function, the variables that PATHS lead to and a line that sets them again; {}:
    something else holds the target, or reads it."""
    found: dict[str, tuple[set[str], int]] = {}
    for path in sorted(paths, key=_is_suspended):
        frame, name, within = _variable(path, frames)
        line = None if frame is None else training_loop.set_again(frame, name)
        if line is None or len(within) > 1 or within and not _is_alone(frame, name):
            return {}
        if line:
            found.setdefault(frame.f_code.co_name, (set(), line))[0].add(name)
    return found


def _is_suspended(path):
    return any(step[0] == "generator" for step in path)


def _variable(path, frames) -> tuple[FrameType | None, str, list[tuple[Any, ...]]]:
    """The frame of a variable at which PATH begins, its name, and the rest of PATH."""
    steps = [step for step in path if step[0] != "running"]
    # A loop's generator is on the stack of its function, and nowhere else.
    if steps[0][0] == "temporary" and len(steps) > 1 and steps[1][0] == "generator":
        del steps[0]
    kind, *of = steps[0]
    if kind == "module" and len(steps) > 1 and steps[1][0] == "name":
        return _of_module(of[0], frames), steps[1][1], steps[2:]
    if kind not in ("local", "generator") or of[0] is None:
        return None, "", []
    return frames.get((of[1], of[2], of[3])), of[0], steps[1:]


def _of_module(name, frames):
    """The frame that runs the module of that name, if one does."""
    values = getattr(sys.modules.get(name), "__dict__", None)
    own = (f for f in frames.values() if f.f_globals is values and f.f_code.co_name == "<module>")
    return next(own, None)


def _is_alone(frame, name):
    """Whether the variable alone holds its value, a container."""
    values = training_loop.values(frame, {name})
    return all(len(paths) == 1 for paths in _paths(values))
