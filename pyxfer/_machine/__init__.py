"""The machine: its devices, the link to each, where memory lies, and what a result needs to be believed."""
