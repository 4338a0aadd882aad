"""Gates: limits under which a command ends with a status of its own, for CI."""

import sys

from memlab._cli import kinds
from memlab._text import terminal, wording

# Exit status if a limit is passed; 1 is a failure of memlab, 2 wrong usage.
STATUS = 3


def add(command):
    command.add_argument(
        "--fail-over",
        type=kinds.memory,
        metavar="SIZE",
        help="end with status 3 where a device reserved more than this, for example 20GiB",
    )
    command.add_argument(
        "--fail-on",
        action="append",
        default=[],
        choices=("oom", "leak"),
        help="end with status 3 where a device ran out of memory (oom), or memory grew by step "
        "(leak); may be repeated",
    )


def status(options, answer) -> int:
    """0; or STATUS, with a message, if a device of ANSWER, of memlab.report(), passes a
    limit of OPTIONS.
    """
    if options.fail_over is None and not options.fail_on:
        return 0
    from memlab._report import verdict as _verdict

    problems = []
    for device in answer["devices"]:
        name, verdict = wording.escape(device["name"]), device["verdict"]
        reserved = verdict["peak"]["reserved_bytes"]
        if options.fail_over is not None and reserved > options.fail_over:
            problems.append(
                f"{name} reserved {wording.size(reserved)}, more than "
                f"{wording.size(options.fail_over)}"
            )
        kinds_found = [finding["kind"] for finding in verdict["findings"]]
        failed = any(kind in _verdict.FAILED for kind in kinds_found)
        if "oom" in options.fail_on and failed:
            problems.append(f"{name} ran out of memory")
        if "leak" in options.fail_on:
            problems += [
                f"{name}: {sentence}"
                for sentence in _verdict.sentences(verdict, _verdict.GROWS)
            ]
    for problem in problems:
        terminal.say(f"memlab: {problem}", sys.stderr)
    return STATUS if problems else 0
