"""Bytes from ordinary arrays to the GPU and back at the link's own speed."""
