"""Whether a program fits on a GPU that is not here."""
