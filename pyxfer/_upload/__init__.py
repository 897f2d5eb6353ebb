"""Uploads, downloads, prefetching and page-locked arrays, and the tuning of the ring that moves them."""
