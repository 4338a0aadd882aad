"""The command line and its list of commands.

A command is one file here, which owns its options and its work: add(commands) adds it
to argparse, and run(options) returns the exit status.
"""

import difflib
import os
import sys

from memlab._cli import (
    backends,
    convert,
    diff,
    dump,
    explain,
    fit,
    lines,
    merge,
    phantom,
    program,
    progress,
    replay,
    report,
    run,
    top,
    tune,
    variable,
    view,
)
from memlab._guard import guarded
from memlab._text.arguments import Parser
from memlab._version import __version__

# In the order of their help.
_COMMANDS = (
    *(run, lines, report, merge, diff, replay, tune, explain, view, top, dump, convert),
    fit,
    *(phantom, backends),
)
# Commands that may run for seconds before any output.
_LONG = {"report", "merge", "diff", "replay", "tune", "explain", "view", "convert", "dump"}


def main(argv=None) -> int:
    """Runs one command; returns the exit status: 0: success, 1: failure, 2: wrong
    usage.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    return guarded(lambda: _command(argv))


def _command(argv):
    if argv[:1] == ["phantom"]:
        return phantom.run(argv[1:])
    # These record by themselves, or need no recording.
    os.environ.pop(variable.NAME, None)
    options = parse(argv)
    if options.command in _LONG:
        progress.begin(options.command, _read_by(options))
    try:
        status = options.run(options)
    finally:
        progress.end()
    if not status:
        progress.keep()
    return status


def _read_by(options):
    """The arguments that may be files which the command reads."""
    known = vars(options)
    values = [known.get(name) for name in ("file", "files", "before", "after")]
    return [path for v in values for path in (v if isinstance(v, list) else [v])]


def _meant(word, names):
    """What is told of WORD, which is none of the commands NAMES."""
    if word.endswith(".py") and os.path.isfile(word):
        return f"memlab: {word} is no command; did you mean memlab run {word}?"
    if os.path.exists(word):
        return f"memlab: {word} is no command; did you mean memlab report {word}?"
    near = difflib.get_close_matches(word, names, 1)
    meant = f"did you mean {near[0]}; " if near else ""
    return f"memlab: {word} is no command; {meant}there are {', '.join(names)}"


def parse(argv):
    """The options of ARGV, a list of str; .command is the name of its command."""
    names = [command.__name__.rpartition(".")[2] for command in _COMMANDS]
    if argv and not argv[0].startswith("-") and argv[0] not in names:
        print(_meant(argv[0], names), file=sys.stderr)
        sys.exit(2)
    python = False
    if argv[:1] == ["run"]:
        argv, python = program.separate(argv, run.VALUES)
    elif argv[:1] == ["lines"]:
        argv, python = program.separate(argv, lines.VALUES)
    elif argv[:1] == ["explain"]:
        argv = explain.separate(argv)
    options = _parser().parse_args(argv)
    options.python = python
    return options


def _parser():
    parser = Parser(
        prog="memlab",
        description="Shows where the GPU memory of a PyTorch training run goes.",
    )
    parser.add_argument("--version", action="version", version=f"memlab {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in _COMMANDS:
        command.add(commands)
    return parser
