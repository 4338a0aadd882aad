"""How an answer is shown: as it is, in lines that fit, or as a report."""

import sys

from memlab._cli import progress
from memlab._text import terminal


def say(text):
    """TEXT as it is."""
    progress.end()
    terminal.answer(text)


def show(text):
    """TEXT in lines that the terminal has room for."""
    say(terminal.fitted(text, sys.stdout))


def report(notes, sections, as_markdown, columns=0):
    """The SECTIONS of a report after the sentences NOTES; in lines of COLUMNS where it is not
    for a terminal, 0 for as long as they are."""
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
