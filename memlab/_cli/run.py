"""`memlab run`."""

from memlab._cli import kinds, program

# Options whose value is the next argument.
VALUES = ("--out", "--device", "--max-entries", "--max-file-bytes", "--keep-last", "--stacks")


def add(commands):
    command = commands.add_parser(
        "run",
        help="run a program and record its memory",
        allow_abbrev=False,
        usage="memlab run [options] [-m] program arguments...",
    )
    command.set_defaults(command="run", run=run)
    program.add_device(command)
    add_recording(command)
    program.add_program(command)


def add_recording(command):
    """Adds the options of what is recorded, and where to."""
    command.add_argument(
        "--out",
        default="memlab_out",
        metavar="DIR",
        help="folder for the results (default: %(default)s)",
    )
    command.add_argument(
        "--max-entries",
        type=kinds.count,
        default=1_000_000,
        metavar="N",
        help="newest events kept for each device (default: %(default)s)",
    )
    part = command.add_mutually_exclusive_group()
    part.add_argument(
        "--max-file-bytes",
        type=kinds.memory,
        default="16GiB",
        metavar="SIZE",
        help="limit of the .mlab file, which keeps every event, such as 4GiB "
        "(default: %(default)s)",
    )
    part.add_argument(
        "--keep-last",
        type=kinds.last,
        metavar="PART",
        help="keep the newest part of a long run in the .mlab file: 50steps, or 4GiB, the "
        "limit of its size",
    )
    command.add_argument(
        "--stacks",
        choices=("python", "all"),
        default="python",
        help="'all' adds C++ frames, at microseconds an event",
    )
    command.add_argument(
        "--uses",
        action="store_const",
        const=1,
        default=0,
        help="record when each block was last used, for memlab explain and tune; a step "
        "takes 10 to 40 %% longer",
    )
    command.add_argument(
        "--uses-every",
        type=kinds.count,
        metavar="N",
        dest="uses",
        help="the same in one step of N, at an Nth of the cost, for a long run",
    )
    command.add_argument(
        "--no-source",
        action="store_true",
        help="do not keep the text of the code lines that stacks name",
    )
    command.add_argument(
        "--quiet", action="store_true", help="say nothing but what went wrong"
    )


def run(options):
    from memlab._run import run as _run

    return _run.run(options)
