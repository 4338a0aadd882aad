"""Courtesy: the GPU's memory lent to others."""
