"""Assembles the viewer: one HTML file that needs nothing else and loads nothing.

Owns the order of its parts, and its content security policy.  The core makes the head
and the blobs (docs/FORMAT.md); the viewer draws them.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from memlab._report import verdict as _verdict

TYPE_CHECKING = False
if TYPE_CHECKING:
    from memlab._core import Recording

_ASSETS = Path(__file__).parents[1] / "viewer"

# Each may use those before it.
_SCRIPTS = (
    "names.js",
    "blobs.js",
    "data.js",
    "colors.js",
    "query.js",
    "address.js",
    "describe.js",
    "header.js",
    "help.js",
    "instant.js",
    "inspector.js",
    "finder.js",
    "columns.js",
    "bands.js",
    "cached.js",
    "marks.js",
    "gestures.js",
    "viewport.js",
    "timeline.js",
    "tables.js",
    "breakdown.js",
    "tree.js",
    "layout.js",
    "treeview.js",
    "flame.js",
    "treemap.js",
    "growth.js",
    "memory.js",
    "lanes.js",
    "events.js",
    "segments.js",
    "viewer.js",
)
_STYLES = ("viewer.css", "breakdown.css")
# Runs the core on a file that is dropped onto the empty page.
_DROP_SCRIPT = "drop.js"
_DROP_STYLE = "drop.css"
_CORE = "core.wasm"
# Chromium takes 5 seconds to parse this much, 12 for twice as much, and 70 for 4 GB (2
# cores).
LONG_BYTES = 500 << 20


def _escaped(text: str) -> str:
    """JSON text that cannot end its enclosing element, whatever its strings contain."""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _source_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text("utf-8")


def _pieces(
    about: dict[str, object],
    head: bytes,
    blobs: Iterable[bytes],
    *,
    scripts: Sequence[str] = _SCRIPTS,
    styles: Sequence[str] = _STYLES,
    also_scripts: str = "",
    also: str = "",
) -> Iterator[bytes]:
    """The page, piece by piece; BLOBS are the elements after its scripts."""
    if b"<" in head:
        raise ValueError("page data must have its '<' escaped: write it with the core")
    script = "\n".join(map(_asset, scripts))
    style = "\n".join(map(_asset, styles))
    policy = (
        f"default-src 'none'; script-src {_source_hash(script)}{also_scripts}; "
        f"style-src {_source_hash(style)}; base-uri 'none'; form-action 'none'{also}"
    )
    parts: dict[str, Iterable[bytes]] = {
        "CSP": [policy.encode()],
        "CSS": [style.encode()],
        "ABOUT": [_escaped(json.dumps(about)).encode()],
        "DATA": [head],
        "JS": [script.encode()],
        "BLOBS": blobs,
    }
    for i, piece in enumerate(_asset("page.html").split("@")):
        if i % 2:
            yield from parts[piece]
        else:
            yield piece.encode()


def _element(name: str, kind: str, data: bytes) -> bytes:
    """DATA in an element that the page's scripts can read."""
    start = f'<script type="{kind}" id="{name}">'.encode()
    return b"".join((start, base64.b64encode(data), b"</script>\n"))


def _deflated(data: bytes) -> bytes:
    """DATA, compressed for a browser's DecompressionStream("deflate-raw")."""
    packer = zlib.compressobj(1, zlib.DEFLATED, -15)
    return packer.compress(data) + packer.flush()


def _elements(deflated: Iterable[bytes]) -> Iterator[bytes]:
    for number, blob in enumerate(deflated):
        yield _element(f"b{number}", "application/octet-stream", blob)


def _about(
    title: str,
    notes: Iterable[str],
    state: dict[str, object] | None = None,
    verdicts: Sequence[Sequence[str]] = (),
) -> dict[str, object]:
    about: dict[str, object] = {"title": title, "notes": list(notes)}
    if state is not None:
        about["state"] = state
    if verdicts:
        about["verdicts"] = verdicts
    return about


def verdicts_on(recording: Recording) -> list[list[str]]:
    """The verdict on each device of RECORDING, by index, in lines."""
    return [_verdict.lines(recording, i) for i in range(recording.device_count)]


def data_of(recording: Recording) -> tuple[bytes, Sequence[bytes]]:
    """The head and the blobs of RECORDING's page."""
    return recording.page_data()


def of(
    recording: Recording,
    *,
    title: str = "",
    notes: Iterable[str] = (),
    state: dict[str, object] | None = None,
) -> Iterator[bytes]:
    """The page that shows RECORDING, piece by piece; arguments as in assemble().

    state: what it shows first, in the form of its URL's hash: view, device.
    """
    # First: what it takes is given back before there are blobs.
    about = _about(title, notes, state, verdicts_on(recording))
    head, deflated = recording.page_data(_deflated)
    return _pieces(about, head, _elements(deflated))


def assemble(
    head: bytes,
    blobs: Iterable[bytes] = (),
    *,
    title: str = "",
    notes: Iterable[str] = (),
) -> bytes:
    """The page that shows HEAD and BLOBS, as UTF-8 bytes.

    head, blobs: from Recording.page_data().  title: shown beside the name, usually the
    file's name. notes: sentences about the recording, shown above it.

    Raises ValueError if HEAD contains a byte that could end its element.
    """
    elements = _elements(map(_deflated, blobs))
    return b"".join(_pieces(_about(title, notes), head, elements))


def assemble_empty() -> bytes:
    """The page that accepts a dropped recording, as UTF-8 bytes.  It reads the file
    itself, with the core as WebAssembly, and sends it nowhere.
    """
    core = (_ASSETS / _CORE).read_bytes()
    return b"".join(
        _pieces(
            {**_about("", ()), "empty": True},
            b"null",
            [_element("core", "application/wasm", core)],
            scripts=(*_SCRIPTS, _DROP_SCRIPT),
            styles=(*_STYLES, _DROP_STYLE),
            also_scripts=" 'wasm-unsafe-eval'",
        )
    )


def served(
    head: bytes,
    offsets: Sequence[int],
    *,
    title: str = "",
    notes: Iterable[str] = (),
    verdicts: Sequence[Sequence[str]] = (),
) -> bytes:
    """assemble()'s page without the blobs, which it requests from its server: blob N is
    bytes OFFSETS[N] up to before OFFSETS[N + 1] of `blobs`, beside it.  VERDICTS: from
    verdicts_on().
    """
    about = {
        **_about(title, notes, verdicts=verdicts),
        "serve": {"offsets": list(offsets)},
    }
    return b"".join(_pieces(about, head, (), also="; connect-src 'self'"))
