"""One policy, in the library: as it was before, kept so that each attack is seen to find what it looks for."""
