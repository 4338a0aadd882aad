"""Functions named by the user before the program has loaded them.

Owns the meaning of a name on the command line, and the search for its code: in a
script, and in modules while the program imports them.  Imports no module itself.
"""

import difflib
import importlib._bootstrap
import importlib.machinery
import inspect
import os
import sys
import types

from memlab._errors import Error
from memlab._lines.lines import code_of, codes_named, functions_in


class Wanted:
    """One function of -f: its name, and its code objects."""

    def __init__(self, text, options):
        self.text = text
        self.codes = []
        self.error = None  # why the function is not profiled
        self._seen = []  # qualified names of the functions in its module
        before, colon, self.name = text.rpartition(":")
        self.module = before
        if not self.name:
            raise Error(
                f"{text!r} names no function; write module:function, module:Class.method, "
                "or a function of the program as it is"
            )
        if before.endswith(".py") and not _is(before, options.program):
            raise Error(
                f"{before} is not the program; write {self.name} for a function of "
                f"{options.program}, module:{self.name} for one of a module"
            )
        # A script is no module, but users name it like one.
        stem = os.path.splitext(os.path.basename(options.program))[0]
        own = (options.program,) if options.module else (options.program, stem)
        self.of_program = (
            before in ("", "__main__") or before.endswith(".py") or before in own
        )

    def look_in(self, code):
        """Looks for the function in the CODE of its module; returns its code objects.
        """
        found = codes_named(code, self.name)
        self.codes += found
        if not found:
            names = (name for name, _ in functions_in(code))
            self._seen += [n for n in names if not n.endswith(">")]
        return found

    def look_up(self, module):
        """Looks for the function in the loaded MODULE."""
        found = _held(module, self.name)
        self.codes += found
        return found

    def why_not(self):
        """Why there are no lines, as text, with similar names."""
        if self.codes:
            return "it never ran in this process"
        prefix = self.text[: -len(self.name)]
        modules = [sys.modules.get("__main__")] if self.of_program else []
        modules.append(sys.modules.get(self.module))
        modules = [module for module in modules if module is not None]
        if not modules:
            near = [name for name in sys.modules if name.endswith("." + self.module)]
            near += difflib.get_close_matches(self.module, sys.modules)
            return f"no module {self.module} was imported" + _or(
                f"{name}:{self.name}"
                for name in dict.fromkeys(near)
                if _held(sys.modules[name], self.name)
            )
        where = "the program" if self.of_program else f"module {self.module}"
        home = _home(modules[0], self.name)
        if self.of_program and home:
            return f"it is of another module than the program{_or([home])}"
        # Code keeps the name of its definition, whatever name it was bound to.
        held = _held(modules[0], self.name)
        near = [getattr(code, "co_qualname", code.co_name) for code in held]
        near = [name for name in near if name != self.name]
        names = self._seen + [name for module in modules for name in _names_of(module)]
        names = [name for name in dict.fromkeys(names) if name != self.name]
        near = near or [name for name in names if name.startswith(self.name + ".")][:3]
        near = near or difflib.get_close_matches(self.name, names)
        return f"no such function in {where}" + _or(prefix + name for name in near)


def _is(path, program):
    """Whether PATH means the file PROGRAM."""
    return path == os.path.basename(program) or (
        os.path.abspath(path) == os.path.abspath(program)
    )


def _held(module, name):
    """The code objects of the function NAME in the loaded MODULE."""
    outer, _, inner = name.partition(".<locals>.")
    value = module
    try:
        for part in outer.split("."):
            # getattr might import what the program never asks for.
            value = inspect.getattr_static(value, part)
        code = None if isinstance(value, type) else code_of(value)
    except Exception:
        return []
    if not isinstance(code, types.CodeType):
        return []
    return codes_named(code, inner) if inner else [code]


def _or(names):
    names = list(names)
    return f"; is it {' or '.join(names)}?" if names else ""


def _names_of(module):
    """The names of MODULE's functions, and of the methods of its classes."""
    for name, value in list(vars(module).items()):
        if isinstance(value, types.FunctionType):
            yield name
        elif isinstance(value, type):
            for method, inner in list(vars(value).items()):
                if isinstance(inner, (types.FunctionType, staticmethod, classmethod)):
                    yield f"{name}.{method}"


def _home(main, name):
    """module:function of what the program imported from a module and calls NAME, or None."""
    module, *rest = name.split(".")
    value = vars(main).get(module)
    if isinstance(value, types.ModuleType):
        while len(rest) > 1 and isinstance(vars(value).get(rest[0]), types.ModuleType):
            value = vars(value)[rest.pop(0)]
        name = ".".join(rest)
        return f"{value.__name__}:{name}" if _held(value, name) else None
    home = getattr(value, "__module__", None)
    known = isinstance(value, (types.FunctionType, type)) and isinstance(home, str)
    elsewhere = known and home not in ("__main__", vars(main).get("__name__"))
    return f"{home}:{name}" if elsewhere else None


class Finder:
    """Calls FOUND(code, name) as soon as a function's code exists, before it can run.
    Calls MISSED(wanted) for functions that are not in the program's own code.
    """

    def __init__(self, wanted, options, found, missed):
        self._wanted = wanted
        self._module = options.program if options.module else None
        self._found = found
        self._missed = missed

    def begin(self):
        """Looks among loaded modules, and from here on at every import."""
        for wanted in self._wanted:
            self._look_up(wanted)
        for loader in (
            importlib.machinery.SourceFileLoader,
            importlib.machinery.SourcelessFileLoader,
        ):
            self._watch_code(_definer(loader, "get_code"))
        self._watch_imports()

    def _watch_code(self, loader):
        """Sees a module's code before it runs, after the frame that returned it has
        ended.
        """
        original = loader.get_code

        def get_code(self, fullname):
            code = original(self, fullname)
            try:
                loading(self, fullname, code)
            except Exception:
                # The import is the program's: it must not fail because of this.
                pass
            return code

        loading = self._loading

        # Code that shortens tracebacks takes it for a part of the import system.
        get_code.__code__ = get_code.__code__.replace(
            co_filename=original.__code__.co_filename
        )
        loader.get_code = get_code

    def _watch_imports(self):
        """Sees each imported module, whatever its loader: for functions of other
        modules in it, and those without code of its own.
        """
        # There is no hook for this.  The program might notice an import that it did not
        # make, an entry in sys.meta_path, or a frame on the module's stack.
        original = getattr(importlib._bootstrap, "_verbose_message", None)
        if original is None:
            return

        def verbose_message(message, *args, verbosity=1):
            original(message, *args, verbosity=verbosity)
            if args and message.startswith("import "):
                for wanted in self._wanted:
                    if wanted.module == args[0] and not wanted.codes:
                        self._look_up(wanted)

        importlib._bootstrap._verbose_message = verbose_message

    def program(self, code):
        """The program is about to run; CODE is its code."""
        for wanted in self._wanted:
            if wanted.of_program:
                self._tell(wanted, wanted.look_in(code))
                if not wanted.codes:
                    self._missed(wanted)

    def _loading(self, loader, fullname, code):
        """The module FULLNAME is about to run."""
        if code is None:
            return
        # As runpy does: a package stands for its __main__.
        program = fullname == f"{self._module}.__main__" or (
            fullname == self._module and not loader.is_package(fullname)
        )
        if program:
            self.program(code)
        for wanted in self._wanted:
            if wanted.module == fullname and not (program and wanted.of_program):
                self._tell(wanted, wanted.look_in(code))

    def _look_up(self, wanted):
        module = sys.modules.get(wanted.module)
        if module is not None and wanted.module != "__main__":
            self._tell(wanted, wanted.look_up(module))

    def _tell(self, wanted, codes):
        for code in codes:
            try:
                self._found(code, wanted.text)
            except Exception as error:
                # The error must not reach the program, which imports a module.
                wanted.error = str(error)


def _definer(loader, method):
    return next(base for base in loader.__mro__ if method in vars(base))
