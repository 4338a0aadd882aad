"""Functions shared by the laboratory's commands."""

import json

from memlab._cli import kinds, telling


def add_options(command):
    command.add_argument(
        "--memory",
        type=kinds.memory,
        metavar="SIZE",
        help="memory for torch's allocator, for example 24GiB (default: as recorded)",
    )
    command.add_argument(
        "--device",
        type=kinds.index,
        metavar="N",
        help="this device only (default: all)",
    )
    command.add_argument(
        "--rank",
        type=kinds.rank,
        metavar="N",
        help="the devices of this rank only, of a file that memlab merge wrote",
    )
    command.add_argument("--json", action="store_true", help="print JSON")


def tell(options, answer, sections):
    """Shows an ANSWER of the laboratory, as JSON or as the text that SECTIONS makes."""
    if options.json:
        telling.say(json.dumps(answer, indent=1))
    else:
        telling.report([], sections(answer), as_markdown=False)
    return 0
