"""`memlab run` and `memlab lines`: a program as it would run alone, and its processes."""
