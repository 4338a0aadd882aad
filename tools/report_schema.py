"""Writes memlab/report.schema.json, the JSON Schema of `memlab report --json`.

The shapes are those of memlab/_answers/, so that there is one place to change.

    tools/report_schema.py           # writes it
    tools/report_schema.py --check   # says whether it is as it should be
"""

import inspect
import json
import sys
import types
import typing
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from memlab import _answers  # noqa: E402

SCHEMA = ROOT / "memlab" / "report.schema.json"
_TYPES = {int: "integer", float: "number", str: "string", bool: "boolean"}


def schema_of(hint, shapes):
    """The schema of HINT; adds the schemas of its shapes to SHAPES."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if typing.is_typeddict(hint):
        if hint.__name__ not in shapes:
            shapes[hint.__name__] = {}
            shapes[hint.__name__] = _object(hint, shapes)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [schema_of(way, shapes) for way in arguments]}
    if origin is list:
        return {"type": "array", "items": schema_of(arguments[0], shapes)}
    if origin is dict:
        value = schema_of(arguments[1], shapes)
        named = {key: value for key in typing.get_args(arguments[0])}
        return {
            "type": "object",
            **({"properties": named} if named else {}),
            "additionalProperties": value,
        }
    return {"type": "null" if hint is types.NoneType else _TYPES[hint]}


def _object(shape, shapes):
    hints = typing.get_type_hints(shape)
    return {
        "type": "object",
        "description": " ".join((inspect.getdoc(shape) or "").split()),
        "required": sorted(shape.__required_keys__),
        # Keys may be added: none is forbidden.
        "properties": {key: schema_of(part, shapes) for key, part in hints.items()},
    }


def text():
    """The file's text."""
    shapes = {}
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "memlab report --json",
        "description": "docs/REPORT.md says what each key means.",
        **schema_of(_answers.Report, shapes),
        "$defs": dict(sorted(shapes.items())),
    }
    return json.dumps(schema, indent=1) + "\n"


def main():
    if sys.argv[1:] == ["--check"]:
        return SCHEMA.read_text() != text()
    SCHEMA.write_text(text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
