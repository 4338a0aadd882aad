"""`memlab export`."""

import argparse

from memlab._cli import kinds, telling


def _label(text):
    name, equals, value = text.partition("=")
    if not equals or not name.isidentifier():
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE, as in commit=1f2e")
    return name, value


def add(commands):
    command = commands.add_parser(
        "export",
        help="add a run to a fleet's folder of Parquet files",
        description="Adds a run to a folder of Parquet files, a row for each rank, device, "
        "step and category, for DuckDB and the like.  docs/FLEET.md has the columns.",
    )
    command.set_defaults(command="export", run=run)
    command.add_argument("file", help=kinds.FILE_OR_FOLDER)
    command.add_argument("folder", help="the fleet's folder, or its URI; it may have other runs")
    command.add_argument(
        "--run",
        dest="name",
        metavar="NAME",
        help="the run's name (default: that of FILE, and when it began); a run of this name "
        "is replaced",
    )
    command.add_argument(
        "--label",
        action="append",
        default=[],
        type=_label,
        metavar="NAME=VALUE",
        help="what to group runs by, as commit=1f2e or team=vision; may be repeated",
    )


def run(options):
    from memlab._recording import commands

    files = commands.export(
        options.file, options.folder, run=options.name, labels=dict(options.label)
    )
    telling.say(f"Wrote {files[0]}" + (f" and {len(files) - 1} more" if files[1:] else ""))
    return 0
