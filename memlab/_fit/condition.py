"""A condition on the settings of a sweep: `memlab fit --where "tp * pp == 8"`.

Owns its grammar: names, numbers, arithmetic and comparisons; nothing is called.
"""

from __future__ import annotations

import ast
import operator
import re

_ALLOWED = (
    ast.Expression, ast.Name, ast.Load, ast.Constant, ast.Compare, ast.BoolOp, ast.And, ast.Or,
    ast.UnaryOp, ast.Not, ast.USub, ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv,
    ast.Mod, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE,
)  # fmt: skip


class Condition:
    """TEXT, of the settings that are called NAMES and of what is FIXED, a dict.

    Raises ValueError for other names, and for what is no condition.
    """

    def __init__(self, text, names, fixed):
        self._text, self._fixed = text, fixed
        try:
            tree = ast.parse(text.strip(), mode="eval")
        except SyntaxError:
            tree = None
        if tree is None or not all(isinstance(node, _ALLOWED) for node in ast.walk(tree)):
            raise ValueError(f"{text!r} is not a condition; write for example 'tp * pp == 8'")
        known = {_plain(name) for name in names} | fixed.keys()
        self.names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        for name in sorted(self.names - known):
            raise ValueError(f"{text!r}: {name} is not varied; known: {', '.join(sorted(known))}")
        self._code = compile(tree, "<condition>", "eval")

    def uses(self, name):
        """Whether it depends on the setting NAME."""
        return _plain(name) in self.names

    def holds(self, settings):
        """Whether SETTINGS, name -> text or number, meet it.  Raises ValueError."""
        values = {_plain(name): _value(value) for name, value in settings.items()}
        try:
            return operator.truth(eval(self._code, {"__builtins__": {}}, self._fixed | values))
        except (ArithmeticError, TypeError) as error:
            said = ", ".join(f"{name}={value}" for name, value in settings.items())
            raise ValueError(f"{self._text!r} with {said}: {error}") from None


def _plain(name):
    return re.sub(r"\W", "_", name)


def _value(text):
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            pass
    return text
