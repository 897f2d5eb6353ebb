"""This machine: its devices and their links, NUMA nodes, limits and environment."""
