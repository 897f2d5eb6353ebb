"""Blocks: many small pieces of two pools, which way to move them, and whether it is worth it."""
