"""`memlab view`."""

import os
import sys

from memlab._cli import kinds, telling
from memlab._errors import Error
from memlab._text import terminal


def add(commands):
    command = commands.add_parser(
        "view",
        help="make an HTML page of a recording, or an empty page to drop files onto",
        description="Writes an HTML page that shows a recording and needs no other file. "
        "Without FILE the page is empty: drop a recording onto it, or choose one there. "
        "The page reads the file itself and sends it nowhere.  Of a folder with more than "
        f"{kinds.FEW_RANKS} ranks it is a summary of all; --rank gives the page of one.",
    )
    command.set_defaults(command="view", run=run, wrong_usage=command.error)
    command.add_argument("file", nargs="?", metavar="FILE", help=kinds.FILE_OR_FOLDER)
    command.add_argument(
        "--rank",
        type=kinds.rank,
        metavar="N",
        help="of a folder, the page of this rank alone",
    )
    where = command.add_mutually_exclusive_group()
    where.add_argument(
        "--out",
        metavar="PAGE",
        help="page to write (default: beside the file, ending in .html; the empty one: "
        "memlab.html)",
    )
    where.add_argument(
        "--serve",
        action="store_true",
        help="write no page; serve it at a secret address of this machine until Ctrl-C, "
        "for recordings that are too large for one page, and for many ranks, whose summary "
        "leads to the page of each",
    )


def run(options):
    from memlab._files import merged
    from memlab._page import page as _page
    from memlab._recording import view
    from memlab._text import wording

    source = options.file
    if source is None:
        for given, name in ((options.serve, "--serve"), (options.rank is not None, "--rank")):
            if given:
                options.wrong_usage(f"{name} needs a FILE or a folder")
        files = []
    else:
        files = [*merged.files([source])]
    if options.rank is not None:
        source = merged.file_of(files, options.rank)
    elif len(files) > kinds.FEW_RANKS:
        return _many(source, files, options)
    if options.serve:
        return _serve(source)
    out = view.view(source, options.out)
    telling.say(f"Page: {out}")
    length = os.path.getsize(out)
    if length > _page.LONG_BYTES:
        terminal.say(
            f"memlab: the page has {wording.size(length)}; a browser opens it slowly.  "
            f"Faster: memlab view --serve {source}",
            sys.stderr,
        )
    return 0


def _many(source, files, options):
    """The summary of the many ranks that FILES of SOURCE are of."""
    from memlab import _core
    from memlab._compare import survey, survey_page
    from memlab._files import load, merged
    from memlab._recording import view
    from memlab._serve import ranks

    answer = survey.survey(files)
    if not options.serve:
        out = options.out or view.beside(source)
        _core.write_file(out, survey_page.page(answer, survey_page.beside(out)))
        telling.say(
            f"Page: {out}\nThe summary of {len(files):,} ranks.  One of them: memlab view "
            f"--rank N {source}; all, each when you ask for it: memlab view --serve {source}"
        )
        return 0
    of_rank = {rank["rank"]: rank["file"] for rank in answer["ranks"]}
    paths = {merged.name_of(path): path for path in files}

    def make(rank):
        if rank not in of_rank:
            raise Error(f"rank {rank} is not in {merged.name_of(source)}")
        recording = load.read_recording(paths[of_rank[rank]], True)
        return view.page_of(recording, f"rank {rank}")

    summary = survey_page.page(answer, lambda rank: f"rank{rank['rank']}.html")
    server = ranks.Server(b"".join(summary), make)
    try:
        telling.say(f"Page: {server.url}\nServed to this machine until Ctrl-C.")
        server.run()
    except KeyboardInterrupt:
        pass
    return 0


def _serve(source):
    from memlab._files import merged
    from memlab._page import page as _page
    from memlab._recording import view
    from memlab._report import report as _report
    from memlab._serve import serve as _serve

    recording = merged.read(source, quiet=True)
    server = _serve.Server(
        *_page.data_of(recording),
        title=view.title_of(source),
        notes=_report.file_notes(recording.file),
        verdicts=_page.verdicts_on(recording),
    )
    # The server's file has everything that is needed.
    del recording
    try:
        telling.say(f"Page: {server.url}\nServed to this machine until Ctrl-C.")
        server.run()
    except KeyboardInterrupt:
        pass
    return 0
