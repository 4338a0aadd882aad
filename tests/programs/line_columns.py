"""Random functions, line by line: every field of memory_stats() as torch gives it after its
statistics were reset before the line, and as memlab.LineProfiler shows it.

    python line_columns.py SEED FUNCTIONS

Both run the same statements on an empty cache.  Prints how many figures were compared, and
the fields that were 0 all along.
"""

import random
import sys

import torch

import memlab
from memlab import _core

SIZES = (1, 300, 512, 70_000, 1 << 20, (1 << 20) + 1, 3 << 20, 11 << 20, 45 << 20, 90 << 20)


def random_statements(generator):
    """The lines of a function body, each complete in itself."""
    names, lines = [], []
    side = "torch.cuda.Stream()"
    for i in range(generator.randint(5, 25)):
        choice = generator.random()
        if choice < 0.55 or not names:
            size = generator.choice(SIZES) + generator.randint(0, 700)
            lines.append(f"x{i} = torch.empty({size}, dtype=torch.uint8, device='cuda')")
            names.append(f"x{i}")
        elif choice < 0.80:
            lines.append(f"del {names.pop(generator.randrange(len(names)))}")
        elif choice < 0.86:
            name = names.pop(generator.randrange(len(names)))
            lines.append(f"{name}.record_stream({side}); del {name}")
        elif choice < 0.92:
            size = generator.choice(SIZES)
            lines.append(f"torch.empty({size}, dtype=torch.uint8, device='cuda')")
        elif choice < 0.96:
            lines.append("torch.cuda.empty_cache()")
        else:
            lines.append("fail()")
    return lines


def fail():
    try:
        torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError:
        pass


def measured(lines):
    """By line the figures of torch, whose statistics are reset before each."""
    names, seen = {"torch": torch, "fail": fail}, []
    for line in lines:
        code = compile(line, "line", "exec")
        torch.cuda.reset_peak_memory_stats()
        torch.cuda.reset_accumulated_memory_stats()
        exec(code, names)
        # Its newest counter is of versions after 2.11.
        seen.append({"num_oom_rejections": 0, **torch.cuda.memory_stats()})
    return seen


def profiled(lines):
    """By line the figures of memlab."""
    names = {"torch": torch, "fail": fail}
    source = "def body():\n" + "".join(f"    {line}\n" for line in lines)
    exec(compile(source, "body", "exec"), names)
    profiler = memlab.LineProfiler(names["body"])
    with profiler:
        names["body"]()
    columns = tuple(_core.COLUMNS)
    rows = {row[0]: row[3] for row in profiler._rows(0, columns)}
    return [dict(zip(columns, rows[2 + i])) for i in range(len(lines))]


def main():
    generator = random.Random(int(sys.argv[1]))
    torch.cuda.init()
    compared, moved = 0, set()
    for number in range(int(sys.argv[2])):
        lines = random_statements(generator)
        torch.cuda.empty_cache()
        expected = measured(lines)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        assert torch.cuda.memory_reserved() == 0
        seen = profiled(lines)
        for i, line in enumerate(lines):
            assert set(seen[i]) == set(expected[i])
            for name, value in seen[i].items():
                assert value == expected[i][name], (
                    f"function {number}, line {i} {line!r}: {name} is "
                    f"{expected[i][name]} by torch, {value} by memlab\n" + "\n".join(lines)
                )
                compared += 1
                moved |= {name} if value else set()
    print(compared, "figures compared")
    print("zero:", *sorted(set(_core.COLUMNS) - moved))


main()
