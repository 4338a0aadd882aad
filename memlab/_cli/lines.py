"""`memlab lines`."""

from memlab._cli import kinds, program

# Options whose value is the next argument.
VALUES = ("--out", "--device", "-f", "--function", "-c", "--column", "-g", "--gpu")


def add(commands):
    command = commands.add_parser(
        "lines",
        help="run a program and show the memory of each line of some functions",
        allow_abbrev=False,
        usage="memlab lines -f function [options] [-m] program arguments...",
        description="Runs a program.  When it ends, also by an error, Ctrl-C or SIGTERM, "
        "prints a table of the lines of each function to stdout, after the program's own "
        "output.",
    )
    command.set_defaults(command="lines", run=run, wrong_usage=command.error)
    command.add_argument(
        "-f",
        "--function",
        dest="function_names",
        action="append",
        required=True,
        metavar="FUNCTION",
        help="profile this function: module:function, module:Class.method, "
        "module:outer.<locals>.inner, or without a module a function of the program itself; "
        "may be repeated",
    )
    command.add_argument(
        "-c",
        "--column",
        type=kinds.column,
        action="append",
        default=[],
        metavar="COLUMN",
        help="also show this field of torch.cuda.memory_stats(), measured from one line to "
        "the next; or 'delta', the bytes that a line left allocated; or 'calls', how often "
        "it ran; may be repeated",
    )
    command.add_argument(
        "-D",
        "--no-default-columns",
        action="store_true",
        help="leave out active_bytes.all.peak and reserved_bytes.all.peak",
    )
    command.add_argument(
        "-g",
        "--gpu",
        type=kinds.index,
        metavar="N",
        help="the GPU whose memory counts (default: what LOCAL_RANK says, else 0)",
    )
    command.add_argument(
        "--out",
        metavar="FILE",
        help="write the tables to this file as well; where RANK is set, each rank but 0 "
        "has its own, ending in _rankN",
    )
    program.add_device(command)
    program.add_program(command)


def run(options):
    from memlab._run import lines as _run_lines

    if options.no_default_columns and not options.column:
        options.wrong_usage("-D/--no-default-columns leaves no column: add one with -c")
    return _run_lines.run(options)
