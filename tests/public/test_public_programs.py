"""The list of public programs is in order, and its runner finds wrong promises: with a
program of its own, in a repository made here.  Programs that a package brings run here;
`make programs` runs those of repositories, too."""

import re
import subprocess
import textwrap

import ends
import programs
import pytest
import runs
import tiny_data

# Gradients of 24 MiB are live while the next forward runs.
TRAIN = """\
import torch
from torch import nn
model = nn.Sequential(*(nn.Linear(1024, 1024, bias=False) for _ in range(6))).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
for step in range(3):
    loss = model(torch.zeros(4096, 1024, device="cuda")).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
MENDED = """\
advice: gradients_late train.py:7
--- a/train.py
+++ b/train.py
@@ -7 +6,0 @@
-    optimizer.zero_grad()
@@ -9,0 +9 @@
+    optimizer.zero_grad()
"""
UNMENDED = """\
advice: gradients_late train.py:7
--- a/train.py
+++ b/train.py
@@ -9,0 +10 @@
+print("done")
"""
LIST = """
[commits]
owner/net = {commit}

[net]
repository = owner/net
script = train.py
files = train.py
"""


def git(folder, *words):
    identity = ("-c", "user.name=n", "-c", "user.email=n@example.org")
    done = subprocess.run(
        ["git", "-C", str(folder), *identity, *words], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


@pytest.fixture
def checkouts(tmp_path):
    """A folder with one repository, and beside it a list of the program in it."""
    repository = tmp_path / "checkouts" / "net"
    repository.mkdir(parents=True)
    git(repository, "init", "-q")
    (repository / "train.py").write_text(TRAIN)
    git(repository, "add", ".")
    git(repository, "commit", "-qm", "A net")
    commit = git(repository, "rev-parse", "HEAD")
    (tmp_path / "patches").mkdir()
    (tmp_path / "programs.ini").write_text(LIST.format(commit=commit))
    return tmp_path / "checkouts"


def listed(checkouts, more=""):
    path = checkouts.parent / "programs.ini"
    path.write_text(path.read_text() + textwrap.dedent(more))
    (program,) = programs.read(checkouts.parent)
    return program


def test_the_list():
    found = programs.read()
    assert len(found) >= 12
    assert len({program.name for program in found}) == len(found)
    for program in found:
        assert re.fullmatch("[0-9a-f]{40}", program.commit) or not program.repository
        assert program.repository or program.packages
        assert not program.data or hasattr(tiny_data, program.data.split()[0])
        assert program.function
        assert set(program.limited) <= set(ends.COMMANDS)
        assert bool(program.limited) == bool(program.limit)


def test_each_patch_follows_one_advice_of_a_program():
    followed = []
    for program in programs.read():
        for change in program.changes():
            # A diff or other arguments, not nothing.
            assert change.is_diff or change.arguments, change.path
            followed.append((program.name, change.kind, change.where))
    assert len(set(followed)) == len(followed)
    assert len(followed) == len(list((programs.HERE / "patches").iterdir()))


def test_what_is_missing_is_said(checkouts, tmp_path):
    program = listed(checkouts)
    assert program.left_out(checkouts) == ""
    assert "git clone https://github.com/owner/net" in program.left_out(tmp_path)
    git(checkouts / "net", "commit", "-q", "--amend", "-m", "Another")
    git(checkouts / "net", "reflog", "expire", "--expire=now", "--all")
    git(checkouts / "net", "gc", "-q", "--prune=now")
    assert "fetch origin " + program.commit in program.left_out(checkouts)
    needs = listed(checkouts, "packages = no_such_package torch\n")
    assert needs.left_out(checkouts) == "not installed: no_such_package"


def test_an_argument_that_this_torch_does_not_take_is_said(checkouts):
    profile = "torch.autograd.profiler:profile"
    assert listed(checkouts, f"passes = {profile} use_device\n").left_out(checkouts) == ""
    path = checkouts.parent / "programs.ini"
    path.write_text(path.read_text().replace("use_device", "no_such"))
    said = listed(checkouts).left_out(checkouts)
    assert said.endswith(f"does not take {profile} no_such, which it passes")


def seen(checkouts):
    *tried, last = runs.see(listed(checkouts), checkouts)
    assert last.tried == tried
    return last


@pytest.mark.cuda
def test_a_promise_that_a_patch_holds(checkouts):
    (checkouts.parent / "patches" / "net.gradients_late.patch").write_text(MENDED)
    last = seen(checkouts)
    (late,) = [item for item in last.tried if item.kind == "gradients_late"]
    assert late.where == "train.py:7" and late.wrong == []
    assert late.measured["allocated"] > 2 << 20
    assert last.problems == []


@pytest.mark.cuda
def test_a_promise_that_a_patch_breaks(checkouts):
    (checkouts.parent / "patches" / "net.gradients_late.patch").write_text(UNMENDED)
    (checkouts.parent / "patches" / "net.checkpoint.patch").write_text(
        UNMENDED.replace("gradients_late", "checkpoint")
    )
    problems = seen(checkouts).problems
    assert "gradients_late train.py:7: allocated -100.0%" in problems
    assert "net.checkpoint.patch follows no advice" in problems


@pytest.mark.cuda
def test_a_program_that_fails_is_said(checkouts):
    path = checkouts.parent / "programs.ini"
    path.write_text(path.read_text().replace("script = train.py", "script = no_such.py"))
    with pytest.raises(runs.Failed, match=r"status 1 of net:\n.*no_such.py"):
        seen(checkouts)


@pytest.mark.cuda
def test_how_a_program_ends(checkouts):
    program = listed(checkouts, "function = no_such_function\n")
    ended = ends.see(program, checkouts)
    assert ended.problems == []
    assert set(ended.status) == set(ends.COMMANDS)
    assert ended.elements == 24 << 20 and ended.right


PACKAGED = [program for program in programs.read() if not program.repository]


@pytest.mark.cuda
@pytest.mark.parametrize("program", PACKAGED, ids=lambda program: program.name)
def test_how_a_program_of_a_package_ends(program, tmp_path):
    if why := program.left_out(tmp_path):
        pytest.skip(why)
    assert ends.see(program, tmp_path).problems == []


@pytest.mark.cuda
def test_a_program_that_ends_otherwise_under_memlab_is_said(checkouts, tmp_path):
    path = checkouts / "net" / "train.py"
    path.write_text(
        "import sys\nprint('step', len(sys.argv))\n"
        "if 'memlab' in sys.modules:\n    sys.exit(3)\nprint('done')\n"
    )
    git(checkouts / "net", "commit", "-qam", "Looks for memlab")
    commit = git(checkouts / "net", "rev-parse", "HEAD")
    (tmp_path / "programs.ini").write_text(LIST.format(commit=commit))
    program = listed(checkouts, "function = main\n")
    done = {}
    for command in ("alone", "run"):
        done[command] = ends.end(program, checkouts, tmp_path / command, command)
    first, second = ends.problems_of(program, done, tmp_path)
    assert first.startswith("run: status 3:")
    assert second == "run: not printed: ['done']"


def test_a_limit_must_be_said(checkouts, tmp_path):
    program = listed(checkouts, "function = main\nlimit = alone: no memory is shared\n")
    said = ends.End(1, "", "memlab: no memory\n  is shared here\n")
    assert ends.problems_of(program, {"alone": said}, tmp_path) == []
    other = ends.End(1, "", "ValueError\n")
    (problem,) = ends.problems_of(program, {"alone": other}, tmp_path)
    assert problem == "alone: it does not end with 'no memory is shared'"


def test_the_shape_of_output(tmp_path):
    assert ends.shape(f"loss 0.5e-3\r{tmp_path}/a: nan\n\n", tmp_path) == ["/a: #", "loss #"]


def test_what_a_program_is_started_with(checkouts):
    more = "arguments = --batch 8 --fast\nenvironment = PYTHONPATH=lib WORLD_SIZE=1\n"
    program = listed(checkouts, more)
    (checkouts.parent / "patches" / "net.evaluation_batch.patch").write_text(
        "advice: evaluation_batch train.py:3\narguments: --batch=2 --parts=4\n"
    )
    (change,) = program.changes()
    assert runs.arguments(program, None) == ["--batch", "8", "--fast"]
    assert runs.arguments(program, change) == [
        "--batch", "2", "--fast", "--parts", "4",
    ]  # fmt: skip
    assert ends.words(program, "fit")[-5:] == ["--json", "train.py", "--batch", "8", "--fast"]
    variables = runs.environment(program)
    assert variables["WORLD_SIZE"] == "1"
    assert variables["PYTHONPATH"].split(":")[1] == "lib"
