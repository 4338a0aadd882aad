"""MemProfiler's files and their folder."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

from memlab import _core
from memlab._files import names
from memlab.callbacks._memprofiler import config, fsdp_memory
from memlab.callbacks._memprofiler.yaml import to_yaml

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from memlab.callbacks._memprofiler.config import MemProfilerCfg


class Files:
    """What MemProfiler does with files."""

    module: Any
    rank: int
    memprofiler_cfg: MemProfilerCfg
    memprof_log_dir: Path | None
    memory_stats: dict[str, dict[str, Any]]
    fsdp_memory_stats: dict[tuple[str, int], dict[str, Any]]
    _lock: Any
    _dumped: int
    _part: Callable

    def init_memprof_log_dir(self) -> None:
        """Makes the folder of the files: save_dir, or else memprofiler in the trainer's
        log_dir or default_root_dir.

        Called on all ranks, once ranks are known.  Raises OSError.
        """
        self._make_folder(together=True)

    def _make_folder(self, together):
        """TOGETHER: all ranks call it."""
        folder = self.memprofiler_cfg.save_dir
        if not folder:
            trainer = getattr(self.module, "_trainer", None)
            base = None
            if together or getattr(trainer, "world_size", 1) == 1:
                # Lightning's Trainer asks rank 0, and waits for all.
                base = getattr(trainer, "log_dir", None)
            base = base or getattr(trainer, "default_root_dir", None) or os.getcwd()
            folder = Path(base) / "memprofiler"
        self.rank = config.rank()
        # The program may change its working directory.
        self.memprof_log_dir = Path(os.path.abspath(folder))
        names.make_folder(str(self.memprof_log_dir), "save_dir")

    def _folder(self):
        if self.memprof_log_dir is None:
            self._make_folder(together=False)
        return self.memprof_log_dir

    def _write(self, name, data):
        _core.write_file(os.fspath(self._folder() / name), data)

    def dump_memory_stats(self) -> None:
        """Writes the collected figures, if any: memory_stats to
        rank_<rank>_memory_stats.yaml and .pickle, by dump_memorystats_yaml and _pickle;
        fsdp_memory_stats to rank_<rank>_fsdp_memory_stats.yaml and reports.

        Raises OSError.
        """
        cfg = self.memprofiler_cfg
        with self._lock:
            stats = {key: dict(figures) for key, figures in self.memory_stats.items()}
        if stats and cfg.dump_memorystats_pickle:
            self._write(f"rank_{self.rank}_memory_stats.pickle", pickle.dumps(stats))
        if stats and cfg.dump_memorystats_yaml:
            self._write(f"rank_{self.rank}_memory_stats.yaml", to_yaml(stats))
        if self.fsdp_memory_stats:
            by_call = {f"{n}.{i}": s for (n, i), s in self.fsdp_memory_stats.items()}
            self._write(f"rank_{self.rank}_fsdp_memory_stats.yaml", to_yaml(by_call))
            self.save_fsdp_mem_reports()
        self._dumped = len(stats) + len(self.fsdp_memory_stats)

    def _dump_quietly(self):
        """Writes what was collected since the last time."""
        with self._part("its files", "look at save_dir"):
            if len(self.memory_stats) + len(self.fsdp_memory_stats) > self._dumped:
                self.dump_memory_stats()

    def save_fsdp_mem_reports(self) -> None:
        """Writes a text report of each call with tracked FSDP2 memory, to
        fsdp_mem_rank_<rank>_<function>_<number>.log.

        Raises OSError.
        """
        cfg = self.memprofiler_cfg
        for (name, number), figures in self.fsdp_memory_stats.items():
            text = fsdp_memory.report(
                figures,
                name,
                number,
                depth=cfg.fsdp_mem_track_module_depth,
                units=cfg.fsdp_mem_tracker_units,
                tabulate=cfg.fsdp_mem_tracker_tabulate,
            )
            self._write(f"fsdp_mem_rank_{self.rank}_{name}_{number}.log", text.encode())
