"""A recording in progress: its window, steps, owners, and out of memory."""
