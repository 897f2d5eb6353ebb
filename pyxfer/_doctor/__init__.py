"""A host, examined: what was measured and read of it, held against what it should reach."""
