"""Engines, which hold the rows of tables, and the public side of tables."""

from hubbub.engines.schema import Column, Kind, Table

__all__ = ["Column", "Kind", "Table"]
