"""MemProfiler: the memory of modules' calls, for Lightning."""
