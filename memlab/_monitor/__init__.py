"""Figures of a running program: for a monitor, and of its file for `memlab top`."""
