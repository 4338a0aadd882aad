"""What trainers call: a module for each framework, which is imported with that module."""
