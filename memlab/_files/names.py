"""File names of trainers' callbacks: ranks, format strings, folders, names in a bucket.

Owns the meaning of `{run_name}/torch_traces/rank{rank}.{batch}`, as defined by
Composer.
"""

from __future__ import annotations

import os
import re
import string
import sys
import time

from memlab._errors import tell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from memlab._files.times import Progress

_RANKS = {
    # name: (environment variable, value if torch.distributed is not initialised)
    "rank": ("RANK", 0),
    "local_rank": ("LOCAL_RANK", 0),
    "world_size": ("WORLD_SIZE", 1),
    "local_world_size": ("LOCAL_WORLD_SIZE", 1),
    "node_rank": ("NODE_RANK", 0),
}

# Of a task that Slurm's srun started without another launcher.
_TASKS = {
    "rank": "SLURM_PROCID",
    "local_rank": "SLURM_LOCALID",
    "world_size": "SLURM_STEP_NUM_TASKS",
    "node_rank": "SLURM_NODEID",
}

_TIMES = (
    "epoch",
    "batch",
    "batch_in_epoch",
    "sample",
    "sample_in_epoch",
    "token",
    "token_in_epoch",
    "total_wct",
    "epoch_wct",
    "batch_wct",
)

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+._-]*:/")


def ranks() -> dict[str, int]:
    """rank, local_rank, world_size, local_world_size and node_rank of this process.

    From torch.distributed if initialised, else from torchrun's environment variables,
    else from those of srun, else those of a single process.
    """
    found = {}
    by_slurm = "RANK" not in os.environ and _number("SLURM_STEP_NUM_TASKS", 1) > 1
    for name, (variable, default) in _RANKS.items():
        task = _TASKS.get(name) if by_slurm else None
        found[name] = _number(task or variable, default)
    distributed = sys.modules.get("torch.distributed")
    try:
        if distributed and distributed.is_available() and distributed.is_initialized():
            found["rank"] = distributed.get_rank()
            found["world_size"] = distributed.get_world_size()
    except Exception:
        # Half initialised, by this thread or another: treated as not initialised.
        pass
    return found


def launched() -> bool:
    """Whether a launcher, torchrun or srun, gave this process its rank."""
    return "RANK" in os.environ or _number("SLURM_STEP_NUM_TASKS", 1) > 1


def _number(variable, default):
    """The number in an environment variable; DEFAULT if it has none."""
    text = os.environ.get(variable, "").strip()
    # "²" is a digit, but not a number; and no run has a billion ranks.
    known = text.isascii() and text.isdigit() and len(text) < 10
    return int(text) if known else default


def check_template(template: object, name: str) -> str:
    """TEMPLATE, a str or a path, in the form for fill().

    Raises TypeError or ValueError, with NAME in its text, if fill() cannot take it.
    """
    if isinstance(template, os.PathLike):
        template = os.fspath(template)
    if not isinstance(template, str):
        raise TypeError(f"{name} must be a str, not {template!r}")
    if not template or "\0" in template:
        raise ValueError(f"{name} must be a format string of a name, not {template!r}")
    try:
        known = dict.fromkeys((*_RANKS, *_TIMES[:-3]), 0)
        _format(template, {**known, **dict.fromkeys(_TIMES[-3:], 0.0), "run_name": "r"})
    except ValueError as error:
        raise ValueError(
            f"{name} is not a format string: {error} in {template!r}; write {{{{ and }}}} "
            "for braces"
        ) from None
    return template


def fill(template: str, progress: Progress | None = None, **variables: object) -> str:
    """TEMPLATE, a format string, with its known fields filled in.

    The fields: rank, local_rank, world_size, local_world_size, node_rank; with PROGRESS
    epoch, batch, batch_in_epoch, sample, sample_in_epoch, token, token_in_epoch (ints),
    total_wct, epoch_wct, batch_wct (seconds, floats); VARIABLES, such as run_name.
    Other fields stay unchanged.  Raises ValueError if a text in VARIABLES would lead
    out of its folder.
    """
    known = ranks()
    if progress is not None:
        known.update((name, getattr(progress, name)) for name in _TIMES)
    for name, value in variables.items():
        if name in fields(template) and isinstance(value, str) and _leaves(value):
            raise ValueError(
                f"{name} is {value!r}, which leads out of the folder that {template!r} "
                f"names; give a {name} without '..' and leading '/'"
            )
    return _format(template, {**known, **variables})


def _leaves(path):
    return os.path.isabs(path) or ".." in path.split(os.sep) or "\0" in path


def fields(template: str) -> set[str]:
    """The names of the fields of TEMPLATE."""
    return {field for _, field, _, _ in string.Formatter().parse(template) if field}


def _format(template, known):
    formatter = string.Formatter()
    out = []
    for text, field, spec, conversion in formatter.parse(template):
        out.append(text)
        if field is None:
            continue
        if field in known:
            value = formatter.convert_field(known[field], conversion)
            out.append(format(value, _format(spec, known)))
        else:
            # Attributes and items, as in `{rank.real}`, are no known fields.
            out.append("{" + field)
            out.append(f"!{conversion}" if conversion else "")
            out.append(f":{spec}" if spec else "")
            out.append("}")
    return "".join(out)


def apart(*templates: str, rank: int | None = None) -> str:
    """The suffix that TEMPLATES' names need to differ between ranks: "_rank" and the
    number, for a RANK other than 0, unless a field tells ranks apart.  RANK None: this
    process's.
    """
    known = set().union(*map(fields, templates))
    if "rank" in known or {"node_rank", "local_rank"} <= known:
        return ""
    number = ranks()["rank"] if rank is None else rank
    return f"_rank{number}" if number else ""


def remote(
    template: str,
    filename: str,
    progress: Progress,
    *,
    default: str = "",
    **variables: object,
) -> str:
    """The upload name by TEMPLATE of the file FILENAME, given without its ending; no
    other rank's file has it. Both are format strings, filled by fill().

    TEMPLATE names a file if its last part has a field that tells files apart, such as
    {batch}; otherwise a folder, in which the file has its own name.  A last part equal to
    that of FILENAME, or to DEFAULT, stands for the file's own name.
    """
    base = filename.rpartition("/")[2]
    folder, _, last = template.rpartition("/")
    if last not in (base, default):
        if fields(last) - {"run_name", *_RANKS}:
            return fill(template, progress, **variables) + apart(template)
        folder = template.rstrip("/")
    # A rank's local folder does not exist there.
    parts = fill(folder, progress, **variables), fill(base, progress, **variables)
    return "/".join(filter(None, parts)) + apart(folder, base)


def unused(prefix: str, endings: Iterable[str]) -> tuple[str, str]:
    """PREFIX, with a number at its end if a file PREFIX + one of ENDINGS exists; and that
    end, which may be empty.
    """
    beside, number = "", 1
    while any(os.path.isfile(prefix + beside + ending) for ending in endings):
        number += 1
        beside = f"_{number}"
    return prefix + beside, beside


def not_taken(name: str, taken: set[str]) -> str:
    """NAME, with a number before its ending if it is in TAKEN, to which it is added."""
    stem, ending = os.path.splitext(name)
    found, number = name, 1
    while found in taken:
        number += 1
        found = f"{stem}_{number}{ending}"
    taken.add(found)
    return found


def without_ending(path: str) -> str:
    """PATH without the ending of a recording, packed or not."""
    for ending in (".gz", ".pickle", ".pkl", ".mlab"):
        path = path.removesuffix(ending)
    return path


def inside(folder: str, name: str) -> str:
    """The path of NAME, which may have folders, in FOLDER.

    Raises ValueError for an invalid name, or one that leads out of FOLDER.
    """
    if not name or name.endswith(os.sep) or _leaves(name):
        raise ValueError(f"{name!r} is not a file name in {folder!r}")
    return os.path.join(folder, name)


def make_folder(path: str, argument: str = "folder") -> None:
    """Makes the folder PATH of files.  Raises OSError, whose text names the ARGUMENT that
    gave it.
    """
    try:
        os.makedirs(path, exist_ok=True)
    except OSError as error:
        raise OSError(
            error.errno,
            f"the folder of memlab's files, {path}, cannot be made: {error.strerror}; give "
            f"another {argument}",
            error.filename,
        ) from None


def is_uri(name: str) -> bool:
    """Whether NAME begins with a scheme, as in s3://bucket/path and dbfs:/path."""
    return _URI.match(name) is not None


def remote_key(name: str) -> str:
    """The key of NAME in a logger's bucket: of a URI the path, without leading '/'."""
    scheme = _URI.match(name)
    if scheme:
        name = name[scheme.end() :]
        if name.startswith("/"):
            _, _, name = name[1:].partition("/")
    return name.lstrip("/")


def require_empty(folder: str, resumed: bool = False) -> None:
    """Raises FileExistsError if FOLDER, or a folder in it, has a file; of a RESUMED
    training, which no file may end, warns instead.

    Names that begin with a dot do not count.  Nor does, in a run of several ranks, what was
    written since this process began: a rank that is ahead may have ended its window.
    """
    before = _began() if ranks()["world_size"] > 1 else None
    found = _first_file(folder, before)
    if found is None:
        return
    text = f"{folder} is not empty; {found} exists"
    if resumed:
        tell(f"{text}. The resumed training writes its files beside what is there")
        return
    raise FileExistsError(
        f"{text}. Give another folder, or overwrite=True to keep what is there beside the "
        "new files"
    )


def _first_file(folder, before):
    """The first file in FOLDER by name, of those written before BEFORE unless None."""
    for root, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(files):
            path = os.path.join(root, name)
            if not name.startswith(".") and (before is None or _written(path) < before):
                return path
    return None


def _began():
    """When this process began, in seconds as files' times are."""
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return time.time()
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def _written(path):
    try:
        return os.stat(path).st_mtime
    except OSError:
        # A file of another rank that has its final name by now, or a link to nothing.
        return time.time()
