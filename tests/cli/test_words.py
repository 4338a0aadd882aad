"""What the command line makes of words that people write otherwise than it asks for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def memlab(*args, cwd):
    return subprocess.run(
        [sys.executable, "-m", "memlab", *map(str, args)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize(
    "word, said",
    [
        ("rtx4909", "as a GPU: unknown GPU 'rtx4909'; did you mean rtx4090"),
        ("mi300", "as a GPU: 'mi300' is a GPU of AMD's"),
        ("train", "give the file of a script"),
    ],
)
def test_a_word_after_phantom_that_is_neither_is_told_of_both(word, said):
    from memlab._cli import main
    from memlab._errors import Error
    from memlab._run import program

    options = main.parse(["run", "--phantom", word, "train.py"])
    with pytest.raises(Error, match=f"{word}: no such program; {said}"):
        program.prepare(options)


@pytest.mark.parametrize(
    "words, parsed",
    [
        ("run --phantom rtx4090 train.py x", ("rtx4090", "train.py", ["x"])),
        ("run --phantom RTX-4090 train.py", ("RTX-4090", "train.py", [])),
        ("run --phantom train.py rtx4090", ("", "train.py", ["rtx4090"])),
        ("run --phantom auto train.py", ("auto", "train.py", [])),
        ("run --phantom python train.py", ("", "train.py", [])),
        ("run python3.11 -m pkg.train --phantom h100", (None, "pkg.train", ["--phantom", "h100"])),
        ("run --out python train.py", (None, "train.py", [])),
        ("lines -f f --phantom l4 train.py", ("l4", "train.py", [])),
    ],
)
def test_a_word_after_phantom_is_a_gpu_if_it_names_one(words, parsed, tmp_path, monkeypatch):
    from memlab._cli import main

    monkeypatch.chdir(tmp_path)
    options = main.parse(words.split())
    assert (options.phantom, options.program, options.arguments) == parsed


def test_a_program_with_the_name_of_a_gpu_is_the_program(tmp_path, monkeypatch):
    from memlab._cli import main

    monkeypatch.chdir(tmp_path)
    for name in ("h100", "python"):
        (tmp_path / name).write_text("")
        options = main.parse(["run", "--phantom", name])
        assert (options.phantom, options.program) == ("", name)


@pytest.mark.parametrize(
    "word, said",
    [
        ("reprot", "reprot is no command; did you mean report; there are run, lines,"),
        ("train.py", "is no command; did you mean memlab run train.py?"),
        ("rank0.mlab", "is no command; did you mean memlab report rank0.mlab?"),
        ("zzz", "zzz is no command; there are run, lines,"),
    ],
)
def test_what_is_no_command_is_told_what_was_meant(word, said, tmp_path):
    for name in ("train.py", "rank0.mlab"):
        (tmp_path / name).write_text("")
    done = memlab(word, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("memlab: ") and done.stderr.count("\n") == 1
    assert said in done.stderr


@pytest.mark.parametrize(
    "words, said",
    [
        ("run --phantm rtx4090 train.py", "run: error: --phantm is no option; did you mean --phantom?"),
        ("fit --gup=l4 train.py", "fit: error: --gup is no option; did you mean --gpu?"),
        ("report --jsno out", "report: error: --jsno is no option; did you mean --json?"),
        ("report --zzzzz out", "report: error: --zzzzz is no option\n"),
        ("report one two", "report: error: 'two' is one argument too many"),
    ],
)
def test_what_is_no_option_is_told_by_its_command(words, said, capsys):
    from memlab._cli import main

    with pytest.raises(SystemExit) as ended:
        main.parse(words.split())
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert said in told and told.startswith("usage: memlab")


def test_a_program_that_wants_a_gpu_is_told_of_the_phantom(tmp_path):
    from memlab._native import devices

    if devices.gpu_present():
        pytest.skip("there is a GPU here")
    program = tmp_path / "p.py"
    program.write_text("raise RuntimeError('Found no NVIDIA driver on your system.')")
    done = memlab("run", "--quiet", program, cwd=tmp_path)
    assert done.returncode == 1
    assert "memlab: no GPU here; memlab run --phantom runs" in done.stderr


def test_an_option_of_memlab_behind_the_program_is_told(tmp_path, capsys):
    from memlab._cli.fit import _say_what_is_behind

    _say_what_is_behind(["train.py", "--batch", "2", "--vary=batch=1..8"])
    assert "--vary stands behind the program, which gets it" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words, own",
    [
        ("run --out python3 train.py x", "run --out python3"),
        ("run --phantom h100 python -m pkg.train x", "run --phantom h100"),
        ("run python train.py", "run"),
    ],
)
def test_the_words_of_memlab_are_those_before_the_program(words, own, tmp_path, monkeypatch):
    """Which the line that records other processes repeats."""
    from memlab._cli import main
    from memlab._run import program

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["memlab", *words.split()])
    assert program.own_words(main.parse(words.split())) == own.split()
