"""How long `memlab merge` of many ranks takes, and its memory.

    torchrun --nproc-per-node 8 -m memlab run --out out tests/programs/planted.py 2300
    python bench/survey.py out [--ranks 8 64 1024] [--jobs N]

The ranks are copies of the eight recordings, with other numbers: the last quarter are those of the
last stage, the others that of rank 0, but for one each of the three ranks with a planted
difference.  A copy is there as long as it is read.
"""

import argparse
import concurrent.futures
import os
import re
import resource
import struct
import tempfile
import time

import memlab

# In the header of a file: the rank, and the number of all (docs/FORMAT.md).
RANK_AT = 184
PLANTED = (1, 3, 5)


def sources(count):
    """Of each of COUNT ranks, which of the eight it is a copy of."""
    found = [0] * (3 * count // 4) + [6] * (count - 3 * count // 4)
    for i, rank in enumerate(PLANTED):
        found[3 * count // 4 * (i + 1) // 4] = rank
    return found


class Making(concurrent.futures.ThreadPoolExecutor):
    """Threads that make each rank's file before they read it, and remove it after."""

    def __init__(self, jobs, folder, count):
        super().__init__(jobs)
        self.folder, self.of = folder, sources(count)

    def submit(self, call, path):
        return super().submit(self._made, call, path)

    def _made(self, call, path):
        rank = int(re.search(r"rank(\d+)", os.path.basename(path))[1])
        with open(f"{self.folder}/rank{self.of[rank]}.mlab", "rb") as file:
            content = bytearray(file.read())
        struct.pack_into("<II", content, RANK_AT, rank, len(self.of))
        with open(path, "wb") as file:
            file.write(content)
        del content
        try:
            return call(path)
        finally:
            os.unlink(path)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", help="with rank0.mlab to rank7.mlab")
    parser.add_argument("--ranks", nargs="+", type=int, default=[8, 64, 1024])
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    print("ranks    wall s   s a rank    user s   MiB", flush=True)
    for count in options.ranks:
        with tempfile.TemporaryDirectory(dir="/dev/shm") as place:
            began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
            names = [f"{place}/rank{rank}.mlab" for rank in range(count)]
            with Making(options.jobs, options.folder, count) as executor:
                answer = memlab.survey(names, executor=executor)
        wall, use = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
        user = use.ru_utime - before.ru_utime
        print(
            f"{count:5} {wall:9.2f} {wall / count:10.3f} {user:9.2f} {use.ru_maxrss >> 10:5}",
            flush=True,
        )
    print(f"\n{answer}")


if __name__ == "__main__":
    main()
