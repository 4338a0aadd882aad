"""Prints, as Markdown, every command of memlab and its options, from the parsers."""

import argparse
import contextlib
import io
import os

os.environ["COLUMNS"] = "88"  # the width of usages

from memlab import phantom
from memlab._cli import main


def command(name, parser, about):
    """The lines of one command."""
    yield from (f"## memlab {name}", "", sentence(about), "")
    yield from ("```text", parser.format_usage().rstrip("\n"), "```", "")
    rows = list(options(parser))
    if rows:
        yield from ("| option | what it does |", "|---|---|", *rows, "")
    if parser.epilog:
        yield from (cell(parser.epilog), "")


def options(parser):
    """The rows of the table of a parser's options."""
    formatter = parser._get_formatter()
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction) or action.help == argparse.SUPPRESS:
            continue
        what = formatter._format_action_invocation(action)
        help_text = formatter._expand_help(action) if action.help else ""
        if action.required and action.option_strings:
            help_text = f"{help_text} (required)".lstrip()
        yield f"| `{cell(what)}` | {cell(help_text)} |"


def cell(text):
    """TEXT within a cell of a table."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


def sentence(text):
    text = cell(text).rstrip(".")
    return f"{text[:1].upper()}{text[1:]}."


def phantom_help():
    """What `memlab phantom --help` prints."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        with contextlib.suppress(SystemExit):
            phantom.main(["--help"])
    return printed.getvalue().rstrip("\n")


def lines():
    (commands,) = main._parser()._subparsers._group_actions
    abouts = {action.dest: action.help for action in commands._choices_actions}
    for name, parser in commands.choices.items():
        if name == "phantom":
            yield from (f"## memlab {name}", "", sentence(abouts[name]), "")
            yield from ("```text", phantom_help(), "```", "")
        else:
            yield from command(name, parser, abouts[name])


print("\n".join(lines()))
