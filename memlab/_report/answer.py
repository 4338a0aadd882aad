"""An answer: a dict for programs, and the same in words for people."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from memlab._report import html
from memlab._report.parts import Listing, Part, joined
from memlab._text import terminal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Answer(dict[str, "Any"]):
    """A dict, of which str() is what the command line prints.

    A notebook shows the words.  Copied or pickled, it is a plain dict.
    """

    def __init__(
        self,
        answer: Any,
        sections: Callable[[Any], Iterable[list[Part]]],
        notes: Sequence[str] = (),
        columns: int = 0,
    ) -> None:
        """SECTIONS of ANSWER are the words, which are made when they are asked for, after
        the sentences NOTES.  columns: the most of a line, but
        for a word that is longer; 0: any number.
        """
        super().__init__(answer)
        self._sections = sections
        self.notes = notes
        self._columns = columns

    def sections(self) -> list[list[Part]]:
        """The words, to be rendered."""
        return list(self._sections(self))

    def text(self, sections: list[list[Part]], columns: int = 0) -> str:
        """SECTIONS, of sections(), as text, in lines of COLUMNS, a terminal's; 0: of its own."""
        text = joined(self.notes, sections).removesuffix("\n")
        return terminal.fit(text, columns or self._columns, whole=True)

    def __str__(self) -> str:
        return self.text(self.sections())

    def _repr_html_(self) -> str:
        return html.html(self.notes, self.sections())

    def __reduce__(self) -> Any:
        return dict, (dict(self),)


def listed(text: str) -> list[list[Part]]:
    """TEXT, lines with a fixed layout, as sections."""
    return [[Listing(text.removesuffix("\n").split("\n"))]]
