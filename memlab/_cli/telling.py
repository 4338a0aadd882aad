"""Output of an answer: unchanged, wrapped, or as a report."""

import sys

from memlab._cli import progress
from memlab._text import terminal


def say(text):
    """Prints TEXT unchanged."""
    progress.end()
    terminal.answer(text)


def show(text):
    """Prints TEXT, wrapped to the terminal's width."""
    say(terminal.fitted(text, sys.stdout))


def report(notes, sections, as_markdown, columns=0):
    """Prints the SECTIONS of a report after the sentences NOTES.  Off a terminal, lines
    are COLUMNS wide; 0: not wrapped.
    """
    from memlab._report import parts
    from memlab._report import report as _report

    if not sections:
        notes = [*notes, _report.NOTHING]
    if as_markdown:
        from memlab._report import markdown

        say(markdown.markdown(notes, sections).removesuffix("\n"))
        return
    from memlab._report import rich

    text = rich.coloured(notes, sections, sys.stdout)
    if text is None:
        plain = parts.joined(notes, sections).removesuffix("\n")
        show(terminal.fit(plain, columns))
    else:
        say(text.removesuffix("\n"))
