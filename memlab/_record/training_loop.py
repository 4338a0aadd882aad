"""The loop that trains, as its code stands: what of one pass lives on into the next.

Owns the reading of bytecode.  No code of the program runs, and nothing of it is kept.
"""

from __future__ import annotations

import dis
import inspect
import itertools
import re
import sys
import threading

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

UNKNOWN, NO, YES = 0, 1, 2
# Of what a call returns: also while the next call makes its loss.
YES_AND_LOSS = 3
# Of what the program does with a model's result: means and sums alone; a loss over classes; one
# element by element that keeps nothing; the mean or sum of its squares; a loss over classes that
# alone holds the result; one over classes of the result in float32.
REDUCES, CLASSES, ELEMENTS, SQUARES, CLASSES_ALONE, REDUCES_ALONE = 1, 2, 3, 4, 5, 6
CLASSES_FLOAT32 = 7
# Callers that are looked at: libraries that train for a program are some calls deep.
_MOST_FRAMES = 200
_OF_CLASSES = {"cross_entropy", "nll_loss", "CrossEntropyLoss", "NLLLoss"}
_OF_ELEMENTS = {
    *("mse_loss", "smooth_l1_loss", "huber_loss"),
    *("MSELoss", "SmoothL1Loss", "HuberLoss"),
}
_VARIABLES = tuple(
    f"{what}_{kind}" for what in ("LOAD", "STORE", "DELETE") for kind in ("FAST", "NAME", "GLOBAL")
)
# What does not go on with the next instruction.
_LEAVES = ("JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_ABSOLUTE", "RETURN_", "RAISE_", "RERAISE")
_BESIDE_CALLS = ("PRECALL", "CACHE", "KW_NAMES")
_CALLS = ("CALL", "CALL_METHOD", "CALL_FUNCTION")
_STORES = ("STORE_FAST", "STORE_NAME", "STORE_GLOBAL")
# Small integers have their own from CPython 3.14 on, None and True from 3.15 on.
_CONSTANTS = ("LOAD_CONST", "LOAD_SMALL_INT", "LOAD_COMMON_CONSTANT")


def facts() -> tuple[int, int, int, int]:
    """(whether gradients live while the next forward runs, whether what the module call under
    way returns lives on into it, bytes of what was returned before and does, what loss
    follows), UNKNOWN, NO, YES or YES_AND_LOSS each but the bytes and the loss."""
    for thread in _threads():
        frames = list(outwards(thread))
        for place, frame in enumerate(frames):
            if "backward" not in frame.f_code.co_names or _is_torchs(frame):
                continue
            part = _Part(frame)
            if "backward" in part.names:
                called = frames[place - 1] if place else None
                gradients = _gradients(part, frames[place + 1 :])
                loss = _loss(part, frames[:place])
                if loss == CLASSES and is_module_call(called) and part.goes_into_loss():
                    loss = CLASSES_ALONE
                lives, living = _outputs(part, called)
                if lives == YES and loss == CLASSES and _loss(part, []) != CLASSES:
                    lives = YES_AND_LOSS
                if loss in (CLASSES, CLASSES_ALONE) and _in_float32(frames[: place + 1]):
                    loss = CLASSES_FLOAT32
                return gradients, lives, living, loss
    return UNKNOWN, UNKNOWN, 0, UNKNOWN


def takes(batch: int) -> bool:
    """Whether the model takes BATCH rows at once, as far as can be told: a loop may give it parts
    of what the program calls its batch.  Read off the arguments of the model's call under way, else
    off what the innermost loop around the backward pass sets."""
    shapes = [shape for shape in map(list, _shapes()) if shape]
    # A sequence may come first, and rows of a batch may be in one dimension with its tokens.
    return not shapes or any(
        shape[0] and shape[0] % batch == 0 or batch in shape[1:2] for shape in shapes
    )


def _shapes():
    import torch

    found = []
    for thread in _threads():
        frames = [*outwards(thread)]
        calls = [frame for frame in frames if is_module_call(frame)]
        loops = [f for f in frames if "backward" in f.f_code.co_names and not _is_torchs(f)]
        if calls:
            found = values(calls[-1], {"args", "kwargs"})
        elif loops:
            found = values(loops[0], _Part(loops[0]).kept())
        if calls or loops:
            break
    inner = [item for value in found for item in _items(value)]
    # One image, or one sequence, of each row.
    lists = [(len(item),) for item in inner if type(item) in (list, tuple) and len(item) > 1]
    all_inner = (item for each in inner for item in _items(each))
    # A nested tensor has no shape.
    shapes = [t.shape for t in all_inner if type(t) is torch.Tensor and not t.is_nested]
    return [*shapes, *lists] if shapes else []


def _items(value):
    """What VALUE holds, one level deep."""
    if isinstance(value, dict):
        return list(dict.values(value))
    return list(value) if type(value) in (tuple, list) else [value]


def set_again(frame: FrameType, name: str) -> int | None:
    """The line that sets the variable NAME of FRAME again, if nothing reads it before; 0 if
    it dies with the function; None if it is read, or that cannot be told.  Each instruction may
    raise, so what an `except` or `finally` around it reads is read."""
    code = frame.f_code
    if name in (*code.co_cellvars, *code.co_freevars):
        return None
    if not code.co_flags & inspect.CO_OPTIMIZED and _reads(code.co_consts, name):
        return None
    steps = [step for each in dis.get_instructions(code) for step in _simple(each)]
    places = {step.offset: place for place, step in reversed([*enumerate(steps)])}
    lines = [*dis.findlinestarts(code)]
    handlers = _handlers(code, steps)
    todo = [place for place, step in enumerate(steps) if step.offset > frame.f_lasti][:1]
    todo += [places[at] for first, end, at in handlers if first <= frame.f_lasti < end]
    seen, line = set(), 0
    while todo:
        place = todo.pop()
        step = steps[place]
        if place in seen:
            continue
        seen.add(place)
        if step.argval == name and step.opname.startswith(_VARIABLES):
            if step.opname.startswith("LOAD"):
                return None
            line = line or [at for start, at in lines if at and start <= step.offset][-1]
            continue
        if _is_jump(step):
            todo.append(places[step.argval])
        todo += [places[at] for first, end, at in handlers if first <= step.offset < end]
        if not step.opname.startswith(_LEAVES) and place + 1 < len(steps):
            todo.append(place + 1)
    return line


def _handlers(code, steps):
    """[(first, end, handler)]: offsets of what CODE guards, and of what runs if it raises."""
    if sys.version_info >= (3, 11):
        entries = dis.Bytecode(code).exception_entries
        return [(entry.start, entry.end, entry.target) for entry in entries]
    setups = (step for step in steps if step.opname.startswith("SETUP_") and _is_jump(step))
    return [(step.offset, step.argval, step.argval) for step in setups]


def _reads(constants, name):
    """Whether the code of a function or class among CONSTANTS has that name."""
    codes = [each for each in constants if inspect.iscode(each)]
    return any(name in code.co_names or _reads(code.co_consts, name) for code in codes)


def _threads() -> list[FrameType]:
    """The caller of facts(), then, for one of autograd's threads, the others' innermost frames.

    Not this function's own frame nor that of facts(): a frame that reaches itself by its
    variables would keep the program's frames, and their tensors, until a garbage collection.
    """
    frames = sys._current_frames()
    # Where a library has replaced get_ident(), it names no thread.
    frames.pop(threading.get_ident(), None)
    return [sys._getframe(2), *frames.values()]


def outwards(frame: FrameType | None) -> Iterator[FrameType]:
    """FRAME and its callers, as many as are looked at."""
    for _ in range(_MOST_FRAMES):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


class _Part:
    """The part of a frame's code that a pass runs: the innermost loop around the instruction
    under way, else all of it."""

    def __init__(self, frame: FrameType) -> None:
        code = [c for pair in dis.get_instructions(frame.f_code) for c in _simple(pair)]
        self.frame = frame
        self.at = frame.f_lasti
        self.begin, self.end = code[0].offset, code[-1].offset
        self.loops = False
        for step in code:
            target = step.argval if _is_jump(step) else None
            around = target is not None and target <= self.at <= step.offset
            if around and target >= self.begin:
                self.begin, self.end, self.loops = target, step.offset, True
        self.code = [c for c in code if self.begin <= c.offset <= self.end]
        self.names = {c.argval for c in self.code if _is_attribute(c)}

    def next(self) -> dis.Instruction | None:
        """What is done with the result of the call under way."""
        return next((c for c in self.code if c.offset > self.at), None)

    def places(self, name: str) -> list[int]:
        return [c.offset for c in self.code if _is_attribute(c) and c.argval == name]

    def always(self, offset: int) -> bool:
        """Whether each pass reaches OFFSET: no jump before it leaves it out."""
        for step in self.code:
            if step.offset < offset and _is_jump(step) and step.opname != "FOR_ITER":
                if offset < step.argval <= self.end or step.argval <= self.begin:
                    return False
        return True

    def reduction(self, call: int) -> int:
        """REDUCES or SQUARES, if the result of the call there goes into nothing but its mean or
        sum, or those of its squares, REDUCES_ALONE if no variable has it; else UNKNOWN."""
        steps = [c for c in self.code if c.offset > call and c.opname not in _BESIDE_CALLS]
        results, reduced, kind = set(), False, REDUCES
        for step, after in zip(steps, steps[1:]):
            if "zero_grad" in (step.argval, after.argval) or step.opname == "POP_TOP":
                continue
            if _is_attribute(step):
                whole = after.opname in _CALLS and not after.arg
                if step.argval == "backward":
                    alone = kind == REDUCES and not results
                    return (REDUCES_ALONE if alone else kind) if reduced else UNKNOWN
                if not reduced and step.argval == "square" and whole and kind == REDUCES:
                    kind = SQUARES
                    continue
                if not reduced and not (step.argval in ("mean", "sum") and whole):
                    return UNKNOWN
                reduced = True
            elif step.opname in _STORES and not reduced:
                results.add(step.argval)
            elif step.opname.startswith("LOAD"):
                # Before the reduction nothing but the result is read, and after it all but that.
                if (step.argval in results) == reduced:
                    return UNKNOWN
            elif not reduced and step.opname not in _CALLS and step.opname not in _STORES:
                return UNKNOWN
        return UNKNOWN

    def goes_into_loss(self) -> bool:
        """Whether the result of the call under way is an argument of a loss over classes, and of
        no variable."""
        steps = [c for c in self.code if c.opname not in _BESIDE_CALLS]
        before = [c for c in steps if c.offset < self.at]
        around = list(itertools.takewhile(_loads_or_calls, reversed(before)))
        names = {c.argval for c in around if isinstance(c.argval, str)}
        names.update(type(value).__name__ for value in values(self.frame, names))
        behind = (c for c in steps if c.offset > self.at and not c.opname.startswith("LOAD"))
        taken = next(behind, None)
        in_call = taken is not None and taken.opname in _CALLS
        return in_call and not _OF_CLASSES.isdisjoint(names)

    def returns_nothing(self) -> bool:
        pairs = zip(self.code, self.code[1:])
        return all(b.opname != "RETURN_VALUE" or a.opname in _CONSTANTS for a, b in pairs)

    def kept(self) -> set[str]:
        """The names that a pass leaves with a value."""
        stored = {c.argval for c in self.code if c.opname in _STORES}
        return stored - {c.argval for c in self.code if c.opname.startswith("DELETE")}


def _simple(step):
    """STEP, or the two instructions that CPython 3.13 makes one of."""
    opnames = re.findall("(?:LOAD|STORE)_FAST", step.opname)
    if len(opnames) < 2:
        return [step]
    return [step._replace(opname=o, argval=a) for o, a in zip(opnames, step.argval)]


def _loads_or_calls(step):
    return step.opname.startswith("LOAD") or step.opname in (*_CALLS, "PUSH_NULL")


def _is_jump(step):
    return step.opcode in dis.hasjrel or step.opcode in dis.hasjabs


def _is_attribute(step):
    return step.opname in ("LOAD_ATTR", "LOAD_METHOD")


def _gradients(part, callers):
    """Whether they live while the next forward runs."""
    while not part.loops and "zero_grad" not in part.names and callers:
        part, callers = _Part(callers[0]), callers[1:]
    if "set_to_none" in str(part.frame.f_code.co_consts) + str(part.frame.f_code.co_names):
        return UNKNOWN
    places = part.places("zero_grad")
    if not places:
        return YES if part.loops else UNKNOWN
    if not all(map(part.always, places)):
        return UNKNOWN
    passes = part.places("backward")
    late = passes and all(part.at < place < passes[0] for place in places)
    return YES if late else NO


def _outputs(part, called):
    """(whether the result of a module's call under way is kept, bytes of earlier ones)."""
    import torch

    if not part.loops and part.frame.f_code.co_flags & inspect.CO_OPTIMIZED:
        # Variables of a function end with it.
        return (NO if part.returns_nothing() else UNKNOWN), 0
    kept = part.kept()
    now = NO if _is_torchs(called) else UNKNOWN
    if is_module_call(called):
        after = part.next()
        stored = after is not None and after.opname in (*_STORES, "UNPACK_SEQUENCE")
        now = YES if stored and (after.argval in kept or "UNPACK" in after.opname) else NO
    storages = {}
    for value in values(part.frame, kept):
        for item in _items(value):
            if type(item) is torch.Tensor and item.is_cuda and item.grad_fn is not None:
                storage = item.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
    return now, sum(storages.values())


def _loss(part, inner):
    """What loss follows: by its name here or in a function under way, INNER, by what a name
    stands for, or by the code."""
    named = {c.argval for c in part.code if c.opname.startswith("LOAD")}
    names = {name for name in named if isinstance(name, str)}
    found = names | {type(value).__name__ for value in values(part.frame, names)}
    found.update(*(frame.f_code.co_names for frame in inner if not _is_torchs(frame)))
    if not _OF_CLASSES.isdisjoint(found) or any(map(_has_loss_over_classes, inner)):
        return CLASSES
    if not _OF_ELEMENTS.isdisjoint(found):
        return ELEMENTS
    return next(filter(None, map(part.reduction, _model_calls(part))), UNKNOWN)


def _in_float32(frames):
    """Whether the loop, the last of FRAMES, the outermost model's forward, or one with the loss
    casts what it has made to float32, behind the call under way."""
    own = [frame for frame in frames if not _is_torchs(frame)]
    models = [frame for frame in own if is_module_call(frame.f_back)]
    parts = [*own[-1:], *models[-1:]]
    parts += [frame for frame in own if not _OF_CLASSES.isdisjoint(frame.f_code.co_names)]
    return any(map(_has_loss_over_classes, own)) or any(map(_casts_behind, parts))


def _casts_behind(frame):
    """Whether FRAME names float32 behind the call under way."""
    steps = dis.get_instructions(frame.f_code)
    return any(
        _is_attribute(step) and step.argval in ("float", "float32") and step.offset > frame.f_lasti
        for step in steps
    )


def _has_loss_over_classes(frame):
    """Whether FRAME is the forward of a model of transformers, which computes its loss itself."""
    is_model = str(frame.f_globals.get("__name__")).startswith("transformers.models.")
    return is_model and "loss_function" in frame.f_code.co_names


def _model_calls(part):
    """Where the call under way stands, and calls of modules by a name: a backward pass comes
    behind these."""
    import torch

    yield part.at
    steps = [c for c in part.code if c.opname not in (*_BESIDE_CALLS, "PUSH_NULL")]
    for i, step in enumerate(steps):
        loads = steps[max(i - 1 - (step.arg or 0), 0) : i] if step.opname in _CALLS else []
        if loads and all(c.opname.startswith("LOAD") and not _is_attribute(c) for c in loads):
            if any(isinstance(v, torch.nn.Module) for v in values(part.frame, {loads[0].argval})):
                yield step.offset


def _is_torchs(frame):
    return frame is None or str(frame.f_globals.get("__name__")).startswith("torch.")


def is_module_call(frame):
    """Whether FRAME is torch's call of a module of any kind but a loss."""
    if frame is None or frame.f_code.co_name not in ("_wrapped_call_impl", "_call_impl"):
        return False
    kinds = {type(owner).__module__ for owner in values(frame, {"self"})}
    return not any(kind.startswith("torch.nn.modules.loss") for kind in kinds)


def values(frame, names):
    """The values that NAMES have in FRAME, as variables or, in a function, as globals."""
    optimized = frame.f_code.co_flags & inspect.CO_OPTIMIZED
    values = frame.f_locals
    known = [values if name in values else frame.f_globals for name in names]
    found = [where[name] for where, name in zip(known, names) if name in where]
    if optimized and sys.version_info < (3, 13):
        # A copy, which the frame would keep.
        values.clear()
    return found
