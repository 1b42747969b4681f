"""Queries: what is asked of a table, and what is made of the noisy integers that come back."""
