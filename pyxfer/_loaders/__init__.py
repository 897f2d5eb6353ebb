"""`pyxfer files`: loaders of files, timed beside the disk, the page cache and the link."""
