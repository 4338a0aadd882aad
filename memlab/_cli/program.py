"""Options shared by commands that run a program: the device, and the program."""

import argparse


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
        help="run on the phantom device, a stand-in for a GPU that computes nothing. "
        "--phantom: the GPU that MEMLAB_PHANTOM_GPU names, else an h200; --phantom=GPU: "
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


def separate_phantom(argv, values):
    """ARGV with --phantom as --phantom=, without a GPU: argparse would read the
    program's name as the GPU's.  VALUES: options that take a value.
    """
    separate = list(argv)
    at = 1
    while at < len(argv) and argv[at].startswith("-") and argv[at] != "--":
        if argv[at] == "--phantom":
            separate[at] = "--phantom="
        at += 2 if argv[at] in values else 1
    return separate
