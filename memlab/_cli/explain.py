"""`memlab explain`."""

import argparse
import sys

from memlab._cli import kinds, laboratory, telling
from memlab._text import terminal


def add(commands):
    command = commands.add_parser(
        "explain",
        help="explain the peak, and what to change so that it falls",
        description="Explains the peak of a recorded run and lists changes that lower it.  "
        "The saving of each change is measured by a replay of the changed run.",
    )
    command.set_defaults(command="explain", run=run, wrong_usage=command.error)
    command.add_argument("file", help=kinds.FILE_OR_FOLDER)
    laboratory.add_options(command)
    command.add_argument(
        "--measure",
        nargs=argparse.REMAINDER,
        metavar="program",
        help="run this program on the phantom device, as in --measure -- train.py --batch "
        "32, with changes that need no edit, and say what fits; the last option",
    )


def separate(argv):
    """ARGV without the -- after --measure, which would end argparse's options."""
    words = list(argv)
    if "--measure" in words:
        at = words.index("--measure") + 1
        if words[at : at + 1] == ["--"]:
            del words[at]
    return words


def run(options):
    from memlab._lab import explain

    words = options.measure
    if words is not None:
        if not words:
            options.wrong_usage("--measure needs a program, as in --measure -- train.py")
    answer = explain.explain(
        options.file, options.memory, device=options.device, rank=options.rank
    )
    if words is None:
        telling.answer(answer, options.json)
        return 0
    from memlab._lab import measure

    memory = options.memory or explain.gpu_bytes(options.file)
    if memory is None:
        options.wrong_usage("the recording does not tell the GPU's memory: give --memory")
    answer["measured"] = measure.measure(_fit, words, memory, answer)
    telling.answer(answer, options.json)
    if not options.json:
        telling.show("\n" + measure.text(answer["measured"]))
    return 0


def _fit(words, memory, vary):
    from memlab._fit import answer as _answer
    from memlab._fit import fit

    return _answer.answer_of(
        words,
        None,
        None,
        memory,
        vary,
        None,
        fit.TIMEOUT_SECONDS,
        tell=lambda text: terminal.say(f"memlab: {text}", sys.stderr),
    )
