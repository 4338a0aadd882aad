"""Text: sizes and places, terminals, arguments, code, tables of lines."""
