"""Words: what a terminal shows, arguments of a command line, lines of code, tables of lines."""
