"""The C core of memlab; csrc/py/module.c, and one file there for each type."""

from collections.abc import Sequence
from os import PathLike
from typing import Any, final

from _typeshed import ReadableBuffer

_api: object
EVENT_BYTES: int

def load(data: ReadableBuffer, /) -> Any: ...
def stats(source: str, device: int, /) -> dict[str, int]: ...
def ready(source: str, /) -> None: ...
def has_source(name: str, /) -> bool: ...
def stack_capture() -> tuple[str, str]: ...
def write_file(path: str | bytes | PathLike[str], data: ReadableBuffer, /) -> None: ...
def use_native_stacks(capsule: object, /) -> None: ...
def tag_tensors(
    snapshot: MemorySnapshot,
    tensor_type: type,
    category: str,
    tensors: Sequence[object],
    /,
) -> int: ...
def tag_owners(
    snapshot: MemorySnapshot,
    tensor_type: type,
    module_type: type,
    optimizer_type: type,
    objects: list[object],
    /,
) -> int: ...
@final
class Recording:
    @classmethod
    def from_bytes(cls, data: ReadableBuffer, /) -> Recording: ...
    def to_dict(self) -> dict[str, Any]: ...
    def write_pickle(self, path: str | bytes | PathLike[str], extras: bool, /) -> None: ...
    def peak(self, device: int, /) -> dict[str, Any]: ...
    def page_data(self) -> bytes: ...
    def counts(self, device: int, /) -> dict[str, int]: ...
    @property
    def device_count(self) -> int: ...
    @property
    def source(self) -> str: ...

class MemorySnapshot:
    @property
    def recording(self) -> bool: ...
    @property
    def waiting(self) -> bool: ...
    def _begin(
        self,
        source: str,
        max_entries: int,
        context: str | None,
        native: bool,
        events: bool,
        device: int,
    ) -> None: ...
    def _configure(
        self,
        source: str,
        max_entries: int,
        context: str | None,
        native: bool,
        events: bool,
        device: int,
    ) -> None: ...
    def _freeze(self, keys: int, /) -> Recording: ...
    def _end(self) -> None: ...
    def _clear(self) -> None: ...

@final
class Script:
    def emit(
        self,
        action: str,
        addr: int,
        size: int,
        *,
        device: int = 0,
        stream: int = 0,
        time: int = 0,
        backward: bool = False,
        pool: tuple[int, int] = (0, 0),
        metadata: str = "",
    ) -> None: ...
    def reset(self, *, max_split: int | None = None, expandable: bool = False) -> None: ...
