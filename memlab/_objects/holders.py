"""Who keeps a tensor's memory alive: memlab.holders(), in words that a user writes.

The search and the steps of each path are memlab._core's; here they become sentences.  A
step is a tuple whose first item says what it is:

    ("module", name)                       in sys.modules
    ("running", thread)                    the next step is of a frame that runs; 0: here
    ("local", name, function, file, line)  of a running frame; "scope": its namespace;
                                           "temporary": on its stack
    ("frame", ...), ("generator", ...)     the same of a frame that was kept, or waits
    ("thread", what, thread)               "exception", "context", "trace", "state"
    ("held", type), ("cycle", type)        by C or C++; by nothing but itself
    ("name", text), ("item", text or path) an attribute; a key or index
    ("closure" or "default", name, function), ("result", function), ("context", name)
    ("threadlocal", name)                  an attribute of a threading.local
    ("node", name, node)                   of an autograd node
    ("member", type), ("key", type)        of a set, of a dict
    ("inside", type)                       of another object
    ("more", count)                        last: further references like this one
"""

import os
import sys
import threading
from typing import Any, NamedTuple

from memlab import _core
from memlab._native import bridge

__all__ = ["Holder", "find", "holders"]

# torch modules keep their parts in these; users write them as attributes.
_PARTS = ("_modules", "_parameters", "_buffers")
_CYCLE = "a reference cycle holds it: gc.collect() frees it"
# Attributes on the way from an exception to a frame's locals.
_TRACEBACK = ("__traceback__", "tb_next", "tb_frame", "f_back")


class Holder(NamedTuple):
    """One reference that keeps a tensor's memory alive; str() is the sentence.

    kind is the nearest of: "global", "local", "temporary" (a value in a running
    function's computation), "closure", "default" (of an argument), "generator" (a
    suspended one, or a coroutine), "exception", "autograd", "optimizer", "cache"
    (functools.lru_cache), "thread-local", "context" (contextvars), "thread", "cycle",
    "outside".
    """

    path: str
    kind: str

    def __str__(self) -> str:
        return self.path


def holders(tensor: Any) -> list[Holder]:
    """The holders of tensor's memory, one Holder for each reference, shortest path
    first.

    Holders of other tensors with the same storage, such as a view or its base, count
    too.  Nothing is changed, kept or run: no repr, no attribute access, no hook.
    References that Python and autograd do not explain come last, as a number.
    """
    if "torch" not in sys.modules or not issubclass(
        type(tensor), sys.modules["torch"].Tensor
    ):
        raise TypeError(f"expected a torch.Tensor, not {type(tensor).__qualname__}")
    return find([tensor])[0]


def find(tensors: list[Any]) -> list[list[Holder]]:
    """holders() of each of many tensors, in one search.

    The list must be the caller's only container of them, because its own references do
    not count.
    """
    import torch

    _core.use_graph(bridge.load()._graph)
    found = _core.find_holders(tensors, (torch.Tensor, torch.UntypedStorage))
    return [_tell(paths, unmet) for paths, unmet in found]


def _tell(paths, unmet):
    told = {}
    for path in paths:
        holder = _holder(path)
        told.setdefault(holder.path, holder)
    cycle = told.pop(_CYCLE, None)
    holders = list(told.values())
    if cycle is not None:
        only = not holders and unmet <= 0
        holders.append(Holder("only " * only + cycle.path, cycle.kind))
    if unmet > 0:
        plural = "s" if unmet > 1 else ""
        holders.append(
            Holder(f"held outside Python: {unmet} reference{plural}", "outside")
        )
    return holders


class _Segment:
    """One link of a sentence: `expression` of something."""

    def __init__(self, kind, what="", of="", bare=""):
        self.kind = kind
        self.what = what  # text before the expression
        self.of = of  # text after the expression
        self.bare = bare  # text without an expression
        self.parts = []  # (is a name, text)
        self.join = ", reached from "  # joins it to the segment that leads here

    def text(self):
        expression = _expression(self.parts)
        if not expression:
            return self.bare
        if self.what == "local" and expression.startswith("self."):
            # No variable of the function, but an attribute that outlives its call.
            return f"`{expression}` in {self.bare}"
        what = f"{self.what} " if self.what else ""
        return f"{what}`{expression}`{self.of}"


def _expression(parts):
    text = ""
    at = 0
    while at < len(parts):
        name, part = parts[at]
        after = parts[at + 1] if at + 1 < len(parts) else None
        if name and part in _PARTS and after is not None and not after[0]:
            key = after[1].strip("'\"")
            text += f"[{key}]" if key.isdigit() else f".{key}" if text else key
            at += 2
            continue
        if name:
            text += f".{part}" if text else part
        else:
            text += f"[{part}]"
        at += 1
    return text


def _place(function, file, line):
    called = function if function.startswith("<") else f"{function}()"
    return f"{called} at {os.path.basename(file)}:{line}"


def _thread(ident):
    """" of thread `name`", if the thread is not the calling one."""
    if not ident:
        return ""
    # Without a lock, and without a property that the program may have replaced.
    thread = threading._active.get(ident)
    name = vars(thread).get("_name") if thread is not None else None
    return f" of thread `{name or ident}`"


def _frame(kind, name, place, thread=""):
    of = f" of {place}{thread}"
    segment = _Segment(kind, "local", of, f"{place}{thread}")
    if name is not None:
        segment.parts.append((True, name))
    return segment


def _within(kind, what):
    """A complete segment: what follows is an expression within it."""
    return _Segment(kind, "", f" of {what}", what)


def _root(step, thread):
    """The first segment of a path."""
    what = step[0]
    if what == "module":
        segment = _Segment("global", "global", f" of module `{step[1]}`")
        segment.bare = f"module `{step[1]}`"
        return segment
    if what in ("local", "scope"):
        return _frame("local", step[1], _place(*step[2:]), _thread(thread))
    if what == "temporary":
        return _within(
            "temporary", f"a temporary value of {_place(*step[2:])}{_thread(thread)}"
        )
    if what == "thread":
        said = {
            "exception": "the exception being handled",
            "context": "the context",
            "trace": "the trace function",
        }.get(step[1], "the state")
        return _within("thread", f"{said} of {_thread(step[2])[4:] or 'this thread'}")
    if what == "cycle":
        return _within("cycle", _CYCLE)
    return _within("outside", f"a `{step[1]}` that is held outside Python")


def _kept_frame(segments, step):
    """A frame kept by an exception's traceback, or otherwise."""
    outer = segments[-1]
    passed = []
    while outer.parts and outer.parts[-1][0] and outer.parts[-1][1] in _TRACEBACK:
        passed.append(outer.parts.pop()[1])
    if "__traceback__" in passed:
        segment = _frame("exception", step[1], _place(*step[2:]))
        segment.join = ", in the traceback of "
    elif "tb_frame" in passed:
        segment = _frame("exception", step[1], _place(*step[2:]))
        segment.join = ", in the traceback kept by "
    else:
        segment = _frame("local", step[1], _place(*step[2:]))
        segment.join = ", in a frame kept by "
    return segment


def _node(segments, name, node):
    """The segment of a reference of an autograd node; None: it only leads on."""
    kind = name.partition("[")[0]
    if kind in ("next_functions", "function", "fn"):
        return None
    if kind in ("pre_hooks", "post_hooks", "_backward_hooks"):
        return _within("autograd", f"a hook of autograd node `{node}`")
    verb = "holds" if kind == "variable" else "saved"
    segment = _Segment("autograd", f"autograd node `{node}` {verb}")
    segment.parts.append((True, name))
    return segment


def _link(segments, step):
    """The segment that STEP begins; None: it extends the last one."""
    what = step[0]
    if what == "frame":
        return _kept_frame(segments, step)
    if what == "generator":
        return _frame("generator", step[1], f"suspended {_place(*step[2:])}")
    if what == "closure":
        segment = _Segment("closure", "closure variable", f" of `{step[2]}`")
        segment.parts.append((True, step[1]))
        return segment
    if what == "default":
        segment = _Segment("default", "default argument", f" of `{step[2]}`")
        segment.parts.append((True, step[1]))
        return segment
    if what == "result":
        of = f" of `{step[1]}`" if step[1] else ""
        return _within("cache", f"a cached result{of}")
    if what == "context":
        segment = _Segment("context", "context variable")
        segment.parts.append((True, step[1]))
        return segment
    if what == "node":
        return _node(segments, step[1], step[2])
    if what == "inside":
        bare = f"inside a `{step[1]}`"
        return _Segment(segments[-1].kind, of=" " + bare, bare=bare)
    if what in ("member", "key"):
        segment = _within(segments[-1].kind, f"a {what}")
        segment.join = " of "
        return segment
    return None


def _segments(path):
    segments = []
    thread = 0
    for step in path:
        if step[0] == "running":
            thread = step[1]
        elif not segments:
            segments.append(_root(step, thread))
        elif step[0] in ("name", "item", "threadlocal"):
            _add(segments[-1], step)
        else:
            segment = _link(segments, step)
            if segment is not None:
                segments.append(segment)
    return segments


def _add(segment, step):
    if step[0] == "item":
        key = step[1]
        if isinstance(key, list):
            # A tensor as a key, as in optimizers' states.
            nested = _segments(key)
            key = _expression(nested[-1].parts) if nested else "?"
            if segment.parts and segment.parts[-1] == (True, "state"):
                segment.kind = "optimizer"
        segment.parts.append((False, key))
        return
    if step[0] == "threadlocal":
        segment.kind, segment.what = "thread-local", "thread-local"
    if step[1] == "param_groups":
        segment.kind = "optimizer"
    segment.parts.append((True, step[1]))


def _holder(path):
    more = ""
    if path[-1][0] == "more":
        count = path[-1][1]
        more = f", and {count:,} more reference{'s' * (count > 1)} there"
        path = path[:-1]
    segments = _segments(path)
    if segments[0].kind == "cycle":
        return Holder(_CYCLE, "cycle")
    text = segments[-1].text()
    for inner, outer in zip(segments[:0:-1], segments[-2::-1], strict=True):
        text += inner.join + outer.text()
    return Holder(text + more, segments[-1].kind)
