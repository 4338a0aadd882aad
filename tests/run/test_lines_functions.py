"""Which functions `memlab lines` takes: by which names, of which modules."""

from lines_programs import LAYERS, ONE, SMALL, SMALL_TABLE, tables, told


def test_twin_names_in_two_modules(lines, write):
    one = "import torch\ndef work():\n    return torch.empty(256)\n"
    write(one=one, two=one.replace("256", "512"),
          program="import one, two\ndef work():\n    return None\n"
          "one.work(); two.work(); work()\n")
    done = lines("-f", "two:work", *ONE, "program.py")
    second = {"def work():": ["0.00B"], "return torch.empty(512)": ["2.00K"]}
    assert tables(done.stdout) == {"two:work": second}
    done = lines("-f", "one:work", "-f", "two:work", "-f", "__main__:work", *ONE,
                 "program.py")
    assert tables(done.stdout) == {
        "one:work": {"def work():": ["0.00B"], "return torch.empty(256)": ["1.00K"]},
        "two:work": second,
        "__main__:work": {"def work():": ["0.00B"], "return None": ["0.00B"]},
    }


def test_forms_of_a_name_of_the_program(lines, write):
    write(program=SMALL + "work()\n")
    for name in "work", ":work", "program.py:work", "program:work", "__main__:work":
        done = lines("-f", name, *ONE, "program.py")
        assert tables(done.stdout) == {name: SMALL_TABLE}, name


def test_modules_are_imported_when_the_program_does(lines, write):
    """A late one is profiled from its first call, and one that nobody imports stays out."""
    write(
        late="import torch\ndef work(count):\n    return torch.empty(count)\nwork(256)\n",
        never="print('IMPORTED')\ndef work():\n    pass\n",
        program="import sys\nprint('late' in sys.modules, 'never' in sys.modules)\n"
        "def main():\n    import late\n    late.work(512)\nmain()\n"
        "print('never' in sys.modules)\n",
    )
    done = lines("-f", "late:work", "-f", "never:work", "--device", "cpu", "-D", "-c",
                 "delta", "-c", "calls", "program.py")
    assert done.returncode == 0
    assert done.stdout.startswith("False False\nFalse\n\n## late:work")
    # That which the module itself made while it was imported counts too.
    assert tables(done.stdout, 2) == {
        "late:work": {"def work(count):": ["0.00B", "2"],
                      "return torch.empty(count)": ["3.00K", "2"]}
    }
    assert told(done) == ["memlab: no lines of never:work: no module never was imported"]


def test_functions_that_their_module_has_from_elsewhere(lines, write):
    """Re-exported under another name, inherited, decorated by what hides it, made by a
    call, of a class, and static."""
    write(
        base="import torch\n"
        "def work():\n    return torch.empty(256)\n"
        "class Base:\n    def step(self):\n        return torch.empty(512)\n"
        "def make():\n    def made():\n        return torch.empty(1024)\n    return made\n",
        model="import torch\nfrom base import Base, make, work as alias\n"
        "class Net(Base):\n"
        "    @classmethod\n    def of(cls):\n        return torch.empty(2048)\n"
        "    @staticmethod\n    def free():\n        return torch.empty(4096)\n"
        "    @property\n    def size(self):\n        return torch.empty(8192)\n"
        "def hide(f):\n    return lambda: f()\n"
        "@hide\ndef hidden():\n    return torch.empty(16384)\n"
        "made = make()\n",
        program="import model\nnet = model.Net()\n"
        "model.alias(); net.step(); model.made(); net.of(); net.free(); net.size\n"
        "model.hidden()\n",
    )
    names = ["alias", "Net.step", "made", "Net.of", "Net.free", "Net.size", "hidden"]
    named = [part for name in names for part in ("-f", f"model:{name}")]
    done = lines(*named, *ONE, "program.py")
    assert told(done) == []
    found = tables(done.stdout)
    assert list(found) == [f"model:{name}" for name in names]
    assert [list(rows.values())[-1] for rows in found.values()] == [
        [f"{n}.00K"] for n in (1, 2, 4, 8, 16, 32, 64)
    ]


def test_one_function_by_two_names(lines, write):
    write({"pkg/__init__": "from .impl import work\n", "pkg/impl": SMALL},
          program="import pkg\npkg.work()\n")
    done = lines("-f", "pkg:work", "-f", "pkg.impl:work", *ONE, "program.py")
    assert tables(done.stdout) == {"pkg.impl:work": SMALL_TABLE}
    assert told(done) == ["memlab: pkg:work is the same as pkg.impl:work"]


def test_a_module_that_its_loader_compiles_by_itself(lines, write):
    """As pytest's do, which rewrites asserts: there is no code to be seen before it runs."""
    write(
        tested=SMALL,
        program="""\
import ast, importlib.abc, importlib.util, sys

class Loader(importlib.abc.Loader):
    def exec_module(self, module):
        with open("tested.py") as file:
            tree = ast.parse(file.read())
        exec(compile(tree, "tested.py", "exec"), module.__dict__)

class Finder(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "tested":
            return importlib.util.spec_from_loader(name, Loader())

sys.meta_path.insert(0, Finder())
import tested
tested.work()
""",
    )
    done = lines("-f", "tested:work", *ONE, "program.py")
    assert tables(done.stdout) == {"tested:work": SMALL_TABLE}


def test_a_module_that_the_program_loads_by_hand(lines, write):
    write(plugin=SMALL, program="""\
import importlib.util
spec = importlib.util.spec_from_file_location("tools.plugin", "plugin.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
module.work()
""")
    done = lines("-f", "tools.plugin:work", *ONE, "program.py")
    assert tables(done.stdout) == {"tools.plugin:work": SMALL_TABLE}


def test_names_that_are_wrong(lines, write):
    """Each is said in one line with what is near, and the exit status stays."""
    write(
        {"pkg/__init__": "", "pkg/layers": LAYERS},
        program="import pkg.layers, sys\nfrom pkg.layers import Block, widen\n"
        "def train():\n    pass\ndef unused():\n    pass\nclass Net:\n"
        "    def forward(self):\n        pass\n"
        "double = lambda x: 2 * x\ntrain()\nsys.exit(5)\n",
    )
    wrong = {
        "trian": "no such function in the program; is it train?",
        "Net": "no such function in the program; is it Net.forward?",
        "unused": "it never ran in this process",
        # Code bears the name that it was written under.
        "double": "no such function in the program; is it <lambda>?",
        "widen": "it is of another module than the program; is it pkg.layers:widen?",
        "pkg.layers.Block.forward": "it is of another module than the program; is it "
            "pkg.layers:Block.forward?",
        "pkg.layers:Block.foward":
            "no such function in module pkg.layers; is it pkg.layers:Block.forward?",
        "pkg.layers:Block": "no such function in module pkg.layers; is it "
            "pkg.layers:Block.forward?",
        "layers:widen": "no module layers was imported; is it pkg.layers:widen?",
        "pkg.layer:widen": "no module pkg.layer was imported; is it pkg.layers:widen?",
        "nowhere:f": "no module nowhere was imported",
    }
    named = [part for name in wrong for part in ("-f", name)]
    done = lines(*named, "-f", "train", *ONE, "program.py")
    assert done.returncode == 5
    # What the program's own code does not have is said before it runs, all at its end.
    assert told(done) == [
        "memlab: trian: no such function in the program; is it train?",
        "memlab: Net: no such function in the program; is it Net.forward?",
        "memlab: double: no such function in the program",
        "memlab: widen: no such function in the program",
        "memlab: pkg.layers.Block.forward: no such function in the program",
        *(f"memlab: no lines of {name}: {why}" for name, why in wrong.items()),
    ]
    assert list(tables(done.stdout)) == ["train"]
    done = lines("-f", "trian", *ONE, "program.py")
    assert done.returncode == 5 and done.stdout == ""
