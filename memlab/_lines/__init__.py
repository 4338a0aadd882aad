"""Line tables of profiled functions."""
