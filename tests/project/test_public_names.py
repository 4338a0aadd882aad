"""Every public name has a docstring and a signature, and stubs say what modules have."""

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

import memlab
from memlab import _core

PACKAGE = Path(memlab.__file__).parent


def public_callables():
    for name in [*memlab.__all__, "open"]:
        thing = getattr(memlab, name)
        if callable(thing):
            yield f"memlab.{name}", thing
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                if not member.startswith("_") and callable(value):
                    yield f"memlab.{name}.{member}", value


def test_all_is_what_there_is():
    for name in [*memlab.__all__, "open"]:
        assert hasattr(memlab, name)
    public = {n for n in vars(memlab) if not n.startswith("_")}
    modules = {n for n in public if inspect.ismodule(getattr(memlab, n))}
    # `from memlab import *` leaves the builtin open as it is.
    assert public - modules == {*memlab.__all__, "open"}


def test_the_stub_of_memlab_names_the_files_that_are_read():
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text())
    stub = {
        alias.name: getattr(importlib.import_module(node.module), alias.name)
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    stub["load_ipython_extension"] = memlab.load_ipython_extension
    (listed,) = (node.value for node in tree.body if isinstance(node, ast.Assign))
    assert set(ast.literal_eval(listed)) == set(memlab.__all__)
    assert set(memlab.__all__) <= set(stub)
    assert {name: getattr(memlab, name) for name in stub} == stub


def test_a_name_that_memlab_lacks_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'memlab' has no attribute 'peek'"):
        memlab.peek


def test_importing_memlab_reads_little_of_it():
    program = "import sys, memlab; print(*(n for n in sys.modules if n.split('.')[0] == 'memlab'))"
    loaded = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert set(loaded.split()) == {
        *("memlab", "memlab._core", "memlab._errors", "memlab._version")
    }


@pytest.mark.parametrize(("name", "thing"), list(public_callables()))
def test_public_names_are_typed(name, thing):
    if inspect.isclass(thing) and issubclass(thing, BaseException):
        return
    signature = inspect.signature(thing)
    bare = [
        p.name
        for p in signature.parameters.values()
        if p.annotation is p.empty and p.name != "self"
    ]
    assert bare == []
    assert inspect.isclass(thing) or signature.return_annotation is not signature.empty


@pytest.mark.parametrize(("name", "thing"), list(public_callables()))
def test_public_names_are_documented(name, thing):
    assert inspect.getdoc(thing), name
    if not (inspect.isclass(thing) and issubclass(thing, BaseException)):
        inspect.signature(thing)


def core_members():
    for name, thing in vars(_core).items():
        if callable(thing) and not name.startswith("__"):
            yield name, thing
            if inspect.isclass(thing):
                for member, value in vars(thing).items():
                    if not member.startswith("__") and callable(value):
                        yield f"{name}.{member}", value


@pytest.mark.parametrize(("name", "thing"), list(core_members()))
def test_core_names_are_documented(name, thing):
    assert inspect.getdoc(thing), name
    if not inspect.isclass(thing):
        inspect.signature(thing)


def parameters_of(node):
    arguments = node.args
    listed = arguments.posonlyargs + arguments.args + arguments.kwonlyargs
    names = [a.arg for a in [*listed, *filter(None, [arguments.vararg])]]
    return [name for name in names if name not in ("self", "cls")]


def is_alias(node):
    """Whether NODE names a type for the stub's own use."""
    return ast.unparse(node.annotation) == "TypeAlias"


def test_the_core_stub_is_the_core():
    """Same names, same parameters, in both directions."""
    tree = ast.parse((PACKAGE / "_core.pyi").read_text())
    stub = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            stub[node.name] = parameters_of(node)
        elif isinstance(node, ast.ClassDef):
            stub[node.name] = None
            for member in node.body:
                if isinstance(member, ast.FunctionDef) and member.name[:2] != "__":
                    decorators = [getattr(d, "id", "") for d in member.decorator_list]
                    value = None if "property" in decorators else parameters_of(member)
                    stub[f"{node.name}.{member.name}"] = value
        elif isinstance(node, ast.AnnAssign) and not is_alias(node):
            stub[node.target.id] = None
    live = {}
    for name, thing in vars(_core).items():
        if name.startswith("__"):
            continue
        live[name] = None
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                if member.startswith("__"):
                    continue
                live[f"{name}.{member}"] = None
                if callable(value) or isinstance(value, classmethod):
                    signature = inspect.signature(getattr(thing, member))
                    live[f"{name}.{member}"] = [
                        p for p in signature.parameters if p not in ("self", "type")
                    ]
        elif callable(thing):
            signature = inspect.signature(thing)
            live[name] = [p for p in signature.parameters if p != "module"]
    assert set(stub) == set(live)
    for name, parameters in stub.items():
        if parameters is not None:
            assert parameters == live[name], name


def test_no_file_takes_a_public_name_of_memlab_itself():
    """Which would be a circle that tools/rooms.ini cannot tell from one to memlab._core."""
    others = {"_core", *(path.stem for path in PACKAGE.iterdir())}
    taken = [
        (path.relative_to(PACKAGE), alias.name)
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in ("compat", "_bridge_src")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "memlab"
        for alias in node.names
        if alias.name not in others
    ]
    assert taken == []
