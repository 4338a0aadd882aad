"""The command line: memlab run, lines, report, merge, diff, view, top, convert, phantom, backends."""

import argparse
import json
import os
import sys

from memlab._errors import Error

_FILE = "a .mlab file, or a snapshot pickle of memlab or torch, gzip too"
# Options whose value is the next argument, of the commands that run a program.
_VALUES = {
    "run": ("--out", "--device", "--max-entries", "--max-file-bytes", "--stacks"),
    "lines": ("--out", "--device", "-f", "--function", "-c", "--column", "-g", "--gpu"),
}


def main(argv=None) -> int:
    """Runs one command; returns the exit status: 0, 1 failed, 2 wrong usage."""
    argv = sys.argv[1:] if argv is None else list(argv)
    if argv[:1] == ["phantom"]:
        # It takes the rest of its line as another program's.
        from memlab import phantom

        return phantom.main(argv[1:])
    return guarded(_parser().parse_args(_separate_phantom(argv)))


def guarded(options) -> int:
    """Runs the function of OPTIONS; its exit status, 1 and a sentence for an error."""
    try:
        return options.function(options)
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        text = str(error)
        if error.filename is not None and error.strerror is not None:
            text = f"{os.fsdecode(error.filename)}: {error.strerror}"
    except (Error, ValueError) as error:
        text = str(error)
    _say(f"memlab: {text}", sys.stderr)
    return 1


def _say(text, stream=None):
    from memlab import _terminal

    _terminal.say(text, stream or sys.stdout)


def _show(text):
    from memlab import _terminal

    _terminal.show(text, sys.stdout)


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
    from memlab import __version__

    parser = argparse.ArgumentParser(
        prog="memlab", description="Where the memory of a PyTorch training run goes."
    )
    parser.add_argument("--version", action="version", version=f"memlab {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run = commands.add_parser(
        "run",
        help="run a program and record its memory",
        allow_abbrev=False,
        usage="memlab run [options] [-m] program arguments...",
    )
    run.set_defaults(function=_run)
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
    _add_program(run)

    lines = commands.add_parser(
        "lines",
        help="run a program and show the memory of each line of some functions",
        allow_abbrev=False,
        usage="memlab lines -f function [options] [-m] program arguments...",
        description="Runs a program and, when it ends, by an error, Ctrl-C or SIGTERM too, "
        "writes a table of the lines of each function to its stdout, after what the program "
        "wrote there.",
    )
    lines.set_defaults(function=_lines, wrong_usage=lines.error)
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

    report = commands.add_parser(
        "report", help="what was live at the peak of a file, or at another instant"
    )
    report.set_defaults(function=_report, wrong_usage=report.error)
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

    merge = commands.add_parser(
        "merge",
        help="say which rank of several peaks highest and why, and make one file of theirs",
        description="Brings the recordings of the ranks of one run together, with their "
        "clocks aligned, and says which peaks highest and why.",
    )
    merge.set_defaults(function=_merge)
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

    _add_diff(commands)

    view = commands.add_parser(
        "view",
        help="make an HTML page of a file, or one that files can be dropped onto",
        description="Writes an HTML page that shows a recording and needs nothing else. "
        "Without FILE it is the empty page: a recording's file that is dropped onto it, or "
        "chosen there, is read by the page itself and sent nowhere.",
    )
    view.set_defaults(function=_view, wrong_usage=view.error)
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

    top = commands.add_parser(
        "top",
        help="show what a running job has allocated, live",
        description="Shows what a running job has allocated, by line, module, category or "
        "stack, live.  Only its .mlab file is read; the job sees nothing of it.",
    )
    top.set_defaults(function=_top)
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

    _add_convert(commands)

    commands.add_parser(
        "phantom",
        help="run a program on the phantom device, without recording",
        add_help=False,
    )
    backends = commands.add_parser("backends", help="say what can be recorded here")
    backends.set_defaults(function=_backends)
    return parser


def _add_diff(commands):
    diff = commands.add_parser(
        "diff",
        help="say what of one run's memory is more than of another's, and what less",
        description="Compares two runs, two steps or two ranks: what appeared, is gone, "
        "grew, shrank or moved in time, at the peak and in each phase.",
    )
    diff.set_defaults(function=_diff, wrong_usage=diff.error)
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


def _add_convert(commands):
    from memlab import _export

    convert = commands.add_parser(
        "convert",
        help="write a file in another format",
        description="Writes a file in the format that the name of the new one ends in, or "
        "that --to names.",
    )
    convert.set_defaults(function=_convert)
    convert.add_argument("file", help=_FILE)
    endings = " ".join(end for ends, *_ in _export.FORMATS.values() for end in ends)
    convert.add_argument(
        "out", help=f"file to write; its name ends in one of {endings}, or see --to"
    )
    convert.add_argument(
        "--to",
        choices=tuple(_export.FORMATS),
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
        choices=_export.TABLES,
        help="table to write, for csv, arrow and parquet (default: allocations)",
    )


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


def _instants(text):
    from memlab import _instant

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


def _index(text):
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no index of a GPU: 0, 1, ...")
    return int(text)


def _rank(text):
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of a rank: 0, 1, ...")
    return int(text)


def _instant(text):
    from memlab import _instant

    try:
        _instant.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _column(text):
    from memlab import _lines

    try:
        _lines._check_columns(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _run(options):
    from memlab import _run

    return _run.run(options)


def _lines(options):
    from memlab import _run_lines

    if options.no_default_columns and not options.column:
        options.wrong_usage("-D/--no-default-columns leaves no column: add one with -c")
    return _run_lines.run(options)


def _report(options):
    from memlab import _load, _report, _report_parts

    if options.functions and (options.by or options.at != "peak"):
        options.wrong_usage("-f is for the peak, without --by")
    if options.json and options.by:
        options.wrong_usage("--json has all tables: leave out --by")
    recording = _load.read_recording(options.file)
    found = _report.choose_devices(recording, options.device, options.rank)
    if options.at.startswith("event:") and len(found) > 1:
        options.wrong_usage(f"--at {options.at} is of one device: add --device or --rank")
    if options.json:
        answer = _report.report(
            recording, options.file, options.functions, options.at, found
        )
        _say(json.dumps(answer, indent=1))
        return 0
    choice = _report_parts.choose(
        options.at, options.by, lines=options.lines, functions=options.functions
    )
    notes = list(_report.file_notes(recording.file))
    sections = list(_report_parts.sections(recording, found, choice))
    _show_report(notes, sections, options.markdown)
    return 0


def _show_report(notes, sections, as_markdown):
    from memlab import _report, _report_parts

    if not sections:
        notes = [*notes, _report.NOTHING]
    if as_markdown:
        from memlab import _report_markdown

        _say(_report_markdown.markdown(notes, sections).removesuffix("\n"))
        return
    from memlab import _report_rich

    text = _report_rich.coloured(notes, sections, sys.stdout)
    if text is None:
        _show(_report_parts.joined(notes, sections).removesuffix("\n"))
    else:
        _say(text.removesuffix("\n"))


def _merge(options):
    from memlab import _merge

    if options.out is not None and os.path.splitext(options.out)[1] != ".pickle":
        raise Error(f"{options.out}: expected a name that ends in .pickle")
    recording = _merge.merge(options.files)
    answer = _merge.ranks(recording)
    if options.out is not None:
        recording.write_pickle(options.out, True)
    if options.json:
        _say(json.dumps(answer, indent=1))
        return 0
    _show(_merge.text(recording, answer).removesuffix("\n"))
    if options.out is not None:
        _say(f"\nWrote {options.out}")
    return 0


def _diff(options):
    from memlab import _diff

    at = options.at or _instants("peak")
    if options.after is None and at[0] == at[1] and options.ranks is None:
        options.wrong_usage(
            "name a second file, or two instants or ranks of this one: --at 3,9, --ranks 0,1"
        )
    compared = _diff.compare(
        options.before,
        options.after,
        at=at,
        ranks=options.ranks,
        device=options.device,
    )
    if options.html is not None:
        from memlab import _core

        _core.write_file(options.html, compared.page())
        _say(f"Page: {options.html}")
    elif options.json:
        _say(json.dumps(compared.answer(), indent=1))
    else:
        sections = _diff.sections(compared.answer(), options.lines)
        _show_report([], sections, options.markdown)
    return 0


def _view(options):
    from memlab import _core, _load, _page, _report

    if options.file is None:
        if options.serve:
            options.wrong_usage("--serve needs a FILE to serve")
        out = options.out or "memlab.html"
        _core.write_file(out, _page.assemble_empty())
        _say(f"Page: {out}")
        return 0
    if options.serve:
        return _serve(options.file)
    recording = _load.read_recording(options.file)
    out = options.out or _beside(options.file, ".html")
    notes = _report.file_notes(recording.file)
    page = _page.of(recording, title=os.path.basename(options.file), notes=notes)
    _core.write_file(out, page)
    _say(f"Page: {out}")
    length = os.path.getsize(out)
    if length > _page.LONG_BYTES:
        _say(
            f"memlab: the page has {_report.size(length)}, which a browser takes long to "
            f"open: memlab view --serve {options.file} needs no page",
            sys.stderr,
        )
    return 0


def _serve(source):
    from memlab import _load, _page, _report, _serve

    recording = _load.read_recording(source)
    server = _serve.Server(
        *_page.data_of(recording),
        title=os.path.basename(source),
        notes=_report.file_notes(recording.file),
    )
    # All that is asked for is in the server's file.
    del recording
    _say(f"Page: {server.url}\nIt is there for this machine until Ctrl-C.")
    try:
        server.run()
    except KeyboardInterrupt:
        pass
    return 0


def _top(options):
    from memlab import _top

    return _top.run(options)


def _convert(options):
    from memlab import _export, _load

    # Before a long file is read.
    to = options.to or _export.format_of(options.out)
    recording = _load.read_recording(options.file)
    _export.convert(
        recording,
        options.out,
        to,
        device=options.device,
        table=options.table,
        title=os.path.basename(options.file),
    )
    _say(f"Wrote {options.out}")
    return 0


def _backends(options):
    from memlab import backends

    for name, state in backends().items():
        word = "yes" if state["available"] else "no "
        _show(f"{name:8} {word}  {state['reason']}".rstrip())
    return 0


def _beside(path, ending):
    for known in (".gz", ".pickle", ".pkl", ".mlab"):
        path = path.removesuffix(known)
    return path + ending
