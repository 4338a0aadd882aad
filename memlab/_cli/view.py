"""`memlab view`."""

import os
import sys

from memlab._cli import kinds, telling
from memlab._text import terminal


def add(commands):
    command = commands.add_parser(
        "view",
        help="make an HTML page of a recording, or an empty page to drop files onto",
        description="Writes an HTML page that shows a recording and needs no other file. "
        "Without FILE the page is empty: drop a recording onto it, or choose one there. "
        "The page reads the file itself and sends it nowhere.",
    )
    command.set_defaults(command="view", run=run, wrong_usage=command.error)
    command.add_argument("file", nargs="?", metavar="FILE", help=kinds.FILE_OR_FOLDER)
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
        "for recordings that are too large for one page",
    )


def run(options):
    from memlab._page import page as _page
    from memlab._recording import view
    from memlab._text import wording

    if options.serve:
        if options.file is None:
            options.wrong_usage("--serve needs a FILE to serve")
        return _serve(options.file)
    out = view.view(options.file, options.out)
    telling.say(f"Page: {out}")
    length = os.path.getsize(out)
    if length > _page.LONG_BYTES:
        terminal.say(
            f"memlab: the page has {wording.size(length)}; a browser opens it slowly.  "
            f"Faster: memlab view --serve {options.file}",
            sys.stderr,
        )
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
