"""What the plugin for pytest does."""
