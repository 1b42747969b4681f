"""One outcome per charge: what comes out after the engine has run: as it was before, kept so that each attack is seen to find what it looks for."""
