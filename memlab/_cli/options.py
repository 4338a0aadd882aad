"""What the command line takes: the options of each command, and what is wrong of them.

Owns their names, defaults and help; what a command does is _cli's.
"""

import argparse

from memlab._text.arguments import Parser
from memlab._version import __version__

_FILE = "a .mlab file, or a snapshot pickle of memlab or torch, gzip too"
# Options whose value is the next argument, of the commands that run a program.
_VALUES = {
    "run": ("--out", "--device", "--max-entries", "--max-file-bytes", "--stacks"),
    "lines": ("--out", "--device", "-f", "--function", "-c", "--column", "-g", "--gpu"),
}


def parse(argv):
    """The options of ARGV, a list of str; .command is the name of its command."""
    return _parser().parse_args(_separate_phantom(argv))


def _separate_phantom(argv):
    """ARGV of `memlab run` or `lines` with --phantom as --phantom=, which names no GPU:
    argparse would take the program after it for the name of one."""
    separate = list(argv)
    values = _VALUES.get(argv[0]) if argv else None
    if values is None:
        return separate
    at = 1
    while at < len(argv) and argv[at].startswith("-") and argv[at] != "--":
        if argv[at] == "--phantom":
            separate[at] = "--phantom="
        at += 2 if argv[at] in values else 1
    return separate


def _parser():
    parser = Parser(
        prog="memlab", description="Where the memory of a PyTorch training run goes."
    )
    parser.add_argument("--version", action="version", version=f"memlab {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    _add_run(commands)
    _add_lines(commands)
    _add_report(commands)
    _add_merge(commands)
    _add_diff(commands)
    _add_replay(commands)
    _add_tune(commands)
    _add_explain(commands)
    _add_view(commands)
    _add_top(commands)
    _add_convert(commands)
    _add_fit(commands)
    commands.add_parser(
        "phantom",
        help="run a program on the phantom device, without recording",
        add_help=False,
    )
    backends = commands.add_parser("backends", help="say what can be recorded here")
    backends.set_defaults(command="backends")
    return parser


def _add_run(commands):
    run = commands.add_parser(
        "run",
        help="run a program and record its memory",
        allow_abbrev=False,
        usage="memlab run [options] [-m] program arguments...",
    )
    run.set_defaults(command="run")
    run.add_argument(
        "--out",
        default="memlab_out",
        metavar="DIR",
        help="folder for the results (default: %(default)s)",
    )
    _add_device(run)
    run.add_argument(
        "--max-entries",
        type=_count,
        default=1_000_000,
        metavar="N",
        help="newest events kept for each device (default: %(default)s)",
    )
    run.add_argument(
        "--max-file-bytes",
        type=_count,
        default=16 << 30,
        metavar="N",
        help="most bytes of the .mlab file, which keeps every event "
        "(default: %(default)s)",
    )
    run.add_argument(
        "--stacks",
        choices=("python", "all"),
        default="python",
        help="'all' adds C++ frames, at microseconds an event",
    )
    run.add_argument(
        "--uses",
        action="store_true",
        help="keep when each block was last used, for memlab explain and tune; costs some "
        "microseconds an operator",
    )
    run.add_argument(
        "--no-source",
        action="store_true",
        help="leave out what the lines of code say that stacks name, which the recording "
        "keeps otherwise",
    )
    _add_program(run)


def _add_lines(commands):
    lines = commands.add_parser(
        "lines",
        help="run a program and show the memory of each line of some functions",
        allow_abbrev=False,
        usage="memlab lines -f function [options] [-m] program arguments...",
        description="Runs a program and, when it ends, by an error, Ctrl-C or SIGTERM too, "
        "writes a table of the lines of each function to its stdout, after what the program "
        "wrote there.",
    )
    lines.set_defaults(command="lines", wrong_usage=lines.error)
    lines.add_argument(
        "-f",
        "--function",
        dest="function_names",
        action="append",
        required=True,
        metavar="FUNCTION",
        help="profile this function: module:function, module:Class.method, "
        "module:outer.<locals>.inner, or without a module one of the program itself; may "
        "be repeated",
    )
    lines.add_argument(
        "-c",
        "--column",
        type=_column,
        action="append",
        default=[],
        metavar="COLUMN",
        help="show this field of torch.cuda.memory_stats() too, over the time from one "
        "line to the next, or 'delta', the bytes that a line left allocated, or 'calls', "
        "how often it ran; may be repeated",
    )
    lines.add_argument(
        "-D",
        "--no-default-columns",
        action="store_true",
        help="leave out active_bytes.all.peak and reserved_bytes.all.peak",
    )
    lines.add_argument(
        "-g",
        "--gpu",
        type=_index,
        metavar="N",
        help="the GPU whose memory counts (default: what LOCAL_RANK says, else 0)",
    )
    lines.add_argument(
        "--out",
        metavar="FILE",
        help="write the tables to this file as well; where RANK is set, each rank but 0 "
        "has its own, ending in _rankN",
    )
    _add_device(lines)
    _add_program(lines)


def _add_report(commands):
    report = commands.add_parser(
        "report", help="what was live at the peak of a file, or at another instant"
    )
    report.set_defaults(command="report", wrong_usage=report.error)
    report.add_argument("file", help=_FILE)
    report.add_argument(
        "--at",
        type=_instant,
        default="peak",
        metavar="INSTANT",
        help="peak (the default), start, end, step:12 or 12 for the peak within that step, "
        "1.5s, 350ms or 20us from the first event, event:123",
    )
    report.add_argument(
        "--by",
        action="append",
        default=[],
        choices=("line", "module", "category", "stack", "size"),
        help="show this table and nothing else; more than one by more --by",
    )
    report.add_argument(
        "--device",
        type=_index,
        metavar="N",
        help="only cuda:N, or the like (default: all)",
    )
    report.add_argument(
        "--rank", type=_rank, metavar="R", help="only this rank of several"
    )
    kinds = report.add_mutually_exclusive_group()
    kinds.add_argument("--json", action="store_true", help="all of it, for machines")
    kinds.add_argument(
        "--markdown",
        action="store_true",
        help="for a comment on a pull request: tables as GitHub renders them",
    )
    report.add_argument(
        "--source",
        metavar="DIR",
        help="show the lines of the .py files in this folder, of the program's files of "
        "which the recording has no text (torch's have none)",
    )
    report.add_argument(
        "--lines",
        type=_count,
        default=15,
        metavar="N",
        help="most rows of the table by line, and of those of --by (default: %(default)s)",
    )
    report.add_argument(
        "-f",
        "--function",
        dest="functions",
        action="append",
        default=[],
        metavar="NAME",
        help="a function to show line by line: its name, Class.method, module:name or "
        "file.py:name; more than one by more -f (default: those whose lines hold most)",
    )


def _add_merge(commands):
    merge = commands.add_parser(
        "merge",
        help="say which rank of several peaks highest and why, and make one file of theirs",
        description="Brings the recordings of the ranks of one run together, with their "
        "clocks aligned, and says which peaks highest and why.",
    )
    merge.set_defaults(command="merge")
    merge.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help=_FILE + ", one of each rank, or a folder that has one of each, with the rank in "
        "its name as rank0.mlab",
    )
    merge.add_argument(
        "-o",
        "--out",
        metavar="FILE",
        help="write all of them as one recording, a pickle, which report, view and torch's "
        "viewer read",
    )
    merge.add_argument("--json", action="store_true", help="for machines")


def _add_view(commands):
    view = commands.add_parser(
        "view",
        help="make an HTML page of a file, or one that files can be dropped onto",
        description="Writes an HTML page that shows a recording and needs nothing else. "
        "Without FILE it is the empty page: a recording's file that is dropped onto it, or "
        "chosen there, is read by the page itself and sent nowhere.",
    )
    view.set_defaults(command="view", wrong_usage=view.error)
    view.add_argument("file", nargs="?", metavar="FILE", help=_FILE)
    where = view.add_mutually_exclusive_group()
    where.add_argument(
        "--out",
        metavar="PAGE",
        help="page to write (default: beside the file, ending in .html; the empty one: "
        "memlab.html)",
    )
    where.add_argument(
        "--serve",
        action="store_true",
        help="write no page, but serve it at a secret address of this machine until Ctrl-C: "
        "for recordings whose page would be too large for a browser",
    )


def _add_top(commands):
    top = commands.add_parser(
        "top",
        help="show what a running job has allocated, live",
        description="Shows what a running job has allocated, by line, module, category or "
        "stack, live.  Only its .mlab file is read; the job sees nothing of it.",
    )
    top.set_defaults(command="top")
    top.add_argument(
        "job",
        nargs="?",
        metavar="PID|FILE",
        help="a process, whose children count too, a .mlab file, or a folder of them "
        "(default: the job of yours that runs)",
    )
    top.add_argument("--once", action="store_true", help="print one look and end")
    top.add_argument("--json", action="store_true", help="the same, for machines")
    top.add_argument(
        "--by",
        action="append",
        choices=("line", "module", "category", "stack"),
        help="a table of --once; may be repeated (default: line and module)",
    )
    top.add_argument(
        "--lines",
        type=_count,
        default=15,
        metavar="N",
        help="rows of each table of --once (default: %(default)s)",
    )


def _add_diff(commands):
    diff = commands.add_parser(
        "diff",
        help="say what of one run's memory is more than of another's, and what less",
        description="Compares two runs, two steps or two ranks: what appeared, is gone, "
        "grew, shrank or moved in time, at the peak and in each phase.",
    )
    diff.set_defaults(command="diff", wrong_usage=diff.error)
    diff.add_argument("before", metavar="BEFORE", help=_FILE)
    diff.add_argument(
        "after",
        nargs="?",
        metavar="AFTER",
        help="likewise; without it two instants or ranks of the first are compared",
    )
    diff.add_argument(
        "--at",
        type=_instants,
        default="peak",
        metavar="WHEN[,WHEN]",
        help="the instant of both, or of the one and of the other: peak, end, step:12 or 12, "
        "1.5s, event:123 (default: peak)",
    )
    diff.add_argument(
        "--ranks",
        type=_two_ranks,
        metavar="N,N",
        help="these ranks of files that memlab merge wrote",
    )
    diff.add_argument(
        "--device",
        type=_index,
        metavar="N",
        help="the device of both (default: of each the one that was fullest)",
    )
    diff.add_argument(
        "--lines",
        type=_count,
        default=15,
        metavar="N",
        help="rows of the table by line (default: %(default)s)",
    )
    form = diff.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="for machines")
    form.add_argument(
        "--html", metavar="FILE", help="write a page to this file, without scripts"
    )
    form.add_argument(
        "--markdown", action="store_true", help="for a comment on a pull request"
    )


def _add_replay(commands):
    replay = commands.add_parser(
        "replay",
        help="say what a recorded run would need under other allocator settings",
        description="Replays a recording in a model of torch's caching allocator: as it was, "
        "which is compared with the recording, or under other settings or with other "
        "memory.",
    )
    replay.set_defaults(command="replay")
    replay.add_argument("file", help=_FILE)
    replay.add_argument(
        "--conf",
        metavar="SETTINGS",
        help="as in PYTORCH_CUDA_ALLOC_CONF, such as expandable_segments:True; '' for "
        "torch's defaults (default: the recorded ones)",
    )
    _add_laboratory(replay)


def _add_explain(commands):
    explain = commands.add_parser(
        "explain",
        help="say why the peak of a file is what it is, and what to change",
        description="Says in words why the peak of a recorded run is what it is, and what to "
        "change so that it falls: each advice with what it saves in a replay of the run as "
        "it would have been.",
    )
    explain.set_defaults(command="explain")
    explain.add_argument("file", help=_FILE)
    _add_laboratory(explain)


def _add_tune(commands):
    tune = commands.add_parser(
        "tune",
        help="find the allocator settings with which a recorded run would reserve least",
        description="Tries allocator settings by replaying a recording under them, and says "
        "the best, what they save, and the bounds that no settings pass.",
    )
    tune.set_defaults(command="tune")
    tune.add_argument("file", help=_FILE)
    _add_laboratory(tune)


def _add_laboratory(command):
    command.add_argument(
        "--memory",
        type=_memory,
        metavar="SIZE",
        help="how much there is for torch's allocator, for example 24GiB (default: as much "
        "as there was)",
    )
    command.add_argument(
        "--device",
        type=_index,
        metavar="N",
        help="this device alone (default: all)",
    )
    command.add_argument(
        "--rank",
        type=_rank,
        metavar="N",
        help="the devices of this rank alone, of a file that memlab merge wrote",
    )
    command.add_argument("--json", action="store_true", help="for machines")


def _add_convert(commands):
    from memlab._export import export

    convert = commands.add_parser(
        "convert",
        help="write a file in another format",
        description="Writes a file in the format that the name of the new one ends in, or "
        "that --to names.",
    )
    convert.set_defaults(command="convert")
    convert.add_argument("file", help=_FILE)
    endings = " ".join(end for ends, *_ in export.FORMATS.values() for end in ends)
    convert.add_argument(
        "out", help=f"file to write; its name ends in one of {endings}, or see --to"
    )
    convert.add_argument(
        "--to",
        choices=tuple(export.FORMATS),
        help="format, whatever the name of the new file ends in",
    )
    convert.add_argument(
        "--device",
        type=_index,
        metavar="N",
        help="this device alone, for formats of tables and stacks (default: all)",
    )
    convert.add_argument(
        "--table",
        choices=export.TABLES,
        help="table to write, for csv, arrow and parquet (default: allocations)",
    )
    convert.add_argument(
        "--expand",
        action="store_true",
        help="for json: every stack written out wherever it is referred to, as version 1 "
        "had it, which takes up to a thousand times the room",
    )


def _add_fit(commands):
    fit = commands.add_parser(
        "fit",
        help="say whether a program fits on a GPU that need not be here",
        allow_abbrev=False,
        usage="memlab fit [options] [-m] [python] program arguments...",
        description="Runs the program, unchanged, on the phantom device, a stand-in for a "
        "GPU on which nothing is computed, until its memory peaks no higher, and says "
        "whether it fits there.  The exit status is 0 if it fits, 3 if it does not, 1 for "
        "an error of the program or of memlab, 2 for wrong usage.",
    )
    fit.set_defaults(command="fit", wrong_usage=fit.error)
    fit.add_argument("--gpu", help="see memlab phantom --list (default: h200)")
    fit.add_argument(
        "--devices",
        type=_count,
        metavar="N",
        help="how many GPUs (default: 1; with torchrun, one for each rank)",
    )
    fit.add_argument(
        "--memory",
        metavar="SIZE",
        help="memory of each, for example 24GiB (default: what the GPU has)",
    )
    fit.add_argument(
        "--vary",
        metavar="NAME=A..B",
        help="find the largest value from A to B that fits: of {NAME} in an argument, of "
        "the argument --NAME or NAME=, or of an environment variable in capitals",
    )
    fit.add_argument(
        "--steps",
        type=_count,
        metavar="N",
        help="end the program after N steps of its optimizer (default: when no peak rose "
        "for 10 steps)",
    )
    fit.add_argument(
        "--timeout",
        type=_seconds,
        metavar="SECONDS",
        help="time for one run of the program (default: 900)",
    )
    fit.add_argument("--json", action="store_true", help="for machines")
    fit.add_argument(
        "-m",
        dest="module",
        action="store_true",
        help="the program is the name of a module",
    )
    fit.add_argument("words", nargs=argparse.REMAINDER, metavar="program")


def _add_device(command):
    command.add_argument(
        "--device",
        choices=("auto", "cuda", "cpu"),
        default="auto",
        help="whose memory (default: a GPU where there is one)",
    )
    command.add_argument(
        "--phantom",
        metavar="GPU",
        help="run on the phantom device, a stand-in for a GPU on which "
        "results are not computed: --phantom for the GPU that MEMLAB_PHANTOM_GPU "
        "names, else an h200, --phantom=GPU for another, --phantom=auto only where "
        "there is no GPU; memlab phantom --list names them. "
        "MEMLAB_PHANTOM_MEMORY, for example 24GiB, is the memory of each, "
        "MEMLAB_PHANTOM_DEVICES how many there are",
    )


def _add_program(command):
    command.add_argument(
        "-m",
        dest="module",
        action="store_true",
        help="the program is the name of a module",
    )
    command.add_argument("program", help="script to run, or module with -m")
    rest = command.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    # Or argparse names them among what is missing.
    rest.required = False


def _count(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def _seconds(text):
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return seconds


def _instants(text):
    from memlab._report import instant as _instant

    try:
        both = [_instant.parse(part) for part in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if len(both) > 2:
        raise argparse.ArgumentTypeError(f"{text!r} is more than two instants")
    return both[0], both[-1]


def _two_ranks(text):
    parts = text.split(",")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is no two ranks, as in 0,1")
    return int(parts[0]), int(parts[1])


def _memory(text):
    from memlab import phantom

    try:
        return phantom.parse_memory(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _index(text):
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no index of a GPU: 0, 1, ...")
    return int(text)


def _rank(text):
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of a rank: 0, 1, ...")
    return int(text)


def _instant(text):
    from memlab._report import instant as _instant

    try:
        _instant.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _column(text):
    from memlab._lines import lines as _lines

    try:
        _lines._check_columns(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text
