"""What a reader sees: documents as terminal pages. Imports nothing of pyxfer above the documents."""
