"""How long `memlab merge` of many ranks takes, and its memory.

    python bench/survey.py RECORDING... [--ranks 8 64 1024] [--jobs N]

The ranks are links to the recordings in turn, but for those after the first: each of them
is one rank, spread over the others, so the first recording is what most ranks do.
"""

import argparse
import os
import subprocess
import sys
import tempfile

MEASURED = """
import resource, sys, time
import memlab
began = time.perf_counter()
answer = memlab.survey(sys.argv[1], jobs=int(sys.argv[2]))
wall = time.perf_counter() - began
use = resource.getrusage(resource.RUSAGE_SELF)
print(str(answer), file=sys.stderr)
found = sorted(item["rank"] for item in answer["unlike"])
print(f"{wall:.2f} {use.ru_utime:.2f} {use.ru_maxrss >> 10} {found}")
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recordings", nargs="+")
    parser.add_argument("--ranks", nargs="+", type=int, default=[8, 64, 1024])
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)))
    options = parser.parse_args()
    common, *others = map(os.path.abspath, options.recordings)
    print("ranks    wall s   s a rank    user s   MiB  planted ranks that are told")
    for count in options.ranks:
        planted = {count * (i + 1) // (len(others) + 1): path for i, path in enumerate(others)}
        with tempfile.TemporaryDirectory() as folder:
            for rank in range(count):
                os.symlink(planted.get(rank, common), f"{folder}/rank{rank}.mlab")
            done = subprocess.run(
                [sys.executable, "-c", MEASURED, folder, str(options.jobs)],
                capture_output=True, text=True, check=True,
            )
        wall, user, mib, found = done.stdout.split(maxsplit=3)
        told = f"{found.strip()} of {sorted(planted)}"
        print(f"{count:5} {float(wall):9.2f} {float(wall) / count:10.3f} {user:>9} {mib:>5}  {told}", flush=True)
    print("\n" + done.stderr)


if __name__ == "__main__":
    main()
