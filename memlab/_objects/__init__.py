"""Tensors by name, who holds them, and what steps leave behind."""
