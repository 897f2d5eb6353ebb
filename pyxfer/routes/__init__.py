"""Named ways in which frameworks move bytes: one file a framework, one table of routes in each."""
