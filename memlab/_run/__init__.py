"""A program run unchanged, by `memlab run` or `lines`, and its processes."""
