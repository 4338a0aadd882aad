"""The code that runs as the forward of the program's torch.autograd.Function classes."""

from __future__ import annotations

import sys
from types import CodeType, FunctionType

# The numbers are in files.
UNKNOWN, NONE, FUNCTIONS = 0, 1, 2

_NAME = "forward"
# Decorators around one function; a circle of these ends, too.
_MOST_WRAPPED = 100
# Past a metaclass, whose code must not run.
_namespace_of = type.__dict__["__dict__"].__get__
_bases_of = type.__dict__["__mro__"].__get__


class FunctionForwards:
    """The Functions that are alive when the first function called forward is asked for."""

    def __init__(self):
        self._lines = None  # by file

    def tell(self, file: str, function: str, line: int) -> int:
        """Whether LINE, which ran in FUNCTION of FILE, is in the forward of a Function:
        UNKNOWN, NONE or FUNCTIONS."""
        if function != _NAME:
            return UNKNOWN
        if self._lines is None:
            self._lines = {}
            for code in _codes():
                lines = {line for *_, line in code.co_lines()}
                self._lines.setdefault(code.co_filename, set()).update(lines)
        return FUNCTIONS if line in self._lines.get(file, ()) else NONE


def _codes() -> list[CodeType]:
    """The code of each class's forward that has this name: others may run elsewhere, too."""
    module = sys.modules.get("torch.autograd.function")
    root = getattr(module, "__dict__", {}).get("Function")
    classes = [root] if isinstance(root, type) else []
    codes = []
    for kind in classes:
        classes += type.__subclasses__(kind)
        found = (_namespace_of(base).get(_NAME) for base in _bases_of(kind))
        code = _code(next(filter(None, found), None))
        if code is not None and code.co_name == _NAME:
            codes.append(code)
    return codes


def _code(method) -> CodeType | None:
    """That of the function within METHOD's decorators."""
    function = method.__func__ if type(method) is staticmethod else method
    for _ in range(_MOST_WRAPPED):
        if type(function) is not FunctionType:
            return None
        inner = function.__dict__.get("__wrapped__")
        if inner is None:
            return function.__code__
        function = inner
    return None
