"""`memlab report`."""

import json

from memlab._cli import kinds, telling


def add(commands):
    command = commands.add_parser(
        "report", help="what was live at the peak of a file, or at another instant"
    )
    command.set_defaults(command="report", run=run, wrong_usage=command.error)
    command.add_argument("file", help=kinds.FILE)
    command.add_argument(
        "--at",
        type=kinds.instant,
        default="peak",
        metavar="INSTANT",
        help="peak (the default), start, end, step:12 or 12 for the peak within that step, "
        "1.5s, 350ms or 20us from the first event, event:123",
    )
    command.add_argument(
        "--by",
        action="append",
        default=[],
        choices=("line", "module", "category", "stack", "size"),
        help="show this table and nothing else; more than one by more --by",
    )
    command.add_argument(
        "--device",
        type=kinds.index,
        metavar="N",
        help="only cuda:N, or the like (default: all)",
    )
    command.add_argument(
        "--rank", type=kinds.rank, metavar="R", help="only this rank of several"
    )
    form = command.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="all of it, for machines")
    form.add_argument(
        "--markdown",
        action="store_true",
        help="for a comment on a pull request: tables as GitHub renders them",
    )
    command.add_argument(
        "--source",
        metavar="DIR",
        help="show the lines of the .py files in this folder, of the program's files of "
        "which the recording has no text (torch's have none)",
    )
    command.add_argument(
        "--lines",
        type=kinds.count,
        default=15,
        metavar="N",
        help="most rows of the table by line, and of those of --by (default: %(default)s)",
    )
    command.add_argument(
        "-f",
        "--function",
        dest="functions",
        action="append",
        default=[],
        metavar="NAME",
        help="a function to show line by line: its name, Class.method, module:name or "
        "file.py:name; more than one by more -f (default: those whose lines hold most)",
    )


def run(options):
    from memlab._files import load
    from memlab._report import parts, peaks, report

    if options.functions and (options.by or options.at != "peak"):
        options.wrong_usage("-f is for the peak, without --by")
    if options.json and options.by:
        options.wrong_usage("--json has all tables: leave out --by")
    recording = load.read_recording(options.file, quiet=True)
    found = peaks.choose_devices(recording, options.device, options.rank)
    if options.at.startswith("event:") and len(found) > 1:
        options.wrong_usage(
            f"--at {options.at} is of one device: add --device or --rank"
        )
    if options.json:
        answer = report.report(
            recording, options.file, options.functions, options.at, found, options.source
        )
        telling.say(json.dumps(answer, indent=1))
        return 0
    choice = parts.choose(
        options.at,
        options.by,
        lines=options.lines,
        functions=options.functions,
        source=options.source,
    )
    notes = [*report.file_notes(recording.file), *load.unread_notes(recording)]
    sections = list(parts.sections(recording, found, choice))
    telling.report(notes, sections, options.markdown)
    return 0
