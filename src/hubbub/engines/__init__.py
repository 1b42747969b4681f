"""Tables: what is public about them, and the engine that holds their rows."""

from hubbub.engines.schema import Column, Kind, Table

__all__ = ["Column", "Kind", "Table"]
