"""`memlab convert`."""

from memlab._cli import kinds, telling


def add(commands):
    from memlab._export import export

    command = commands.add_parser(
        "convert",
        help="convert a recording to another format",
        description="Converts a recording.  The ending of OUT selects the format, or --to "
        "does.",
    )
    command.set_defaults(command="convert", run=run)
    command.add_argument("file", help=kinds.FILE_OR_FOLDER)
    endings = " ".join(end for ends, *_ in export.FORMATS.values() for end in ends)
    command.add_argument(
        "out", help=f"file to write; its name ends in one of {endings}, or use --to"
    )
    command.add_argument(
        "--to",
        choices=tuple(export.FORMATS),
        help="format (default: by the ending of OUT)",
    )
    command.add_argument(
        "--device",
        type=kinds.index,
        metavar="N",
        help="this device only, for formats of tables and stacks (default: all)",
    )
    command.add_argument(
        "--table",
        choices=export.TABLES,
        help="table to write, for csv, arrow and parquet (default: allocations)",
    )
    command.add_argument(
        "--expand",
        action="store_true",
        help="for json: write every stack in full wherever it is used, as version 1 did; "
        "the file is up to 1,000 times larger",
    )


def run(options):
    from memlab._recording import commands

    commands.convert(
        options.file,
        options.out,
        options.to,
        device=options.device,
        table=options.table,
        expand=options.expand,
    )
    telling.say(f"Wrote {options.out}")
    return 0
