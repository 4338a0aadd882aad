"""pytorch_memlab.line_profiler.line_profiler."""

from __future__ import annotations

import memlab
from memlab._lines.lines import DEFAULT_COLUMNS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType

__all__ = ["DEFAULT_COLUMNS", "LineProfiler"]


class LineProfiler(memlab.LineProfiler):
    __doc__ = memlab.LineProfiler.__doc__

    # What other code takes from pytorch_memlab's, to give it to LineRecords.

    @property
    def _raw_line_records(self) -> LineProfiler:
        return self

    @property
    def _code_infos(self) -> dict[int, CodeType]:
        return {hash(code): code for _, code, _ in self._functions}
