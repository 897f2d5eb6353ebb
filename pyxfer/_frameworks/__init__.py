"""Framework routes, and one process for each framework that times them."""
