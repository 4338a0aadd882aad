"""Magics for IPython."""
