"""The examples of README and of the guides of its tasks do what they say: each Python block
runs, each command exists."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_here import has_gpu, why_not_shown

ROOT = Path(__file__).resolve().parents[2]
DOCS = {
    path: (ROOT / path).read_text()
    for path in (
        "README.md",
        "docs/RECORDING.md",
        "docs/LINES.md",
        "docs/TENSORS.md",
        "docs/COURTESY.md",
    )
}

# What the examples call the program's own.
TRAIN = """
import torch

def train():
    model = torch.nn.Linear(100, 100).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(8, 100, device="cuda")).sum().backward()
    optimizer.step()
"""


def blocks(language):
    return [
        block
        for text in DOCS.values()
        for block in re.findall(rf"```{language}\n(.*?)```", text, re.S)
    ]


def without_trailing_blanks(text):
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def shown_by(block):
    """What the text behind BLOCK shows as printed by it, or None."""
    code = f"```python\n{block}```\n\n"
    after = next(t.split(code, 1)[1] for t in DOCS.values() if code in t)
    shown = re.match(r"```text\n(.*?)```", after, re.S)
    return shown and shown[1]


@pytest.mark.cuda
@pytest.mark.parametrize("block", blocks("python"))
def test_python_examples_run(block, phantom_run, tmp_path):
    if shown := shown_by(block):
        if why_not_shown():
            pytest.skip(why_not_shown())
        printed = phantom_run(block).stdout
        assert without_trailing_blanks(printed) == without_trailing_blanks(shown)
        return
    done = phantom_run(TRAIN + block)
    assert list(tmp_path.rglob("*.pickle")), done.stdout


@pytest.mark.cuda
def test_the_demo_ends_with_the_first_screen(device_environment, tmp_path):
    """As `make demo` runs it, where there is no GPU."""
    if why_not_shown():
        pytest.skip(why_not_shown())
    if has_gpu():
        pytest.skip("the screen is that of the phantom H200, and here is a GPU")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    done = subprocess.run(
        [sys.executable, "-m", "memlab", "run", "--phantom=auto", "--out", "memlab_demo",
         "examples/train_gpt.py"],
        env=device_environment, cwd=tmp_path, capture_output=True, text=True, check=True,
    )
    assert blocks("text")[0].strip() in done.stdout + done.stderr


def test_there_are_examples():
    assert len(blocks("python")) >= 2
    assert any(map(shown_by, blocks("python")))


def test_commands_are_known():
    """Each `memlab ...` line parses, and each make target exists."""
    commands = re.findall(r"^(memlab|make) (\S+)", "".join(blocks("sh")), re.M)
    assert commands
    helped = subprocess.run([sys.executable, "-m", "memlab", "--help"], cwd=ROOT,
                            capture_output=True, text=True, check=True).stdout
    makefile = (ROOT / "Makefile").read_text()
    for program, word in commands:
        if program == "memlab":
            assert re.search(rf"^\s+{word}\b", helped, re.M), word
        else:
            assert re.search(rf"^{word}:", makefile, re.M), word


@pytest.mark.parametrize(
    "path",
    [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_links_lead_somewhere(path):
    text = path.read_text()
    for target, heading in re.findall(r"\]\(([^)#]*)(?:#([^)]*))?\)", text):
        if "://" in target:
            continue
        file = path.parent / target if target else path
        assert file.exists(), target
        if heading:
            headings = re.findall(r"^#+ (.*)$", file.read_text(), re.M)
            anchors = [re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings]
            assert heading in anchors, f"{target}#{heading}"
