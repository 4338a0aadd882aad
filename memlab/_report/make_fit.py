""""Make it fit" in parts: the batch that fits, and the remedies.

The core has the words (csrc/core/show/text/make_fit_text.h), the figures, and the choices.
"""

from __future__ import annotations

import textwrap

from memlab._report.parts import Heading, Said, Table
from memlab._text import wording

TYPE_CHECKING = False
if TYPE_CHECKING:
    from memlab._answers import MakeFit
    from memlab._report.parts import Part

_size = wording.size
# Of a remedy's lines, after what it saves and whether it fits, in a line of 80 columns.
_WIDEST = 60


def unseen(fit: MakeFit) -> str:
    """The part of the run that was not recorded."""
    of = fit["unseen"]
    parts = []
    if of["modules"]:
        parts.append(
            f"{wording.plural(of['modules'], 'module')} not reached "
            f"({_size(of['forward_bytes'])})"
        )
    elif of["forward_bytes"]:
        parts.append(f"the rest of the pass ({_size(of['forward_bytes'])})")
    if of["gradient_bytes"]:
        parts.append(f"gradients ({_size(of['gradient_bytes'])})")
    if of["optimizer_state_bytes"]:
        assumed = ", if it is Adam's" if of["optimizer_assumed"] else ""
        parts.append(
            f"the optimizer's state ({_size(of['optimizer_state_bytes'])}{assumed})"
        )
    return f"Still to come, estimated: {', '.join(parts)}." if parts else ""


def parts(fit: MakeFit) -> list[Part]:
    """The whole section."""
    memory = fit["memory_bytes"]
    of = f" in {_size(memory)}" if memory is not None else ""
    least, most = fit["needs_least_bytes"], fit["needs_most_bytes"]
    needs = _size(most) if least == most else f"{_size(least)} to {_size(most)}"
    made: list[Part] = [Heading(f"Make it fit{of}"), Said(f"The run needs {needs} reserved.")]
    batch, chosen = fit["batch_text"], fit["chosen_text"]
    made += [Said(said) for said in (unseen(fit), wording.escape(batch)) if said]
    rows, counts = [], []
    for item in fit["remedies"]:
        what = textwrap.wrap(wording.escape(item["text"]), _WIDEST)
        how = "tried" if item["tried"] else "estimated"
        costs = textwrap.wrap(f"{how}; {item['costs']}", _WIDEST)
        fits = "fits" if item["fits"] else ""
        rows.append((_size(item["saving_bytes"]), fits, [*what, *costs]))
        counts.append(item["saving_bytes"])
    if rows:
        columns = ("saves", "alone", "change")
        made.append(Table(columns, rows, counts, max(most, 1), names=True, headed=True))
    if chosen:
        made.append(Said(wording.escape(chosen)))
    return made
