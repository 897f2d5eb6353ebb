"""Documents as pages for a terminal."""
