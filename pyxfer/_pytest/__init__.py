"""Benchmarks of somebody's own: the fixture of the pytest plugin, and a class for asv."""
