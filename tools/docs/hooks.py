"""What mkdocs asks of memlab's docs: files of the repository that the site does not have, and
pages made from memlab itself."""

import functools
import json
import os
import re
import subprocess
from pathlib import Path

from mkdocs.exceptions import PluginError

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
DOCS = ROOT / "docs"
LINK = re.compile(r"\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)#\s]+)(#[^)\s]*)?\)")


def on_page_markdown(markdown, page, config, files):
    markdown = "".join(
        text if text.startswith("```") else LINK.sub(functools.partial(link, page), text)
        for text in re.split(r"(^```.*?^```$)", markdown, flags=re.M | re.S)
    )
    if "<!-- commands -->" in markdown:
        markdown = markdown.replace("<!-- commands -->", commands())
    if "<!-- schema -->" in markdown:
        markdown = markdown.replace("<!-- schema -->", schema())
    return markdown


def link(page, found):
    """A link to a file of the repository outside docs/ is its text and the file's path."""
    text, target, _ = found.groups()
    if "://" in target:
        return found[0]
    path = (DOCS / page.file.src_uri).parent.joinpath(target).resolve()
    if path.is_relative_to(DOCS) or not path.is_relative_to(ROOT):
        return found[0]
    if not path.exists():
        raise PluginError(f"{page.file.src_uri}: {target} does not exist")
    name = f"`{path.relative_to(ROOT)}`"
    return name if text.strip("`") in name else f"{text} ({name})"


def commands():
    """The help of every command, by the memlab that is built."""
    python = os.environ.get("MEMLAB_PYTHON")
    if not python:
        raise PluginError("set MEMLAB_PYTHON to a Python with memlab, as `make docs` does")
    return subprocess.run(
        [python, HERE / "command_line.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout


def schema():
    """The keys of `memlab report --json`, a table for each object."""
    whole = json.loads((ROOT / "memlab" / "report.schema.json").read_text())
    return "\n\n".join(table(name, of) for name, of in whole["$defs"].items())


def table(name, of):
    """The Markdown of the object NAME of the schema."""
    rows = [f"| `{key}` | {type_of(value)} |" for key, value in of["properties"].items()]
    return "\n".join(
        [f"## {name}", "", of.get("description", ""), "", "| key | type |", "|---|---|"] + rows
    )


def type_of(value):
    """The type of a VALUE of the schema, in words."""
    if "$ref" in value:
        name = value["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in value:
        return ", or ".join(map(type_of, value["anyOf"]))
    if "enum" in value:
        return ", ".join(f"`{json.dumps(one)}`" for one in value["enum"])
    if "const" in value:
        return f"`{json.dumps(value['const'])}`"
    kind = value.get("type", "any")
    if kind == "array":
        items = value.get("items", {})
        return f"list of {type_of(items)}" if items else "list"
    if kind == "object" and isinstance(value.get("additionalProperties"), dict):
        return f"object, of {type_of(value['additionalProperties'])}"
    return ", or ".join(kind) if isinstance(kind, list) else kind
