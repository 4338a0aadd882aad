"""Files: recordings read, names, times and uploads of what trainers write."""
