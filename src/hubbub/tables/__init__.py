"""Tables: what is public about them, and the engine that holds their rows."""

from hubbub.tables.schema import Column, Kind, Table

__all__ = ["Column", "Kind", "Table"]
