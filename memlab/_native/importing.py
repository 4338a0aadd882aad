"""What is to be done once the program has imported a module."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType
    from typing import Any


class _Importing:
    """An entry of sys.meta_path that sees the import of the module NAME, and then goes."""

    def __init__(self, name, call):
        self._name, self._call = name, call

    def find_spec(self, name, path=None, target=None):
        if name != self._name or self not in sys.meta_path:
            return None
        # Not those before it: one of them may be of this kind and ask here.
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :]
        found = (finder.find_spec(name, path, target) for finder in behind)
        spec = next((one for one in found if one is not None), None)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            spec.loader.exec_module = self._calling(spec.loader.exec_module)
        return spec

    def _calling(self, exec_module):
        def exec_and_call(module):
            exec_module(module)
            # Whoever asks for the spec alone imports nothing.
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self._call(module)

        return exec_and_call


def when_imported(name: str, call: Callable[[ModuleType], Any]) -> None:
    """Calls CALL(module) once the module NAME has been imported."""
    if name in sys.modules:
        call(sys.modules[name])
    else:
        sys.meta_path.insert(0, _Importing(name, call))
