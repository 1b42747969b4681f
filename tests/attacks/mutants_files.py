"""A row is a row: how files are read: as it was before, kept so that each attack is seen to find what it looks for."""
