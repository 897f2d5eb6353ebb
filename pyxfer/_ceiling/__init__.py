"""Raw copies: the ceiling of a link, and any callable timed beside it."""
