"""Endings of file names, with the format and the compression that each stands for."""

from pathlib import Path

__all__ = [
    "ENDINGS",
    "FORMATS",
    "TAB_ENDING",
    "file_ending",
    "find_compression",
    "find_format",
    "name_of_file",
]

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd"}
"""DuckDB's names of compressions, by the last ending of a file."""
TAB_ENDING = ".tsv"
"""Endings of CSV files with tabs between fields."""
FORMATS = {
    **dict.fromkeys((".parquet", ".pq"), "Parquet"),
    **dict.fromkeys((".csv", TAB_ENDING, ".txt"), "CSV"),
    **dict.fromkeys((".ndjson", ".jsonl"), "JSON lines"),
    ".json": "JSON",
    **dict.fromkeys((".feather", ".arrow", ".ipc"), "Arrow"),
}
"""Formats by ending."""
_TEXT_FORMATS = {"CSV", "JSON lines", "JSON"}
"""Formats that may be compressed."""
ENDINGS = (
    *FORMATS,
    *(f"{end}{more}" for end, name in FORMATS.items() if name in _TEXT_FORMATS for more in COMPRESSIONS),
)
"""Endings of files that can be read."""


def find_compression(path: str | Path) -> str:
    """The compression that a file's name tells; empty if none.

    >>> find_compression("visits.csv.gz"), find_compression("visits.csv")
    ('gzip', '')
    """
    return COMPRESSIONS.get(Path(path).suffix.lower(), "")


def file_ending(path: str | Path) -> str:
    """The ending that tells a file's format, without that of its compression.

    >>> file_ending("visits.CSV.gz"), file_ending("visits.parquet")
    ('.csv', '.parquet')
    """
    name = Path(path)
    return (Path(name.stem) if find_compression(name) else name).suffix.lower()


def name_of_file(path: str | Path) -> str:
    """A file's name without its endings: that of its table.

    >>> name_of_file("data/visits.csv.gz")
    'visits'
    """
    stem = Path(path).stem
    return Path(stem).stem if find_compression(path) else stem


def find_format(path: str | Path) -> str | None:
    """The format that a file's name tells: "CSV", "JSON", "JSON lines", "Parquet" or "Arrow".

    >>> find_format("visits.csv.gz"), find_format("visits.xlsx")
    ('CSV', None)
    """
    known = FORMATS.get(file_ending(path))
    return known if not find_compression(path) or known in _TEXT_FORMATS else None
