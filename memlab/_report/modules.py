"""The memory of modules in a few rows, with repeated modules rolled up: layers.* x48.

The core chooses the rows (csrc/core/analysis/answers/module_rows.h); this file words
them.
"""

from __future__ import annotations

from collections.abc import Sequence

from memlab._text.wording import escape

TYPE_CHECKING = False
if TYPE_CHECKING:
    from memlab._answers import ModuleRow, Peak
    from memlab._core import Recording


def rows(recording: Recording, device: int, most: int) -> Sequence[ModuleRow]:
    """At most this many rows of DEVICE, an index, at its peak, which sum to the peak;
    none if the recording names no module.
    """
    return of_answer(recording.peak(device, module_rows=most))


def of_answer(answer: Peak) -> Sequence[ModuleRow]:
    """The rows of ANSWER; none if it names no module."""
    return answer["module_rows"] if any(node["module"] for node in answer["module_tree"]) else ()


def name(row: ModuleRow) -> str:
    """A row's module, escaped."""
    if row["reason"]:
        return escape(f"({row['reason']})")
    if not row["module"]:
        return "(the rest)" if row["share"] != "all" else "(all)"
    said = escape(row["module"])
    if row["modules"] > 1:
        said += f" x{row['modules']}"
    return said + {"all": "", "own": ", itself", "rest": ", the rest"}[row["share"]]
