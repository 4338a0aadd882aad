"""Serves the summary of many ranks, and the page of each of them when it is asked for.

Owns which page is made when, and where those that were made are kept.
"""

from __future__ import annotations

import os
import re
import tempfile

from memlab import _core
from memlab._errors import Error
from memlab._serve import serve

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_PAGE = re.compile(r"rank(\d{1,9})\.html", re.ASCII)
# Of a rank, in which it is asked for again.
_KEPT = 32


class Server(serve.Guarded):
    """Serves SUMMARY, a page that links to pages of the name rankN.html, which MAKE(n), a
    function, gives piece by piece.  Otherwise as serve.Server.
    """

    def __init__(self, summary: bytes, make: Callable[[int], Iterator[bytes]]) -> None:
        super().__init__(_Handler)
        self._folder = tempfile.TemporaryDirectory(prefix="memlab_pages_")
        self.server.page = summary
        self.server.page_of = self._page_of
        self._make = make

    def run(self) -> None:
        """Answers requests."""
        with self._folder:
            super().run()

    def _page_of(self, rank):
        """The path of the page of RANK."""
        path = os.path.join(self._folder.name, f"rank{rank}.html")
        if not os.path.exists(path):
            _core.write_file(path, self._make(rank))
            pages = sorted(os.scandir(self._folder.name), key=lambda page: page.stat().st_mtime)
            for page in pages[:-_KEPT]:
                os.unlink(page.path)
        return path


class _Handler(serve.GuardedHandler):
    def do_GET(self):
        name = self.allowed_name()
        if name is None:
            self.refuse(403)
        elif not name:
            self.page(self.server.page)
        elif match := _PAGE.fullmatch(name):
            self._send_rank(int(match[1]))
        else:
            self.refuse(404)

    do_HEAD = do_GET

    def _send_rank(self, rank):
        try:
            path = self.server.page_of(rank)
        except (Error, OSError) as error:
            self.page(f"{error}\n".encode(), 404, "text/plain; charset=utf-8")
            return
        with open(path, "rb") as file:
            self.page(file.read())
