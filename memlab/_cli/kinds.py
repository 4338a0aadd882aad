"""Types of option values for argparse, and the help text about a file."""

import argparse

FILE = "a .mlab file, or a snapshot pickle of memlab or torch, gzip too"
FILE_OR_FOLDER = (
    f"{FILE}, or the folder of a memlab run with all its ranks, or the URI of either"
)

# Ranks that are shown beside each other, with their clocks; more are summed up one by one.
FEW_RANKS = 16


def count(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def last(text):
    from memlab._record import kept

    try:
        kept.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error).removeprefix("keep_last ")) from None
    return text


def seconds(text):
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds")
    return seconds


def instants(text):
    from memlab._report import instant as _instant

    try:
        both = [_instant.parse(part) for part in text.split(",")]
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if len(both) > 2:
        raise argparse.ArgumentTypeError(f"{text!r} is more than two instants")
    return both[0], both[-1]


def two_ranks(text):
    parts = text.split(",")
    if len(parts) != 2 or not all(part.isdecimal() for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} is not two ranks, for example 0,1")
    return int(parts[0]), int(parts[1])


def memory(text):
    from memlab import phantom

    try:
        return phantom.parse_memory(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def index(text):
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a GPU index: 0, 1, ...")
    return int(text)


def rank(text):
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a rank: 0, 1, ...")
    return int(text)


def instant(text):
    from memlab._report import instant as _instant

    try:
        _instant.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def column(text):
    from memlab._lines import lines

    try:
        lines._check_columns(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text
