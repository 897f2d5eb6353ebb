"""Arrays in files: what is stored where."""
