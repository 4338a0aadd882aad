"""The implementation of the plugin for pytest."""
