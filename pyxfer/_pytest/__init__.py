"""The fixture of the pytest plugin, and a base class for asv."""
