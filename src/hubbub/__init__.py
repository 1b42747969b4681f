"""hubbub: the noise of a crowd in which no single voice can be made out."""
