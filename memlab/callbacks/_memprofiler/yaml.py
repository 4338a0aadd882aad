"""YAML that any reader accepts: of nested dicts with numbers and texts, and of dataclasses
by PyYAML, where the program uses it.
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import fields

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# Needs no quotes in YAML, unless it is a word or number there.
_PLAIN = re.compile(r"(?:[0-9]+\.)?[A-Za-z_][A-Za-z0-9_.]*")
_WORDS = {"null", "true", "false", "yes", "no", "on", "off", "y", "n"}


def to_yaml(data: Mapping[str, Any]) -> bytes:
    """DATA, nested dicts with numbers, texts and None, as YAML, sorted by keys.

    Other values are written as their text, and so are numbers that are not finite.
    """
    return "".join(f"{line}\n" for line in _lines(data, "")).encode()


def _lines(data, indent):
    for key in sorted(data) if all(isinstance(k, str) for k in data) else data:
        text = str(key)
        if not _PLAIN.fullmatch(text) or text.lower() in _WORDS:
            text = json.dumps(text)
        value = data[key]
        if isinstance(value, dict):
            yield f"{indent}{text}:" if value else f"{indent}{text}: {{}}"
            yield from _lines(value, f"{indent}  ")
        else:
            yield f"{indent}{text}: {_scalar(value)}"


def _scalar(value):
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float) and value - value == 0:
        # YAML 1.1 requires a dot before an exponent.
        text = repr(value)
        return text if "." in text else text.replace("e", ".0e")
    return json.dumps(str(value))


_DUMPERS = "SafeDumper", "Dumper", "CSafeDumper", "CDumper"


def to_safe_yaml(*kinds: type) -> None:
    """Lets PyYAML, if it is imported, write dataclasses of KINDS as plain mappings.

    Sets become sorted lists, functions their dotted paths.
    """
    yaml = sys.modules.get("yaml")
    for name in _DUMPERS:
        dumper = getattr(yaml, name, None)
        for kind in kinds if dumper is not None else ():
            if kind not in dumper.yaml_representers:
                dumper.add_representer(kind, _represent)


def _represent(dumper, data):
    return dumper.represent_dict({f.name: _plain(getattr(data, f.name)) for f in fields(data)})


def _plain(value):
    if isinstance(value, (set, frozenset)):
        return sorted(map(_plain, value))
    if isinstance(value, list | tuple):
        return list(map(_plain, value))
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if callable(value):
        name = getattr(value, "__qualname__", None)
        return f"{value.__module__}.{name}" if name else repr(value)
    return value
