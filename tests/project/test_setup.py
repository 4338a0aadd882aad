"""tools/setup.sh installs the torch that was asked for, and keeps it."""

import os
import subprocess
import sys
import zipfile

import pytest
from checkout import ROOT

NEW, OLD = "2.0", "1.0"


@pytest.fixture
def index(tmp_path):
    """A folder of wheels that stands for PyPI: torch in two versions, and nothing else."""
    folder = tmp_path / "index"
    folder.mkdir()
    for version in (OLD, NEW):
        about = f"torch-{version}.dist-info"
        with zipfile.ZipFile(folder / f"torch-{version}-py3-none-any.whl", "w") as wheel:
            head = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            wheel.writestr(f"{about}/WHEEL", head)
            wheel.writestr(
                f"{about}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
            )
            wheel.writestr(f"{about}/RECORD", "")
    return folder


@pytest.mark.parametrize("where", ["environment", "configuration"])
def test_a_cap_of_pips_is_named_and_lifted_for_torch_alone(index, tmp_path, where):
    cap = tmp_path / "caps.txt"
    cap.write_text(f"other<=3\ntorch<={OLD}\ntorchvision<=4\n")
    configuration = tmp_path / "pip.conf"
    environment = {name: v for name, v in os.environ.items() if not name.startswith("PIP_")}
    environment |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PYTHON": sys.executable,
                    "PIP_CONFIG_FILE": str(configuration)}
    if where == "environment":
        configuration.touch()
        environment["PIP_CONSTRAINT"] = str(cap)
    else:
        configuration.write_text(f"[global]\nconstraint = {cap}\n")
    venv = tmp_path / "venv"
    done = subprocess.run(
        [ROOT / "tools" / "setup.sh", venv, f"torch=={NEW}"],
        env=environment, capture_output=True, text=True,
    )
    assert f"caps torch ({cap}:torch<={OLD})" in done.stdout, done.stdout + done.stderr
    # The index has no test tools; what holds for them is there.
    assert done.returncode != 0 and "[3/4]" in done.stdout and "[4/4]" not in done.stdout
    held = (venv / "memlab-setup" / "constraints").read_text().splitlines()
    assert held == ["other<=3", "torchvision<=4", f"torch=={NEW}"]
    shown = subprocess.run([venv / "bin" / "pip", "show", "torch"], env=environment,
                           capture_output=True, text=True, check=True)
    assert f"Version: {NEW}" in shown.stdout


def test_a_torch_that_is_not_there_is_said_with_the_remedy(index, tmp_path):
    environment = {name: v for name, v in os.environ.items() if not name.startswith("PIP_")}
    environment |= {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(index), "PYTHON": sys.executable,
                    "PIP_CONFIG_FILE": os.devnull}
    done = subprocess.run(
        [ROOT / "tools" / "setup.sh", tmp_path / "venv", "torch==9.9"],
        env=environment, capture_output=True, text=True,
    )
    assert done.returncode == 1
    assert "memlab: could not install torch==9.9" in done.stderr
    assert "make setup TORCH=torch==" in done.stderr
    assert not (tmp_path / "venv" / "memlab-setup" / "torch").exists()
