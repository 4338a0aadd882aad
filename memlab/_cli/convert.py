"""`memlab convert`."""

import os

from memlab._cli import kinds, telling


def add(commands):
    from memlab._export import export

    command = commands.add_parser(
        "convert",
        help="write a file in another format",
        description="Writes a file in the format that the name of the new one ends in, or "
        "that --to names.",
    )
    command.set_defaults(command="convert", run=run)
    command.add_argument("file", help=kinds.FILE)
    endings = " ".join(end for ends, *_ in export.FORMATS.values() for end in ends)
    command.add_argument(
        "out", help=f"file to write; its name ends in one of {endings}, or see --to"
    )
    command.add_argument(
        "--to",
        choices=tuple(export.FORMATS),
        help="format, whatever the name of the new file ends in",
    )
    command.add_argument(
        "--device",
        type=kinds.index,
        metavar="N",
        help="this device alone, for formats of tables and stacks (default: all)",
    )
    command.add_argument(
        "--table",
        choices=export.TABLES,
        help="table to write, for csv, arrow and parquet (default: allocations)",
    )
    command.add_argument(
        "--expand",
        action="store_true",
        help="for json: every stack written out wherever it is referred to, as version 1 "
        "had it, which takes up to a thousand times the room",
    )


def run(options):
    from memlab._export import export
    from memlab._files import load

    # Before a long file is read.
    to = options.to or export.format_of(options.out)
    recording = load.read_recording(options.file)
    export.convert(
        recording,
        options.out,
        to,
        device=options.device,
        table=options.table,
        title=os.path.basename(options.file),
        expand=options.expand,
    )
    telling.say(f"Wrote {options.out}")
    return 0
