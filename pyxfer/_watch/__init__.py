"""The user's own program, watched: what crosses the link in it, and what it waits for."""
