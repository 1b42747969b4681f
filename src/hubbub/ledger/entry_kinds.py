"""The kinds of ledger entries. A new kind is added here, written by `account`, and replayed by `verify`.

The fields of each body are listed in docs/ledger.md, "Format".
"""

from enum import StrEnum

__all__ = ["EntryKind"]


class EntryKind(StrEnum):
    """What an entry records; the value is what is stored."""

    OPEN = "open"
    """An account is opened: its unit, budget and window."""
    CLAIM = "claim"
    """An account pays for the rows of a dataset."""
    GRANT = "grant"
    """An analyst gets a budget within the account's."""
    CHARGE = "charge"
    """A loss is charged, before its mechanism runs."""
    VIEW = "view"
    """An analyst pays to view a release that somebody else charged."""
    RELEASE = "release"
    """The outcome of a charge is stored."""
    VERSION = "version"
    """The owner names a new version of the rows."""
    NONPRIVATE_ACCESS = "nonprivate_access"
    """The owner has looked at exact values."""
    OVERRIDE = "override"
    """The owner has overridden a declaration of hubbub.toml."""
    RESTORE = "restore"
    """A backup became the ledger, with what its owner says was spent since."""
    CLOSE = "close"
    """Nothing more is charged to the account."""
