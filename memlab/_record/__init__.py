"""A recording under way: its window, steps, owners, and what a program may ask of it."""
