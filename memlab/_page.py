"""Assembles the viewer: one HTML file that needs nothing else and fetches nothing."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterable
from pathlib import Path

_ASSETS = Path(__file__).with_name("viewer")

# In the order in which each may use those before it.
_SCRIPTS = (
    "names.js",
    "model.js",
    "query.js",
    "bands.js",
    "colors.js",
    "timeline.js",
    "state.js",
    "describe.js",
    "viewer.js",
)


def _escaped(text: str) -> str:
    """JSON text that cannot end the element it sits in, whatever its strings say."""
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _source_hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def assemble(data: bytes, *, title: str = "", notes: Iterable[str] = ()) -> bytes:
    """Return the page that shows DATA, as UTF-8 bytes.

    data: the page's JSON as the core writes it, safe to sit inside a script element.
    title: shown beside the name, usually the file's name.
    notes: sentences about the recording to show above it.

    Raises ValueError if DATA holds a byte that could end its element.
    """
    if b"<" in data:
        raise ValueError("page data must have its '<' escaped: write it with the core")
    script = "\n".join((_ASSETS / name).read_text("utf-8") for name in _SCRIPTS)
    style = (_ASSETS / "viewer.css").read_text("utf-8")
    about = _escaped(json.dumps({"title": title, "notes": list(notes)}))
    policy = (
        f"default-src 'none'; script-src {_source_hash(script)}; "
        f"style-src {_source_hash(style)}; base-uri 'none'; form-action 'none'"
    )
    template = (_ASSETS / "page.html").read_text("utf-8")
    parts = {
        "CSP": policy.encode(),
        "CSS": style.encode(),
        "ABOUT": about.encode(),
        "DATA": data,
        "JS": script.encode(),
    }
    pieces = template.split("@")
    return b"".join(
        parts[piece] if i % 2 else piece.encode() for i, piece in enumerate(pieces)
    )
