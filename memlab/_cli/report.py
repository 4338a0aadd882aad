"""`memlab report`."""

import json

from memlab._cli import kinds, telling


def add(commands):
    command = commands.add_parser(
        "report", help="report what was live at the peak, or at another instant"
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
        help="show only this table; may be repeated",
    )
    command.add_argument(
        "--device",
        type=kinds.index,
        metavar="N",
        help="this device only, cuda:N or the like (default: all)",
    )
    command.add_argument(
        "--rank", type=kinds.rank, metavar="R", help="this rank only"
    )
    form = command.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print all tables as JSON")
    form.add_argument(
        "--markdown",
        action="store_true",
        help="print Markdown, for a pull request",
    )
    command.add_argument(
        "--source",
        metavar="DIR",
        help="folder of the program, for the text of lines that the recording does not "
        "have (torch's snapshots have none)",
    )
    command.add_argument(
        "--lines",
        type=kinds.count,
        default=15,
        metavar="N",
        help="most rows of the table by line and of the tables of --by (default: "
        "%(default)s)",
    )
    command.add_argument(
        "-f",
        "--function",
        dest="functions",
        action="append",
        default=[],
        metavar="NAME",
        help="show this function line by line: its name, Class.method, module:name or "
        "file.py:name; may be repeated (default: the functions whose lines hold most)",
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
