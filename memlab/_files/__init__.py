"""Reading recordings; names, times and uploads of trainers' files."""
