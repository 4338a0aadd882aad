"""A recording under way: its window, steps, owners, and what it does out of memory."""
