"""The command line: memlab run, report, view, convert, phantom, backends."""

import argparse
import json
import os
import sys

from memlab._errors import Error, SnapshotError


def main(argv=None) -> int:
    """Runs one command; returns the exit status: 0, 1 failed, 2 wrong usage."""
    argv = sys.argv[1:] if argv is None else list(argv)
    if argv[:1] == ["phantom"]:
        # It takes the rest of its line as another program's.
        from memlab import phantom

        return phantom.main(argv[1:])
    options = _parser().parse_args(argv)
    try:
        return options.function(options)
    except (Error, SnapshotError, OSError, ValueError) as error:
        print(f"memlab: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # `memlab report ... | head`: nobody reads on, nothing is wrong.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser():
    from memlab import __version__

    parser = argparse.ArgumentParser(
        prog="memlab", description="Where the memory of a PyTorch training run goes."
    )
    parser.add_argument("--version", action="version", version=f"memlab {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="run a program and record its memory")
    run.set_defaults(function=_run)
    run.add_argument("--out", default="memlab_out", metavar="DIR",
                     help="folder for the results (default: %(default)s)")
    run.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto",
                     help="what to record (default: a GPU where there is one)")
    run.add_argument("--phantom", nargs="?", const="h200", metavar="GPU",
                     help="run on the phantom device, a stand-in for a GPU on which "
                     "results are not computed; 'auto' only where there is no GPU")
    run.add_argument("--max-entries", type=_count, default=1_000_000, metavar="N",
                     help="newest events kept for each device (default: %(default)s)")
    run.add_argument("--stacks", choices=("python", "all"), default="python",
                     help="'all' adds C++ frames, at microseconds an event")
    run.add_argument("-m", dest="module", action="store_true",
                     help="the program is the name of a module")
    run.add_argument("program", help="script to run, or module with -m")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")

    report = commands.add_parser("report", help="what was live at the peak of a file")
    report.set_defaults(function=_report)
    report.add_argument("file", help="a snapshot pickle of memlab or torch, gzip too")
    report.add_argument("--json", action="store_true", help="for machines")
    report.add_argument("--lines", type=_count, default=15, metavar="N",
                        help="rows of the table by line (default: %(default)s)")

    view = commands.add_parser("view", help="make an HTML page of a file")
    view.set_defaults(function=_view)
    view.add_argument("file", help="a snapshot pickle of memlab or torch, gzip too")
    view.add_argument("--out", metavar="FILE",
                      help="page to write (default: beside the file, ending in .html)")

    convert = commands.add_parser("convert", help="write a snapshot in another format")
    convert.set_defaults(function=_convert)
    convert.add_argument("file", help="a snapshot pickle of memlab or torch, gzip too")
    convert.add_argument("out", help="file to write: .pickle (torch's viewer reads it), "
                         ".json or .html")

    commands.add_parser(
        "phantom", help="run a program on the phantom device, without recording",
        add_help=False,
    )
    backends = commands.add_parser("backends", help="say what can be recorded here")
    backends.set_defaults(function=_backends)
    return parser


def _count(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _run(options):
    from memlab import _run

    return _run.run(options)


def _report(options):
    from memlab import _load, _report

    recording = _load.read_recording(options.file)
    if options.json:
        json.dump(_report.report(recording, options.file), sys.stdout, indent=1)
        print()
    else:
        print(_report.text(recording, lines=options.lines), end="")
    sys.stdout.flush()
    return 0


def _view(options):
    from memlab import _load

    out = options.out or _beside(options.file, ".html")
    recording = _load.read_recording(options.file)
    _write_page(recording, options.file, out)
    print(f"Page: {out}")
    return 0


def _convert(options):
    from memlab import _core, _load

    kind = os.path.splitext(options.out)[1]
    if kind not in (".pickle", ".json", ".html"):
        raise Error(f"{options.out}: expected a name that ends in .pickle, .json or .html")
    recording = _load.read_recording(options.file)
    if kind == ".pickle":
        recording.write_pickle(options.out, True)
    elif kind == ".json":
        text = json.dumps(recording.to_dict())
        _core.write_file(options.out, text.encode())
    else:
        _write_page(recording, options.file, options.out)
    print(f"Wrote {options.out}")
    return 0


def _backends(options):
    from memlab import backends

    for name, state in backends().items():
        word = "yes" if state["available"] else "no "
        print(f"{name:8} {word}  {state['reason']}".rstrip())
    return 0


def _write_page(recording, source, out):
    from memlab import _core, _page

    page = _page.assemble(recording.page_data(), title=os.path.basename(source))
    _core.write_file(out, page)


def _beside(path, ending):
    for known in (".gz", ".pickle", ".pkl"):
        path = path.removesuffix(known)
    return path + ending
