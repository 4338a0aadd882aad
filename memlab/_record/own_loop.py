"""memlab.MemorySnapshot.step(): the window of recording in a loop without a trainer."""

from __future__ import annotations

import os
import sys
import time

from memlab._files.times import Progress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from memlab._record.window import Window


class OwnLoop:
    """Counts the steps of a loop that reports the start of each."""

    _window: Window
    _steps: int | None = None  # number of ended steps
    _began = 0.0

    def step(self) -> None:
        """Begins a step of a training loop: call it once, before each.

            recorder = memlab.MemorySnapshot(skip_batches=10, interval="3ba")
            for batch in loader:
                recorder.step()
                train(batch)
            recorder.close()

        Arguments about batches apply to steps; interval is in "ba" or "sec".
        {run_name} is the program's name: train for train.py.  If remote_file_name is a
        URI, such as s3://bucket/folder, the files are uploaded.  close() after the loop
        writes an interval that has not passed; so does the program's end.

        The first call raises FileExistsError for a folder that has files without
        overwrite, OSError if it cannot be made, ValueError for an interval in another
        unit.  Later calls raise nothing.
        """
        window = self._window
        if self._steps is None:
            self._open(window)
            self._steps, window.ends_step = 0, True
            window.batch_start(Progress())
            return
        self._steps += 1
        if window.over:
            return
        progress = Progress(
            batch=self._steps,
            batch_in_epoch=self._steps,
            total_wct=time.monotonic() - self._began,
        )
        window.batch_end(progress)
        window.batch_start(progress)

    def _open(self, window):
        unit = window.interval.unit
        if unit not in ("ba", "sec"):
            raise ValueError(
                f"interval is in {unit}, which step() does not count; give steps, '3ba', "
                "or seconds, '90sec'"
            )
        program = os.path.splitext(os.path.basename(sys.argv[0] if sys.argv else ""))[0]
        self._began = time.monotonic()
        window.open(run_name=program or "python")
