"""Text: sizes and places in words, terminals, arguments, code, tables of lines."""
