"""The names of other tools, answered by memlab: a script changes one import line."""
