"""The command line and its list of commands.

A command is one file here, which owns its options and its work: add(commands) adds it
to argparse, and run(options) returns the exit status.
"""

import os
import sys
from importlib import import_module

from memlab._cli import progress, variable
from memlab._guard import guarded
from memlab._run import values
from memlab._text.arguments import Parser
from memlab._version import __version__

# In the order of their help; each is read when it is needed.
_COMMANDS = tuple(
    "run lines report merge diff replay tune explain view top dump convert export fit phantom "
    "backends".split()
)
# Commands that may run for seconds before any output.
_LONG = {"report", "merge", "diff", "replay", "tune", "explain", "view", "convert", "export", "dump"}


def main(argv=None) -> int:
    """Runs one command; returns the exit status: 0: success, 1: failure, 2: wrong
    usage.
    """
    argv = sys.argv[1:] if argv is None else list(argv)
    return guarded(lambda: _command(argv))


def _command(argv):
    if argv[:1] == ["phantom"]:
        return _file_of("phantom").run(argv[1:])
    # These record by themselves, or need no recording.
    for name in (variable.NAME, values.NAME):
        os.environ.pop(name, None)
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


def _file_of(command):
    return import_module(f"memlab._cli.{command}")


def _meant(word):
    """What is told of WORD, which is no command."""
    if word.endswith(".py") and os.path.isfile(word):
        return f"memlab: {word} is no command; did you mean memlab run {word}?"
    if os.path.exists(word):
        return f"memlab: {word} is no command; did you mean memlab report {word}?"
    import difflib

    near = difflib.get_close_matches(word, _COMMANDS, 1)
    meant = f"did you mean {near[0]}; " if near else ""
    return f"memlab: {word} is no command; {meant}there are {', '.join(_COMMANDS)}"


def parse(argv):
    """The options of ARGV, a list of str; .command is the name of its command."""
    argv = argv or ["--help"]
    word = argv[0]
    if not word.startswith("-") and word not in _COMMANDS:
        print(_meant(word), file=sys.stderr)
        sys.exit(2)
    python = False
    if word in ("run", "lines"):
        from memlab._cli import program

        argv, python = program.separate(argv, _file_of(word).VALUES)
    elif word == "explain":
        argv = _file_of(word).separate(argv)
    options = _parser([word] if word in _COMMANDS else _COMMANDS).parse_args(argv)
    options.python = python
    return options


def _parser(names=_COMMANDS):
    """The parser of the commands NAMES: the options of one alone need no other's file."""
    parser = Parser(
        prog="memlab",
        description="Shows where the GPU memory of a PyTorch training run goes.",
    )
    parser.add_argument("--version", action="version", version=f"memlab {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name in names:
        _file_of(name).add(commands)
    return parser
