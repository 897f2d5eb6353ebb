"""`pyxfer links`: every link of the host, alone and together."""
