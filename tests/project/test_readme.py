"""README's examples do what README says: each Python block runs, each command exists."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()

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
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def without_trailing_blanks(text):
    return "\n".join(line.rstrip() for line in text.strip().splitlines())


def shown_by(block):
    """What README shows as printed by BLOCK, or None."""
    after = README.split(f"```python\n{block}```\n\n", 1)[1]
    shown = re.match(r"```text\n(.*?)```", after, re.S)
    return shown and shown[1]


def is_test(block):
    return block.startswith("def test_")


@pytest.mark.cuda
@pytest.mark.parametrize("block", [b for b in blocks("python") if not is_test(b)])
def test_python_examples_run(block, phantom_run, tmp_path):
    if shown := shown_by(block):
        printed = phantom_run(block).stdout
        assert without_trailing_blanks(printed) == without_trailing_blanks(shown)
        return
    done = phantom_run(TRAIN + block)
    assert list(tmp_path.rglob("*.pickle")), done.stdout


# A program that runs README's test, first to write its baseline.
RUNS_TESTS = """
import sys
from pathlib import Path
import pytest

Path("test_example.py").write_text({tests!r})
options = ["-q", "-p", "no:cacheprovider", "-p", "pytest_memlab", "test_example.py"]
sys.exit(pytest.main([*options, "--memory-update"]) or pytest.main(options))
"""


@pytest.mark.cuda
def test_the_example_of_a_test_passes(phantom_run, tmp_path):
    (block,) = filter(is_test, blocks("python"))
    done = phantom_run(RUNS_TESTS.format(tests=TRAIN + "\n\n" + block))
    assert done.stdout.count("1 passed") == 2
    (baseline,) = tmp_path.rglob("memory_baselines.json")
    assert '::training"' in baseline.read_text()


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


def test_linked_files_exist():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        if "://" not in target:
            assert (ROOT / target).exists(), target
