"""Text for people on a stream: in its encoding, in lines of its terminal's width.

Owns where lines are broken; nothing is left out for want of room.
"""

import errno
import io
import os
import re
import sys
import unicodedata

from memlab._errors import Error

# Below this width, a broken line is no easier to read than the terminal's own wrapping.
_NARROWEST = 20
_COLUMN_BORDER = re.compile(r" {2,}")
# After one of these a word that is too long may go on in the next line, the best first: a
# path at its folders, settings between them.
_WORD_BORDERS = ("/", ",", ".:_-]")


def say(text: str, stream) -> OSError | None:
    """Prints TEXT to STREAM, whatever its encoding; returns the error if it failed.  In one
    write with the end of its line: lines of processes that share a terminal stay apart.
    """
    return tolerate(lambda: print(f"{text}\n", end="", file=stream, flush=True), stream)


def tolerate(write, stream) -> OSError | None:
    """Calls WRITE(), which writes to STREAM: whatever its encoding, and nothing more
    once the reader is gone.  Returns the error if a reader waits in vain.
    """
    if stream is None:
        # Python's value for a descriptor that was closed at its start.
        return OSError(errno.EBADF, os.strerror(errno.EBADF))
    if isinstance(stream, io.TextIOWrapper):
        try:
            stream.reconfigure(errors="backslashreplace")
        except ValueError:
            return None
        except OSError as error:
            return error
    try:
        write()
    except BrokenPipeError:
        # `memlab report ... | head`: no failure, and no message at exit.
        forget(stream)
    except (AttributeError, ValueError):
        # Closed or replaced by the program.
        pass
    except OSError as error:
        return error
    return None


def answer(text: str) -> None:
    """Prints TEXT, the answer, to stdout.  Raises Error if it failed."""
    error = say(text, sys.stdout)
    if error is not None:
        forget(sys.stdout)
        raise Error(unwritten(error))


def unwritten(error: OSError) -> str:
    """An Error: stdout failed with ERROR, and what to do."""
    return (
        f"the answer could not be written to stdout: {error.strerror or error}; free space "
        "there, or redirect it"
    )


def forget(stream) -> None:
    """Discards STREAM's buffer and all later output, also at exit."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (AttributeError, OSError, ValueError):
        # None, or not a system stream.
        pass


def show(text: str, stream) -> OSError | None:
    """Prints TEXT to STREAM, in lines of its width if it is a terminal; returns the
    error if it failed.
    """
    return say(fitted(text, stream), stream)


def fitted(text: str, stream) -> str:
    """TEXT in lines of STREAM's width, if that is a terminal."""
    return fit(text, columns(stream))


def columns(stream) -> int:
    """STREAM's width in columns; 0: no terminal, or unknown."""
    try:
        if not stream.isatty():
            return 0
        said = os.environ.get("COLUMNS", "")
        if said.isdecimal() and int(said) > 0:
            return int(said)
        return os.get_terminal_size(stream.fileno()).columns
    except (AttributeError, OSError, ValueError):
        return 0


def fit(text: str, columns: int, whole: bool = False) -> str:
    """TEXT with lines longer than COLUMNS broken, between columns of a table or words
    if possible; all text stays.  0 COLUMNS: unchanged.  whole: a word stays whole, if it has
    no room: it may be there to be pasted.
    """
    if columns < _NARROWEST:
        return text
    return "\n".join(
        part for line in text.split("\n") for part in _broken(line, columns, whole)
    )


def _broken(line, columns, whole):
    indent = min(len(line) - len(line.lstrip(" ")), columns - 1)
    # Indentation alone is not enough: numbers are right-aligned.
    hanging = " " * (6 if indent else 4)
    start = indent
    while (room := _fitting(line, columns)) < len(line):
        at = _break(line, start, room, whole)
        yield line[:at].rstrip(" ")
        rest = line[at:].lstrip(" ")
        if not rest:
            return
        line = hanging + rest
        start = len(hanging)
    yield line


def _fitting(line, columns):
    """Number of characters of LINE within COLUMNS."""
    if line.isascii():
        return min(len(line), columns)
    for at, character in enumerate(line):
        columns -= 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if columns < 0:
            return at
    return len(line)


def _break(line, start, room, whole):
    """Where to break LINE, with room for ROOM characters; its indentation ends at
    START.
    """
    # A table's last column moves to the next line as a whole, unless the others leave
    # most of the line to it.
    border = 0
    for match in _COLUMN_BORDER.finditer(line, start, room + 1):
        border = match.start()
    if border >= room // 2:
        return border
    space = line.rfind(" ", start, room + 1)
    if space > start:
        return space
    if whole:
        space = line.find(" ", room)
        return len(line) if space < 0 else space
    for borders in _WORD_BORDERS:
        word = max(line.rfind(c, start, room) for c in borders)
        if word > start:
            return word + 1
    return max(room, start + 1)
