"""Figures of a running program: for a monitor, and from its file for `memlab top`."""
