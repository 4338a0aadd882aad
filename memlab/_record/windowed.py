"""What every trainer's callback with a window tells of it, under the same names."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from memlab._files.times import Interval
    from memlab._record.memory_snapshot import MemorySnapshot
    from memlab._record.window import Window


class Windowed:
    """What a callback tells of its window."""

    _window: Window

    @property
    def files(self) -> list[str]:
        """The paths of the files of the last recording; empty before they are written."""
        return list(self._window.files)

    @property
    def folder(self) -> str:
        """The format string of the files' folder, as it was given."""
        return self._window.folder

    @property
    def filename(self) -> str:
        """The format string of the files' name, as it was given."""
        return self._window.filename

    @property
    def remote_file_name(self) -> str | None:
        """The format string of the uploaded files' name, as it was given."""
        return self._window.remote_file_name

    @property
    def interval(self) -> Interval:
        """How long it records: its value and its unit."""
        return self._window.interval

    @property
    def skip_batches(self) -> int:
        """The batches that end before it records."""
        return self._window.skip_batches

    @property
    def overwrite(self) -> bool:
        """Whether the folder may have files, and uploads replace existing ones."""
        return self._window.overwrite


class OfSnapshot(Windowed):
    """A callback that records by a memlab.MemorySnapshot of its own, `snapshot`."""

    snapshot: MemorySnapshot

    @property
    def _window(self) -> Window:
        return self.snapshot._window

    def close(self) -> None:
        """Writes the recording if the interval has not passed: for a program that goes on
        after an exception in its training, of which not every trainer informs callbacks.
        """
        self._window.close()
