"""The laboratory: replays under other settings, why the peak, what to change."""
