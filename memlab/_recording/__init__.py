"""A finished recording as an object, and the commands as functions."""
