"""Text for people on a stream: what it can encode, in lines that its terminal can show.

Owns where lines are broken; nothing is left out for want of room.
"""

import errno
import io
import os
import re
import sys
import unicodedata

from memlab._errors import Error

# Below this a broken line is no easier to read than what the terminal makes of it.
_NARROWEST = 20
_COLUMN_BORDER = re.compile(r" {2,}")
# After one of these a word that is too long may go on in the next line, the best first: a
# path at its folders, settings between them.
_WORD_BORDERS = ("/", ",", ".:_-]")


def say(text: str, stream) -> OSError | None:
    """Prints TEXT to STREAM whatever it can encode; the error where it did not arrive."""
    return tolerate(lambda: print(text, file=stream, flush=True), stream)


def tolerate(write, stream) -> OSError | None:
    """Calls WRITE(), which writes to STREAM: whatever that can encode; nothing more where
    nobody reads it.  Returns the error where a reader waits in vain."""
    if stream is None:
        # Python's for a descriptor that was closed when it began.
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
        # `memlab report ... | head`: nothing is wrong, and nothing may be said at exit.
        forget(stream)
    except (AttributeError, ValueError):
        # Closed or replaced by the program.
        pass
    except OSError as error:
        return error
    return None


def answer(text: str) -> None:
    """Prints TEXT, which was asked for, to stdout.  Raises Error where it did not arrive."""
    error = say(text, sys.stdout)
    if error is not None:
        forget(sys.stdout)
        raise Error(unwritten(error))


def unwritten(error: OSError) -> str:
    """Says that stdout took no answer because of ERROR, and what helps."""
    return (
        f"the answer could not be written to stdout: {error.strerror or error}; free space "
        "there, or redirect it"
    )


def forget(stream) -> None:
    """What STREAM holds back, and all that comes, goes nowhere: not even at exit is it
    tried again."""
    try:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)
    except (AttributeError, OSError, ValueError):
        # None, or none of the system's.
        pass


def show(text: str, stream) -> OSError | None:
    """Prints TEXT to STREAM, in lines as wide as it is where it is a terminal; the error
    where it did not arrive."""
    return say(fitted(text, stream), stream)


def fitted(text: str, stream) -> str:
    """TEXT in lines as wide as STREAM, where that is a terminal."""
    return fit(text, _columns(stream))


def _columns(stream) -> int:
    """How many columns STREAM has; 0: no terminal, or one that does not say."""
    try:
        if not stream.isatty():
            return 0
        said = os.environ.get("COLUMNS", "")
        if said.isdecimal() and int(said) > 0:
            return int(said)
        return os.get_terminal_size(stream.fileno()).columns
    except (AttributeError, OSError, ValueError):
        return 0


def fit(text: str, columns: int) -> str:
    """TEXT with the lines that are longer than COLUMNS broken, between columns of a table
    or words where that can be; all of it stays.  0 COLUMNS: as it is."""
    if columns < _NARROWEST:
        return text
    return "\n".join(
        part for line in text.split("\n") for part in _broken(line, columns)
    )


def _broken(line, columns):
    indent = min(len(line) - len(line.lstrip(" ")), columns - 1)
    # Not by the indentation alone: numbers are aligned at the right.
    hanging = " " * (6 if indent else 4)
    start = indent
    while (room := _fitting(line, columns)) < len(line):
        at = _break(line, start, room)
        yield line[:at].rstrip(" ")
        line = hanging + line[at:].lstrip(" ")
        start = len(hanging)
    yield line


def _fitting(line, columns):
    """How many characters of LINE are within COLUMNS."""
    if line.isascii():
        return min(len(line), columns)
    for at, character in enumerate(line):
        columns -= 2 if unicodedata.east_asian_width(character) in "WF" else 1
        if columns < 0:
            return at
    return len(line)


def _break(line, start, room):
    """Where to break LINE, of which ROOM characters have room and those from START on are
    not its indentation."""
    # A table's last column goes to the next line as a whole, unless the others leave most
    # of the line to it.
    border = 0
    for match in _COLUMN_BORDER.finditer(line, start, room + 1):
        border = match.start()
    if border >= room // 2:
        return border
    space = line.rfind(" ", start, room + 1)
    if space > start:
        return space
    for borders in _WORD_BORDERS:
        word = max(line.rfind(c, start, room) for c in borders)
        if word > start:
            return word + 1
    return max(room, start + 1)
