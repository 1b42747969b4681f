"""Intervals that hold, and the time of joins: as it was before, kept so that each attack is seen to find what it looks for."""
