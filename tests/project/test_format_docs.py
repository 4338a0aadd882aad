"""docs/FORMAT.md's tables of numbers are the lists in the sources, line for line."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = (ROOT / "docs" / "FORMAT.md").read_text()

#: Each table's list, the file that has it, and its rows.
TABLES = re.findall(
    r"`((?:ML|ml)_\w+)` in `(csrc/\S+)`[^\n]*:\n\n\|[^\n]*\|\n\|[-|]*\|\n((?:\|.*\n)+)",
    DOCS,
)

#: Tables of enums and flags; lists XX(name, number, text) are found in the sources.
OTHERS = {
    "ML_EVENT_",
    "ML_KEY_",
    "ml_block_state",
    "ml_context",
    "ml_mlab_chunk",
    "ml_mlab_control",
    "ml_mlab_definition",
    "ml_mlab_state",
}


def numbers_of(text, name):
    """{number: name or text} of the list NAME in TEXT, a file in C."""
    if name.endswith("_"):
        found = re.findall(rf"^#define {name}(\w+) 0x(\w+)u", text, re.M)
        return {int(number, 16): each.lower() for each, number in found}
    if name.startswith("ML_"):
        body = re.search(rf"^#define {name}\(XX\)((?:.*\\\n)*.*)", text, re.M)[1]
        found = re.findall(r'XX\(\w+, (\d+),[\s\\]*"(.*?)"\)', body)
        assert len(found) == body.count("XX(")
        return {int(number): each for number, each in found}
    body = re.search(rf"^enum {name} \{{\n(.*?)^\}};", text, re.M | re.S)[1]
    entries = re.findall(r"^    (ML_\w+)(?: = (\d+))?\b", body, re.M)
    assert all(number for _, number in entries), f"{name} leaves a number to its place"
    # What enumerators share is the prefix.
    names = [each for each, _ in entries]
    shared = next(
        prefix
        for prefix in ("ML_MLAB_", "ML_BLOCK_", "ML_CONTEXT_")
        if all(each.startswith(prefix) for each in names)
    )
    return {int(n): each.removeprefix(shared).lower() for each, n in entries}


def numbers_told(rows):
    told = {}
    for row in rows.splitlines():
        cells = [cell.strip().strip("`") for cell in row.strip("|").split("|")]
        number, name = cells[:2]
        assert int(number) not in told
        told[int(number)] = name
    return told


@pytest.mark.parametrize("name, path, rows", TABLES, ids=[each[0] for each in TABLES])
def test_a_table_is_the_list_in_the_sources(name, path, rows):
    assert numbers_told(rows) == numbers_of((ROOT / path).read_text(), name)


def test_every_list_has_a_table():
    """And says to the compiler that its numbers are whole."""
    texts = [path.read_text() for path in (ROOT / "csrc" / "core").rglob("*.[ch]")]
    text = "\n".join(texts)
    lists = r"^#define (ML_\w+)\(XX\) \\\n +XX\(\w+, \d+,"
    numbered = set(re.findall(lists, text, re.M))
    asserted = re.findall(r"_Static_assert\(ML_IS_NUMBERED\((\w+),", text)
    assert sorted(asserted) == sorted(numbered)
    assert {name for name, _, _ in TABLES} == numbered | OTHERS
