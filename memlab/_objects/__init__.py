"""Tensors by name, their holders, and memory that steps leave behind."""
