"""Options shared by commands that run a program: the device, and the program."""

import argparse
import os


def add_device(command):
    command.add_argument(
        "--device",
        choices=("auto", "cuda", "cpu"),
        default="auto",
        help="whose memory (default: a GPU, if there is one)",
    )
    command.add_argument(
        "--phantom",
        metavar="GPU",
        help="run on the phantom device, a stand-in for a GPU that computes only small "
        "results. --phantom: the GPU that MEMLAB_PHANTOM_GPU names, else an h200; --phantom GPU: "
        "another one (memlab phantom --list names them); --phantom=auto: only without a "
        "GPU. MEMLAB_PHANTOM_MEMORY, for example 24GiB, is the memory of each, "
        "MEMLAB_PHANTOM_DEVICES their number",
    )


def add_program(command):
    command.add_argument(
        "-m",
        dest="module",
        action="store_true",
        help="the program is a module",
    )
    command.add_argument("program", help="script to run, or module with -m")
    rest = command.add_argument("arguments", nargs=argparse.REMAINDER, help="its arguments")
    # Otherwise argparse lists it among missing arguments.
    rest.required = False


def separate(argv, values):
    """ARGV as argparse is to have it: --phantom joined to the word after it where that names
    a GPU and is no file, else to none, as argparse would take the program for its value; and
    without the word python before a program; and whether that was there.  VALUES: options
    with a value of their own."""
    from memlab._run.commands import is_python

    words = list(argv)
    at = 1
    while at < len(words) and words[at].startswith("-") and words[at] not in ("--", "-m"):
        if words[at] == "--phantom":
            words[at : at + 2] = _phantom(words[at + 1 : at + 2])
        at += 2 if words[at] in values else 1
    python = at < len(words) and is_python(words[at]) and not os.path.isfile(words[at])
    if python:
        del words[at]
    return words, python


def _phantom(after):
    """The words for --phantom and what comes AFTER it, one word or none."""
    from memlab import phantom

    if after and not os.path.exists(after[0]):
        try:
            if after[0] != "auto":
                phantom.find_gpu(after[0])
            return [f"--phantom={after[0]}"]
        except (ValueError, FileNotFoundError):
            pass
    return ["--phantom=", *after]
