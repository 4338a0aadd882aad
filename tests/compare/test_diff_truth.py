"""memlab diff: edits of training programs, each named and nothing else."""

from pathlib import Path

import pytest
from cuda_here import KEEPS_WORKSPACES
from diff_edits_table import EDITS, NOTHING, Row
from warm import run

from memlab._compare import diff

PROGRAMS = Path(__file__).resolve().parents[1] / "programs"
MIB = 1 << 20

pytestmark = pytest.mark.cuda


def source(program):
    return (PROGRAMS / f"diff_{program}.py").read_text()


def edited(name):
    """The program after the edit NAME, and the name of its file."""
    edit = EDITS[name]
    text = source(edit.program)
    for old, new in edit.texts:
        assert text.count(old) == 1, (name, old)
        text = text.replace(old, new)
    if name == "a function moved below":
        helper = text[text.index("def make_batch") : text.index("def mixed")]
        text = text.replace(helper, "").replace("def train(", helper + "def train(")
    return text, edit.file or f"diff_{edit.program}.py"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory, device_environment):
    """A function that gives the paths of a program: as it is, by its name, or edited, by
    the edit's; all were run and recorded."""
    folder = tmp_path_factory.mktemp("edits")
    paths = {}
    for program in sorted({edit.program for edit in EDITS.values()}):
        paths[program] = folder / program / f"diff_{program}.py"
        paths[program].parent.mkdir()
        paths[program].write_text(source(program))
    for number, name in enumerate(EDITS):
        text, file = edited(name)
        paths[name] = folder / f"machine{number}" / "work" / file
        paths[name].parent.mkdir(parents=True)
        paths[name].write_text(text)
    done = run(
        PROGRAMS / "diff_edits.py", *paths.values(),
        env={**device_environment, **KEEPS_WORKSPACES}, cwd=folder,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return lambda name: paths[name]


def number_of(text, line):
    """The number of the line of TEXT in which LINE begins, which is there once."""
    assert text.count(line) == 1, line
    return text[: text.index(line)].count("\n") + 1


def expected(rows, before, after):
    """ROWS as told() has them, by the texts of the two programs."""
    for row in rows:
        text = before if row.change == "gone" else after
        yield row._replace(line=number_of(text, row.line))


def told(part):
    """The rows by line of PART; the allocator's slack is of no line."""
    for row in part["by_line"]:
        if row["line"] == 0:
            assert row["reason"] == "blocks larger than was asked for, not split"
            continue
        yield Row(
            row["line"],
            row["change"],
            row["before_bytes"] / MIB,
            row["after_bytes"] / MIB,
            row["phase"] == "backward",
        )


def check_sums(part):
    more = part["difference_bytes"]
    assert more == part["after_bytes"] - part["before_bytes"]
    if part["before"] and part["after"]:
        assert sum(part["by_category"].values()) == more
        for rows in part["by_line"], part["by_module"]:
            assert sum(row["difference_bytes"] for row in rows) == more


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_is_named_and_nothing_else(recorded, name):
    edit = EDITS[name]
    paths = recorded(edit.program), recorded(name)
    before, after = (path.read_text() for path in paths)
    answer = diff.diff(*(f"{path}.mlab" for path in paths))
    parts = {"": answer["difference"]}
    parts.update((part["phase"], part) for part in answer["difference"]["phases"])
    for part in parts.values():
        check_sums(part)
    names = dict.fromkeys(parts, ()) if edit.names == NOTHING else edit.names
    for phase, rows in names.items():
        assert sorted(told(parts[phase])) == sorted(expected(rows, before, after)), phase


@pytest.mark.parametrize("name", [n for n, e in EDITS.items() if e.names == NOTHING])
def test_the_headline_of_an_edit_that_changes_nothing(recorded, name):
    paths = recorded(EDITS[name].program), recorded(name)
    answer = diff.diff(*(f"{path}.mlab" for path in paths))
    assert diff.headline(answer).startswith("The same memory at the peak: ")


def test_a_checkpoint_moves_what_it_frees(recorded):
    """What both layers kept for backward() is freed in the forward pass, and of one layer
    at a time there again in the backward pass."""
    after = recorded("checkpoint").read_text()
    paths = recorded("attention"), recorded("checkpoint")
    answer = diff.diff(*(f"{path}.mlab" for path in paths))
    rows = {
        (row["line"], row["phase"] == "backward"): row
        for row in answer["difference"]["by_line"]
    }
    for line, before in (("h = F.gelu", 32), ("weights = scores", 16), ("scores = q", 8)):
        row = rows[number_of(after, line), False]
        assert (row["move"], row["matched_by"]) == ("freed_earlier", "order")
        assert (row["before_bytes"], row["after_bytes"]) == (before * MIB, 0)
        assert row["before_line"] == row["line"] - 1
    again = rows[number_of(after, "weights = scores"), True]
    assert again["module"] == "layers.0.attention" and again["before_bytes"] == 0
