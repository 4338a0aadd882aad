"""A replacement of Composer's Profiler: callbacks, schedules, traces."""
