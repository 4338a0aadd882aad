"""Courtesy: lends the GPU's memory to other programs."""
