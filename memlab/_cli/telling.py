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


def data(answer):
    """Prints ANSWER, a dict, as JSON."""
    import json

    say(json.dumps(answer, indent=1))


def answer(answer, as_json, as_markdown=False):
    """Prints ANSWER, a _report.answer.Answer."""
    if as_json:
        data(answer)
        return
    sections = answer.sections()
    if as_markdown:
        from memlab._report import markdown

        say(markdown.markdown(answer.notes, sections).removesuffix("\n"))
        return
    from memlab._report import rich

    text = rich.coloured(answer.notes, sections, sys.stdout)
    if text is None:
        show(answer.text(sections, terminal.columns(sys.stdout)))
    else:
        say(text.removesuffix("\n"))
