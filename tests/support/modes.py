"""The mode of a new file under the umask of this process."""

import os

_umask = os.umask(0o077)
os.umask(_umask)

NEW = 0o666 & ~_umask
