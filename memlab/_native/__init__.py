"""The bridge to torch, the sources of events and what torch.compile's lines stand for."""
