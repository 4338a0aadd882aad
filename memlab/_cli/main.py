"""The command line: which command runs what."""

import contextlib
import json
import os
import signal
import sys

from memlab._errors import Error
from memlab._guard import guarded
from memlab._text import terminal


def main(argv=None) -> int:
    """Runs one command; returns the exit status: 0, 1 failed, 2 wrong usage."""
    argv = sys.argv[1:] if argv is None else list(argv)
    return guarded(lambda: _command(argv))


def _command(argv):
    if argv[:1] == ["phantom"]:
        # It takes the rest of its line as another program's.
        from memlab import phantom

        return phantom.main(argv[1:])
    from memlab._cli import options as _cli_options

    options = _cli_options.parse(argv)
    options.function = _FUNCTIONS[options.command]
    return options.function(options)


def _say(text):
    terminal.answer(text)


def _show(text):
    terminal.answer(terminal.fitted(text, sys.stdout))


def _run(options):
    from memlab._run import run as _run

    return _run.run(options)


def _lines(options):
    from memlab._run import lines as _run_lines

    if options.no_default_columns and not options.column:
        options.wrong_usage("-D/--no-default-columns leaves no column: add one with -c")
    return _run_lines.run(options)


def _report(options):
    from memlab._files import load
    from memlab._report import parts, peaks
    from memlab._report import report as _report

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
        answer = _report.report(
            recording, options.file, options.functions, options.at, found, options.source
        )
        _say(json.dumps(answer, indent=1))
        return 0
    choice = parts.choose(
        options.at,
        options.by,
        lines=options.lines,
        functions=options.functions,
        source=options.source,
    )
    notes = [*_report.file_notes(recording.file), *load.unread_notes(recording)]
    sections = list(parts.sections(recording, found, choice))
    _show_report(notes, sections, options.markdown)
    return 0


def _show_report(notes, sections, as_markdown):
    from memlab._report import parts
    from memlab._report import report as _report

    if not sections:
        notes = [*notes, _report.NOTHING]
    if as_markdown:
        from memlab._report import markdown

        _say(markdown.markdown(notes, sections).removesuffix("\n"))
        return
    from memlab._report import rich

    text = rich.coloured(notes, sections, sys.stdout)
    if text is None:
        _show(parts.joined(notes, sections).removesuffix("\n"))
    else:
        _say(text.removesuffix("\n"))


def _merge(options):
    from memlab._compare import merge as _merge

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
    from memlab._compare import diff as _diff

    at = options.at
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


def _tell(options, answer, sections):
    """Shows an ANSWER of the laboratory: as JSON, or in the words that SECTIONS makes."""
    if options.json:
        _say(json.dumps(answer, indent=1))
    else:
        _show_report([], sections(answer), as_markdown=False)
    return 0


def _replay(options):
    from memlab._lab import replay as _replay

    answer = _replay.replay(
        options.file,
        options.conf,
        options.memory,
        device=options.device,
        rank=options.rank,
    )
    return _tell(options, answer, _replay.sections)


def _explain(options):
    from memlab._lab import explain as _explain

    answer = _explain.explain(
        options.file, options.memory, device=options.device, rank=options.rank
    )
    return _tell(options, answer, _explain.sections)


def _tune(options):
    from memlab._lab import tune as _tune

    answer = _tune.tune(
        options.file, options.memory, device=options.device, rank=options.rank
    )
    return _tell(options, answer, _tune.sections)


def _view(options):
    from memlab import _core
    from memlab._files import load
    from memlab._page import page as _page
    from memlab._report import report as _report
    from memlab._text import wording

    if options.file is None:
        if options.serve:
            options.wrong_usage("--serve needs a FILE to serve")
        out = options.out or "memlab.html"
        _core.write_file(out, _page.assemble_empty())
        _say(f"Page: {out}")
        return 0
    if options.serve:
        return _serve(options.file)
    recording = load.read_recording(options.file, quiet=True)
    out = options.out or _beside(options.file, ".html")
    notes = _report.file_notes(recording.file)
    page = _page.of(recording, title=os.path.basename(options.file), notes=notes)
    _core.write_file(out, page)
    _say(f"Page: {out}")
    length = os.path.getsize(out)
    if length > _page.LONG_BYTES:
        terminal.say(
            f"memlab: the page has {wording.size(length)}, which a browser takes long to "
            f"open: memlab view --serve {options.file} needs no page",
            sys.stderr,
        )
    return 0


def _serve(source):
    from memlab._files import load
    from memlab._page import page as _page
    from memlab._report import report as _report
    from memlab._serve import serve as _serve

    recording = load.read_recording(source, quiet=True)
    server = _serve.Server(
        *_page.data_of(recording),
        title=os.path.basename(source),
        notes=_report.file_notes(recording.file),
    )
    # All that is asked for is in the server's file.
    del recording
    try:
        _say(f"Page: {server.url}\nIt is there for this machine until Ctrl-C.")
        server.run()
    except KeyboardInterrupt:
        pass
    return 0


def _top(options):
    from memlab._monitor import top as _top

    return _top.run(options)


def _convert(options):
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
    _say(f"Wrote {options.out}")
    return 0


@contextlib.contextmanager
def _leaving_nothing():
    """Where a signal would end this process, what it started, which is in sessions of its
    own, and its files go first, as after Ctrl-C."""

    def leave(number, frame):
        sys.exit(128 + number)

    caught = [
        number
        for number in (signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is signal.SIG_DFL
    ]
    for number in caught:
        signal.signal(number, leave)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, signal.SIG_DFL)


def _fit(options):
    from memlab import phantom
    from memlab._fit import answer as _fit_answer
    from memlab._fit import fit as _fit
    from memlab._fit import text as _fit_text
    from memlab._fit import vary

    words = options.words[1:] if options.words[:1] == ["--"] else options.words
    try:
        if not words:
            raise ValueError("no program given, as in memlab fit python train.py")
        if options.module:
            words = ["-m", *words]
        if options.vary is not None:
            vary.parse(options.vary)
        phantom.environment(options.gpu, options.devices, options.memory)
    except ValueError as error:
        options.wrong_usage(str(error))
    with _leaving_nothing():
        answer = _fit_answer.answer_of(
            words,
            options.gpu,
            options.devices,
            options.memory,
            options.vary,
            options.steps,
            options.timeout or _fit.TIMEOUT_SECONDS,
            tell=lambda text: terminal.say(f"memlab: {text}", sys.stderr),
        )
    if options.json:
        _say(json.dumps(answer, indent=1))
    else:
        _show(_fit_text.text(answer).removesuffix("\n"))
    return 0 if answer["fits"] else 3


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


_FUNCTIONS = {
    "run": _run,
    "lines": _lines,
    "report": _report,
    "merge": _merge,
    "diff": _diff,
    "replay": _replay,
    "tune": _tune,
    "explain": _explain,
    "view": _view,
    "top": _top,
    "convert": _convert,
    "fit": _fit,
    "backends": _backends,
}
