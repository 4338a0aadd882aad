"""Other tools' names, implemented by memlab: only the import line of a script changes.
"""
