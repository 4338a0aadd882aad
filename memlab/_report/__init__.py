"""Reports of a recording: as a dict, as text, in Markdown and in colour."""
