"""`memlab report`."""

from memlab._cli import gates, kinds, telling


def add(commands):
    command = commands.add_parser(
        "report", help="report what was live at the peak, or at another instant"
    )
    command.set_defaults(command="report", run=run, wrong_usage=command.error)
    command.add_argument(
        "file", help=kinds.FILE_OR_FOLDER
    )
    command.add_argument(
        "--full", action="store_true", help="all tables; without it the first screen"
    )
    command.add_argument(
        "--at",
        type=kinds.instant,
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
        help="this device only, by its number: 1 is cuda:1 (default: all)",
    )
    command.add_argument(
        "--rank", type=kinds.rank, metavar="R", help="this rank only"
    )
    gates.add(command)
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
        metavar="N",
        help="most rows of the table by line and of the tables of --by (default: 15)",
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
    from memlab._files import merged
    from memlab._recording import commands, recording
    from memlab._report import peaks

    at = options.at or "peak"
    if options.functions and (options.by or at != "peak"):
        options.wrong_usage("-f is for the peak, without --by")
    if options.json and (options.by or options.full):
        options.wrong_usage("--json has all tables: leave out --by and --full")
    data = merged.read(options.file, quiet=True)
    found = peaks.choose_devices(data, options.device, options.rank)
    if at.startswith("event:") and len(found) > 1:
        options.wrong_usage(
            f"--at {at} is of one device: add --device or --rank"
        )
    answer = commands.report(
        recording.Recording(data, merged.name_of(options.file)),
        full=options.full,
        at=options.at,
        by=options.by,
        device=options.device,
        rank=options.rank,
        lines=options.lines,
        functions=options.functions,
        source=options.source,
    )
    telling.answer(answer, options.json, options.markdown)
    return gates.status(options, answer)
