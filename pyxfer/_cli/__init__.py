"""The command line: one file a verb; it parses, calls and prints. Nothing here measures."""
