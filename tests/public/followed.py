"""Whether the line that an advice names does already what the advice says.

Owns, by kind of advice, what a line looks like that follows it.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# By kind.  Not here: gradients_late, losses_summed, evaluation_batch and fragmentation, which are
# about the place or the size of what the line has; checkpoint and variables are not about a line.
_FOLLOWS = {
    "gradients_kept": r"zero_grad\((?!.*set_to_none\s*=\s*False)",
    "graph_unused": r"no_grad\(\)|inference_mode\(\)",
    "graph_retained": r"\.backward\((?!.*retain_graph)",
    "graph_shared": r"\.backward\((?!.*retain_graph)",
    "frozen_gradients": r"requires_grad_\(\s*False|requires_grad\s*=\s*False",
    "model_copied": r"""\.cpu\(\)|\.to\(\s*["']cpu""",
    "logits_float32": r"autocast\(.*enabled\s*=\s*False",
    "loss_whole": r"checkpoint\(|\.chunk\(",
    "grown_by_copies": r"\[[^\]]*\]\s*=[^=]",
    "optimizer_temporaries": r"fused\s*=\s*True|foreach\s*=\s*False",
    "data_kept": r"non_blocking\s*=\s*True",
    "results_kept": r"\.cpu\(\)",
    "steps_kept": r"\.item\(\)|\.tolist\(\)|\.cpu\(\)",
    "late_frees": r"^\s*del\b",
}
# By kind, where an enclosing `with` or a decorator may do it.
_AROUND = ("graph_unused", "logits_float32")
# Options that have a model checkpoint its layers.
_CHECKPOINTS = re.compile(r"--(gradient|grad|activation)[_-]checkpointing")
_OFF = ("false", "0", "no")


def _statements(text: str, line: int) -> Iterator[ast.stmt]:
    """Those that LINE of TEXT is in, outermost first."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            yield node


def _source(text: str, line: int, around: bool) -> str:
    """The statement at LINE, or its head; AROUND: after the heads of `with` and the decorators
    that it is in."""
    parts, own = [], text.splitlines()[line - 1]
    for node in _statements(text, line):
        if isinstance(node, ast.With):
            parts += [ast.unparse(item) for item in node.items]
        elif isinstance(node, ast.FunctionDef):
            parts += [ast.unparse(decorator) for decorator in node.decorator_list]
        elif not hasattr(node, "body"):
            own = " ".join((ast.get_source_segment(text, node) or own).split())
    return "\n".join([*parts, own] if around else [own])


def already(item: Mapping[str, Any], arguments: tuple[str, ...], variables: Mapping[str, str]) -> str:
    """What of a program does already what ITEM, an advice, says; "" where nothing does.

    arguments, variables: of the program, and of its environment.
    """
    kind, conf = item["kind"], item["conf"]
    if conf:
        return next((name for name, value in variables.items() if value == conf), "")
    if kind == "checkpoint":
        for at, word in enumerate(arguments):
            value = [*arguments, ""][at + 1].lower()
            if _CHECKPOINTS.match(word) and value not in _OFF:
                return word
    if kind not in _FOLLOWS or not item["file"]:
        return ""
    try:
        text = Path(item["file"]).read_text()
        source = _source(text, item["line"], kind in _AROUND)
    except (OSError, SyntaxError, IndexError):
        return ""
    return source if re.search(_FOLLOWS[kind], source, re.MULTILINE) else ""
