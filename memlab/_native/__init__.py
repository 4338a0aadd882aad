"""The bridge to torch, the sources of events, and lines of compiled code."""
