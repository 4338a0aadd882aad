"""`memlab lines`: programs run as they are, and tables of their functions, worked out by
hand.

The sizes of all tensors are multiples of 512 bytes, so that the bytes of the CPU's allocator
and of the caching allocator on the GPU, or the phantom, are the same.
"""

import os
import subprocess
import sys

import pytest
from lines_programs import LAYERS, ONE, SMALL, SMALL_TABLE, TRAIN, tables, told


def cold(*command, cwd, env=None):
    """A new process of Python, as the user's shell would start it."""
    return subprocess.run(
        [sys.executable, *map(str, command)], cwd=cwd, env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300,
    )


# ---- Figures ----


def check_train(done, reserved):
    assert done.returncode == 0 and told(done) == [], done.stderr
    # What the program printed stands before the tables.
    assert done.stdout.startswith("END OF THE PROGRAM\n\n## epilogue\n")
    cells = {
        name: {code: [row[0], *row[2:]] for code, row in rows.items()}
        for name, rows in tables(done.stdout, 4).items()
    }
    # The peak while a line ran, the bytes it left, and how often it ran.
    assert cells == {
        "epilogue": {
            "def epilogue():": ["0.00B", "0.00B", "1"],
            "return torch.empty(256, device=device)": ["1.00K", "1.00K", "1"],
        },
        "train.py:train": {
            "def train():": ["0.00B", "0.00B", "1"],
            "a = torch.empty(1024, device=device)": ["4.00K", "4.00K", "1"],
            # 4 KiB of a and, for a while, 8 KiB of wide; 2 KiB are returned.
            "b = Block()(a)": ["12.00K", "2.00K", "1"],
            "return widen(b)": ["22.00K", "16.00K", "1"],
        },
        "layers:Block.forward": {
            "def forward(self, x):": ["4.00K", "0.00B", "1"],
            "wide = torch.empty(2048, device=x.device)": ["12.00K", "8.00K", "1"],
            "del wide": ["12.00K", "-8.00K", "1"],
            "return torch.empty(512, device=x.device)": ["6.00K", "2.00K", "1"],
        },
        "layers:widen.<locals>.inner": {
            "def inner(count):": ["6.00K", "0.00B", "1"],
            "return torch.empty(count, device=x.device)": ["22.00K", "16.00K", "1"],
        },
    }
    assert list(cells) == [
        "epilogue", "train.py:train", "layers:Block.forward", "layers:widen.<locals>.inner"
    ]
    train = tables(done.stdout, 4)["train.py:train"]
    assert [row[1] for row in train.values()] == reserved


FOUR = (
    "-f", "epilogue", "-f", "train.py:train", "-f", "layers:Block.forward",
    "-f", "layers:widen.<locals>.inner", "-c", "delta", "--column", "calls",
)


def test_tables_by_hand_on_the_cpu(lines, write):
    write(train=TRAIN, layers=LAYERS)
    # Host memory has no cache: what is reserved is what is allocated.
    check_train(lines(*FOUR, "--device", "cpu", "train.py", "cpu"),
                ["0.00B", "4.00K", "12.00K", "22.00K"])


@pytest.mark.cuda
def test_tables_by_hand_on_the_gpu(lines, write, device_environment):
    write(train=TRAIN, layers=LAYERS)
    # The first segment for small blocks has 2 MiB.
    check_train(lines(*FOUR, "train.py", "cuda", env=device_environment),
                ["0.00B", "2.00M", "2.00M", "2.00M"])


def test_torchs_own_functions(lines, write):
    write(program="""\
import torch
def f():
    return torch.nn.Linear(128, 64)(torch.empty(32, 128))
f()
""")
    name = "torch.nn.modules.linear:Linear.forward"
    done = lines("-f", name, "--device", "cpu", "-D", "-c", "delta", "program.py")
    # 32 rows of 64 floats are returned.
    assert tables(done.stdout)[name]["return F.linear(input, self.weight, self.bias)"] == [
        "8.00K"
    ]
    assert told(done) == []


def test_several_runs_of_a_line(lines, write):
    """The largest figure counts, deltas and runs add up."""
    write(program="""\
import torch
kept = []
def keep(count):
    kept.append(torch.empty(count))
for count in 256, 1024, 512:
    keep(count)
""")
    done = lines("-f", "keep", "--device", "cpu", "-D", "-c", "active_bytes.all.allocated",
                 "-c", "delta", "-c", "calls", "program.py")
    assert tables(done.stdout, 3)["keep"] == {
        "def keep(count):": ["0.00B", "0.00B", "3"],
        "kept.append(torch.empty(count))": ["4.00K", "7.00K", "3"],
    }


# ---- Ends ----

ENDS = {
    "work()": 0,
    "work(); sys.exit(3)": 3,
    "work(); sys.exit('gone')": 1,
    "work(); raise ValueError('mine')": 1,
    "work(); import broken": 1,
    "work(); import failing": 1,
    "work(); 1 +": 1,
    "work(); os.kill(os.getpid(), signal.SIGINT)": -2,
    "work(); os.kill(os.getpid(), signal.SIGTERM)": -15,
}


@pytest.mark.parametrize("end", ENDS)
def test_every_end(end, lines, tmp_path, write):
    """The exit status and what stands on stderr are those of the program alone."""
    write(broken="def f(:\n", failing="import broken\n", program=f"{SMALL}{end}\n")
    # torch has no say in it: another stands for the seconds that it takes to import.
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "torch.py").write_text("def empty(count, device):\n    pass\n")
    alone = cold("program.py", cwd=tmp_path, env={"PYTHONPATH": str(tmp_path / "alone")})
    names = ["-f", "work"]
    if "import" in end:
        names += ["-f", "broken:f", "-f", "failing:f"]
    done = lines(*names, *ONE, "program.py")
    assert done.returncode == alone.returncode == ENDS[end]
    said = [s for s in done.stderr.splitlines(True) if not s.startswith("memlab:")]
    assert "".join(said) == alone.stderr
    if end.endswith("+"):
        assert done.stdout == "" and "SyntaxError" in done.stderr
    else:
        assert tables(done.stdout) == {"work": SMALL_TABLE}


@pytest.mark.parametrize("number", ["SIGINT", "SIGTERM"])
def test_a_signal_in_the_middle_of_a_function(number, lines, write):
    """The line that it came in has its figures too, and what was printed is there."""
    write(program=f"""\
import os, signal, torch
def work():
    a = torch.empty(256)
    b = torch.empty(512); os.kill(os.getpid(), signal.{number})
    c = torch.empty(1024)
print("BEFORE")
work()
print("NEVER")
""")
    done = lines("-f", "work", *ONE, "--out", "tables.txt", "program.py")
    assert done.returncode == {"SIGINT": -2, "SIGTERM": -15}[number]
    assert done.stdout.startswith("BEFORE\n\n## work\n") and "NEVER" not in done.stdout
    assert list(tables(done.stdout)["work"].values()) == [["0.00B"], ["1.00K"], ["3.00K"]]
    assert ("KeyboardInterrupt" in done.stderr) == (number == "SIGINT")


def test_forked_children_show_nothing(lines, write):
    """Workers of a DataLoader, a child that returns to the program's end, one that raises,
    and one that is terminated."""
    write(program="""\
import os, signal, torch

class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 4
    def __getitem__(self, index):
        return torch.empty(256)

def work():
    a = torch.empty(512)
    child = os.fork()
    if child == 0:
        torch.empty(4096)
        return False
    os.waitpid(child, 0)
    return True

def main():
    for batch in torch.utils.data.DataLoader(Data(), num_workers=2):
        pass
    for end in "os.kill(os.getpid(), signal.SIGTERM)", "1 / 0":
        child = os.fork()
        if child == 0:
            exec(end)
        print("CHILD", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    if work():
        print("PARENT")

if __name__ == "__main__":
    main()
""")
    done = lines("-f", "work", "-f", "Data.__getitem__", *ONE, "program.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("CHILD -15\nCHILD 1\nPARENT\n\n## work\n"), done.stdout
    assert done.stdout.count("## work") == 1
    rows = tables(done.stdout)["work"]
    assert rows["a = torch.empty(512)"] == ["2.00K"]
    assert "torch.empty(4096)" not in rows and rows["return True"] == ["2.00K"]
    assert told(done) == ["memlab: no lines of Data.__getitem__: it never ran in this process"]
    assert done.stderr.count("ZeroDivisionError") == 1


# ---- As without memlab ----

LOOK = """\
import sys
def look(name, file, spec):
    frame, depth = sys._getframe(1), 0
    while frame.f_back is not None and frame.f_code.co_name != "main":
        frame, depth = frame.f_back, depth + 1
    print(name, file, type(spec).__name__, type(spec and spec.loader).__name__,
          spec and vars(spec.loader), depth)
    print(sys.argv, sys.path, [type(f) for f in sys.meta_path], len(sys.path_hooks))
    print(sys.gettrace(), sys.getprofile(), sys.exc_info()[0], sys.excepthook)
"""


@pytest.mark.parametrize("as_module", [False, True])
def test_what_a_program_can_see(as_module, tmp_path, torch, write):
    """Of how it was started and how its modules are loaded."""
    write(
        {
            "sub/__init__": "",
            "sub/beside": "import look\nlook.look(__name__, __file__, __spec__)\n"
            "def work():\n    return 5\n",
            "sub/program": "import sys\nsys.path.append('.')\nimport look\n"
            "def main():\n    try:\n        import beside\n    except ImportError:\n"
            "        from . import beside\n"
            "    print(__name__, __spec__ and __spec__.name, __package__, __file__)\n"
            "    print(sys.modules['__main__'].__dict__ is globals(), beside.work())\n"
            "main()\n",
        },
        look=LOOK,
    )
    command = ["-m", "sub.program"] if as_module else ["sub/program.py"]
    command += ["--epochs", "-f", "3"]
    name = "sub.beside:work" if as_module else "beside:work"
    alone = cold(*command, cwd=tmp_path)
    done = cold("-m", "memlab", "lines", "-f", name, "-f", "main", *ONE, *command,
                cwd=tmp_path)
    assert alone.returncode == done.returncode == 0, alone.stderr + done.stderr
    assert len(alone.stdout.splitlines()) == 5
    assert done.stdout.startswith(alone.stdout + "\n## "), (alone.stdout, done.stdout)
    found = tables(done.stdout)
    assert list(found) == [name, "main"]
    assert found[name] == {"def work():": ["0.00B"], "return 5": ["0.00B"]}


def test_modules_as_programs(lines, write):
    """A module of a package, whose parent imports it first, and a package."""
    write({
        "pkg/__init__": "print('PARENT')\n",
        "pkg/tool": SMALL + "print('ARGS', sys.argv[1:], __name__)\nwork()\n",
        "pkg/__main__": SMALL.replace("256", "512") + "work()\n",
    })
    for name in "work", "pkg.tool:work":
        done = lines("-f", name, *ONE, "-m", "pkg.tool", "-f", "x")
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("PARENT\nARGS ['-f', 'x'] __main__\n")
        assert tables(done.stdout) == {name: SMALL_TABLE}
    for name in "work", "pkg.__main__:work":
        done = lines("-f", name, *ONE, "-m", "pkg")
        assert tables(done.stdout)[name]["return torch.empty(512, device=device)"] == [
            "2.00K"
        ]


# ---- Devices and ranks ----


@pytest.mark.cuda
def test_the_commands_of_the_readme(tmp_path, write):
    """memlab lines --phantom, and memlab phantom before it."""
    from cuda_here import has_gpu

    write(train=SMALL + "work('cuda')\nprint(torch.cuda.get_device_name())\n")
    done = cold("-m", "memlab", "lines", "--phantom", "-f", "work", "train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("NVIDIA H200\n")
    rows = list(tables(done.stdout, 2)["work"].values())
    assert rows == [["0.00B", "0.00B"], ["1.00K", "2.00M"]]
    assert "by the phantom device (h200, 140 GiB): only small results are computed" in done.stderr
    again = cold("-m", "memlab", "phantom", sys.executable, "-m", "memlab", "lines", "-f",
                 "work", "train.py", cwd=tmp_path)
    assert again.stdout == done.stdout
    if not has_gpu():
        alone = cold("-m", "memlab", "lines", "--device", "cuda", "-f", "work", "train.py",
                     cwd=tmp_path)
        assert alone.returncode == 1 and "add --phantom" in alone.stderr


@pytest.mark.cuda
def test_made_up_values_that_the_program_read_are_told(tmp_path, write):
    from cuda_here import has_gpu

    if has_gpu():
        pytest.skip("a GPU computes all values")
    write(train="import torch\ndef work():\n"
          "    return torch.ones(1 << 20, device='cuda').sum().item()\nwork()\n")
    done = cold("-m", "memlab", "lines", "--phantom", "-f", "work", "train.py", cwd=tmp_path)
    said = " ".join(done.stderr.split())
    assert "memlab: the program read 1 value that was made up" in said
    assert said.endswith("train.py:3 (1)")


@pytest.mark.cuda
@pytest.mark.parametrize(
    ("options", "variables", "most", "says"),
    [
        ([], {}, "1.00K", []),
        (["--gpu", "1"], {}, "2.00K", []),
        ([], {"LOCAL_RANK": "1"}, "2.00K", []),
        (["-g", "0"], {"LOCAL_RANK": "1"}, "1.00K", []),
        # A launcher that shows each process a GPU of its own.
        ([], {"LOCAL_RANK": "7"}, "1.00K", []),
        (["-g", "7"], {}, "0.00B", ["memlab: there is no cuda:7, the program sees 2; the "
                                    "tables show no memory"]),
    ],
)
def test_which_gpu(options, variables, most, says, lines, write, device_environment):
    from cuda_here import has_gpu

    if has_gpu():
        pytest.skip("counts the GPUs of the phantom device")
    write(program="import torch\ndef work():\n"
          "    return [torch.empty(256, device='cuda:0'), torch.empty(512, device='cuda:1')]\n"
          "work()\n")
    done = lines("-f", "work", "-D", "-c", "active_bytes.all.peak", *options, "program.py",
                 env={**device_environment, "MEMLAB_PHANTOM_DEVICES": "2"}, **variables)
    assert done.returncode == 0 and told(done) == says
    shown, _, below = done.stdout.removesuffix("\n").partition(" \n\n")
    assert list(tables(shown)["work"].values())[-1] == [most]
    # What was told when CUDA began stands below the table too.
    assert ("there is no cuda:7" in below) == bool(says) == bool(below)


def test_ranks_have_files_of_their_own(lines, write, tmp_path):
    (tmp_path / "sub").mkdir()
    write(program=SMALL + "os.chdir('/')\nwork()\n")
    for rank, name in ("0", "tables.txt"), ("1", "tables_rank1.txt"):
        done = lines("-f", "work", *ONE, "--out", "sub/tables.txt", "program.py",
                     RANK=rank)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(f"\nRank {rank}:\n\n## work\n")
        assert (tmp_path / "sub" / name).read_text() in done.stdout
        assert tables((tmp_path / "sub" / name).read_text()) == {"work": SMALL_TABLE}
    assert len(list((tmp_path / "sub").iterdir())) == 2


# ---- Bad input, and outputs that cannot be written ----


def test_wrong_usage(lines, write, tmp_path):
    """Nothing runs; one line says what is wrong and what to write."""
    write(program="print('RAN')\n")
    for args, status, says in [
        (["program.py"], 2, "required: -f/--function"),
        (["-f", "f"], 2, "required: program"),
        (["-f", "f", "-c", "bytes", "program.py"], 2, "'bytes' is not a column"),
        (["-f", "f", "-g", "one", "program.py"], 2, "'one' is not a GPU index"),
        (["-f", "f", "-D", "program.py"], 2, "leaves no column: add one with -c"),
        (["-f", "program:", "program.py"], 1, "'program:' names no function"),
        (["-f", "other.py:f", "program.py"], 1, "other.py is not the program; write f"),
        (["-f", "f", "no.py"], 1, "no.py: no such program"),
        (["-f", "f", "-m", "nosuch.part"], 1, "no module named nosuch.part"),
        (["-f", "f", "--out", "no/x.txt", "program.py"], 1, "choose another --out"),
        (["-f", "f", "--out", ".", "program.py"], 1, "choose another --out"),
        (["-f", "f", "-g", "1", "program.py"], 1, "but the memory of the CPU"),
    ]:
        done = lines("--device", "cpu", *args)
        assert done.returncode == status and says in done.stderr, (args, done.stderr)
        assert "RAN" not in done.stdout
        assert status == 2 or len(done.stderr.splitlines()) == 1, done.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"program.py"}


def test_an_output_that_cannot_show_everything(lines, write, tmp_path):
    """A source outside of the terminal's encoding, stdout closed, and a file in the way."""
    work = "import os, sys, torch\ndef work():\n    return torch.empty(256)  # \u00f6\n"
    write(program=work + "work()\n")
    done = lines("-f", "work", *ONE, "program.py", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert tables(done.stdout)["work"]["return torch.empty(256)  # \\xf6"] == ["1.00K"]
    write(program=work + "work()\nsys.stdout.close()\nsys.stdout = None\n")
    done = lines("-f", "work", *ONE, "--out", "t.txt", "program.py")
    assert (done.returncode, done.stdout, told(done)) == (0, "", [])
    assert "torch.empty(256)  # \u00f6" in (tmp_path / "t.txt").read_text(encoding="utf-8")
    write(program=work + "work()\nos.mkdir('folder.txt')\n")
    done = lines("-f", "work", *ONE, "--out", "folder.txt", "program.py")
    assert done.returncode == 0 and "1.00K" in done.stdout
    (line,) = told(done)
    assert "the tables were not written" in line and "folder.txt" in line


def test_stdout_that_the_program_exchanged(lines, write):
    """The tables come on the first one, after what was printed on the other."""
    write(program=SMALL + "sys.stdout = os.fdopen(os.dup(1), 'w')\nprint('OTHER')\nwork()\n")
    done = lines("-f", "work", *ONE, "program.py")
    assert done.stdout.startswith("OTHER\n\n## work\n")


def test_a_reader_that_goes_away(write, tmp_path, torch):
    write(program=SMALL + "work()\n")
    read, write_end = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "memlab", "lines", "-f", "work", *ONE, "program.py"],
        cwd=tmp_path, stdout=write_end, stderr=subprocess.PIPE, text=True,
    )
    os.close(write_end)
    assert (done.returncode, told(done)) == (0, [])
    assert "BrokenPipe" not in done.stderr
