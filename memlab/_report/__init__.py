"""What a recording says, as a dict, as text, in Markdown and in colour."""
