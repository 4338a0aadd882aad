"""memlab in a terminal."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios


def in_a_terminal(width, *arguments, env=None, stream="stdout"):
    """What `memlab ARGUMENTS` shows on STREAM, a terminal of WIDTH columns."""
    shown, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"}
    with subprocess.Popen(
        [sys.executable, "-m", "memlab", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        **{stream: terminal},
        env={**environment, **(env or {})},
    ) as process:
        os.close(terminal)
        parts = []
        while True:
            try:
                part = os.read(shown, 1 << 16)
            except OSError:  # how Linux says that the other end is closed
                break
            if not part:
                break
            parts.append(part)
    os.close(shown)
    assert process.returncode == 0
    return b"".join(parts).decode().replace("\r\n", "\n")
