"""Is this host still as fast as it was: what is kept, how two sides compare, and what a check says."""
