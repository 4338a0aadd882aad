"""Comparison of two runs, and several ranks as one recording."""
