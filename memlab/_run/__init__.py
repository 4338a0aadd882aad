"""A program as it would run alone, under `memlab run` or `lines`, and its processes."""
