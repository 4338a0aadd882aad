"""Composer's checks of types hold for memlab's callbacks, whichever is imported first; on a
package that stands in for Composer, with its modules and classes."""

import subprocess
import sys

import pytest

COMPOSER = {
    "__init__.py": "from composer.core import Callback\n",
    "core/__init__.py": "from composer.core.callback import Callback\n",
    "core/callback.py": """
import abc

class Callback(abc.ABC):
    def run_event(self, event, state, logger):
        return getattr(self, event.value)(state, logger)

    def batch_end(self, state, logger):
        pass
""",
    "profiler/__init__.py": "from composer.profiler.profiler import Profiler\n",
    "profiler/profiler.py": """
from composer.core.callback import Callback

class Profiler(Callback):
    pass
""",
}

# As llm-foundry's construct_from_registry() looks at what its registry has.
CHECKS = """
def registered(constructor, kind):
    if not issubclass(constructor, kind):
        raise ValueError(f"expected {kind}, but got {type(constructor)}")
    return constructor()

callbacks = memlab.callbacks.composer
for kind in (memlab.MemorySnapshot, callbacks.MemorySnapshot, callbacks.MemoryMonitor,
             callbacks.OOMObserver, callbacks.TorchProfiler, callbacks.Profiler):
    assert issubclass(kind, composer.Callback), kind
assert isinstance(registered(memlab.MemorySnapshot, composer.Callback), composer.Callback)
assert isinstance(registered(callbacks.OOMObserver, composer.Callback), composer.Callback)
assert issubclass(callbacks.Profiler, composer.profiler.Profiler)
assert not issubclass(memlab.MemoryMonitor, composer.Callback)
print("all hold")
"""


@pytest.fixture
def run(tmp_path):
    for name, text in COMPOSER.items():
        path = tmp_path / "composer" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def run(*lines):
        program = "\n".join((f"import sys; sys.path.insert(0, {str(tmp_path)!r})", *lines))
        return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    return run


MEMLAB = "import memlab, memlab.callbacks.composer"
IMPORTS = "import composer, composer.profiler"


@pytest.mark.parametrize("order", [(MEMLAB, IMPORTS), (IMPORTS, MEMLAB)])
def test_classes_and_objects_are_callbacks_in_either_order(run, order):
    done = run(*order, CHECKS)
    assert done.stdout == "all hold\n", done.stderr


def test_who_looks_for_a_module_only_does_not_import_it(run):
    look = "import importlib.util; importlib.util.find_spec('composer.core.callback')"
    done = run(MEMLAB, look, IMPORTS, CHECKS)
    assert done.stdout == "all hold\n", done.stderr


def test_memlab_does_not_import_composer(run):
    done = run(
        "path = list(sys.meta_path)", MEMLAB, "print('composer' in sys.modules)",
        "import composer, composer.profiler; print(sys.meta_path == path)",
    )  # fmt: skip
    assert done.stdout == "False\nTrue\n", done.stderr


def test_without_composer_nothing_waits_for_it():
    program = (
        "import importlib.util, sys; path = list(sys.meta_path); import memlab; "
        "print(importlib.util.find_spec('composer') is None, sys.meta_path == path)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if done.stdout.startswith("False"):
        pytest.skip("Composer is installed here")
    assert done.stdout == "True True\n", done.stderr


def test_the_order_of_base_classes(run):
    done = run(
        IMPORTS,
        MEMLAB,
        """
class Good(memlab.MemorySnapshot, composer.Callback):
    pass

class Better(Good):
    pass

assert Good.batch_end is memlab.MemorySnapshot.batch_end is Better.batch_end
for ours in memlab.MemorySnapshot, memlab.callbacks.composer.OOMObserver:
    try:
        class Bad(composer.Callback, ours):
            pass
    except TypeError as error:
        print(error)
""",
    )
    snapshot, observer = done.stdout.splitlines()
    assert "which would record nothing" in snapshot
    assert snapshot.endswith("; write class Bad(MemorySnapshot, Callback)")
    assert observer.endswith("; write class Bad(OOMObserver, Callback)")
