"""Composer's Profiler, made anew: callbacks, schedules, traces."""
