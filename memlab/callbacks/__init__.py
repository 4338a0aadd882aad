"""Callbacks for trainers: one module for each framework, which the module imports."""
