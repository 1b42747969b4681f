"""Private answers: a query, how it is bounded per unit, its plan, and what is released."""
