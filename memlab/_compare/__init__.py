"""Two runs, and several ranks as one."""
