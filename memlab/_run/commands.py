"""Command lines that would record other programs, which a program under `memlab run`
starts with subprocess.
"""

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys

# Programs that run a script many times, by the name of their file or module, with the
# option that selects a module.
_LAUNCHERS = {
    "torchrun": "-m",
    "torch.distributed.run": "-m",
    "torch.distributed.launch": "-m",
    "accelerate": "-m",
    "accelerate.commands.launch": "-m",
    "deepspeed": "--module",
}
_MODULE = ("-m", "--module")
_PYTHON = re.compile(r"python[0-9.]*")
# Interpreter options with a value of their own.
_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
# torch's own compilers, and what py-cpuinfo starts, as in each Trainer of Composer.
_OF_LIBRARIES = "compile_worker", "cpuinfo/cpuinfo.py"


def recording(words, own):
    """The command line that records what WORDS run; [] if impossible; None if WORDS run
    no Python program, or memlab already.

    own: memlab's own words, as ["run", "--phantom"].
    """
    name = os.path.basename(words[0]) if words else ""
    if name in _LAUNCHERS:
        return _launched(words, 1, _LAUNCHERS[name], own)
    if not is_python(name):
        return None
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] not in ("-m", "-c"):
        at += 2 if words[at] in _WITH_VALUE else 1
    if at >= len(words) or words[at] == "-c":
        return []
    module = words[at] == "-m"
    program = words[at + module] if at + module < len(words) else ""
    name = program if module else os.path.basename(program)
    if name in _LAUNCHERS:
        return _launched(words, at + module + 1, _LAUNCHERS[name], own)
    if name.partition(".")[0] == "memlab" or any(p in program for p in _OF_LIBRARIES):
        return None
    return [*words[:at], "-m", "memlab", *own, *words[at:]]


def _launched(words, at, option, own):
    """The words of a launcher, whose arguments begin AT, with memlab as the module that
    it runs.
    """
    for i in range(at, len(words)):
        if words[i] in _MODULE and i + 1 < len(words):
            if words[i + 1] == "memlab":
                return None
            return [*words[: i + 1], "memlab", *own, "-m", *words[i + 1 :]]
        if words[i].endswith(".py"):
            return [*words[:i], option, "memlab", *own, *words[i:]]
    return []


def is_python(word):
    """Whether WORD is the name of a Python, without a folder."""
    return _PYTHON.fullmatch(word) is not None


def find(word):
    """The file of the program WORD, None if there is none."""
    # The interpreter's folder comes first: it need not be in the PATH.
    return shutil.which(word, path=os.path.dirname(sys.executable)) or shutil.which(word)


def is_launcher(words):
    """Whether WORDS run a program that is known to run a script many times."""
    return any(os.path.basename(word) in _LAUNCHERS for word in words[:3])


def watch(tell):
    """Calls TELL(words) for each command that this process runs with subprocess."""
    original = subprocess.Popen.__init__

    @functools.wraps(original)
    def __init__(self, *arguments, **options):
        original(self, *arguments, **options)
        try:
            tell(_words(arguments[0] if arguments else options["args"]))
        except Exception:
            # The program's command runs; a missing report of it is harmless.
            pass

    subprocess.Popen.__init__ = __init__


def _runs(words, program):
    """Whether WORDS run PROGRAM, words for python, with the same arguments."""
    _, *mine = program
    if mine[:1] != ["-m"]:
        mine[:1] = map(os.path.abspath, mine[:1])
        words = [os.path.abspath(word) if word.endswith(".py") else word for word in words]
    return bool(mine) and is_python(os.path.basename(words[0])) and words[-len(mine) :] == mine


def _words(command):
    if isinstance(command, (str, bytes)):
        return shlex.split(os.fsdecode(command))
    if isinstance(command, os.PathLike):
        return [os.fsdecode(command)]
    return [os.fsdecode(word) for word in command]


def note(commands, own, program):
    """The report of COMMANDS, lists of words, at the end.

    program: the words of the program that started them.
    """
    count = len(commands)
    started = "another Python process" if count == 1 else f"{count} other Python processes"
    line = recording(program, own) if is_launcher(program) else None
    line = line or next(filter(None, (recording(words, own) for words in commands)), None)
    text = (
        f"memlab: the program started {started}, not recorded: {shlex.join(commands[0])}"
    )
    if ranks := sum(_runs(words, program) for words in commands):
        # Lightning starts the ranks but the first so, and none if torchrun started them.
        line = _launched(["torchrun", "--nproc-per-node", str(ranks + 1), *program[1:]], 3, "-m", own)
        return f"{text}\nmemlab: to record all, if they are its ranks: {shlex.join(line)}"
    if line:
        return f"{text}\nmemlab: to record: {shlex.join(line)}"
    return f"{text}\nmemlab: to record: save its program to a file, and memlab run FILE"

