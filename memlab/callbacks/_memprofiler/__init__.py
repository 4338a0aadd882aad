"""MemProfiler: the memory of calls of modules, for Lightning."""
