"""The rows of JSON files: a total function of their bytes, in which each row depends on its own bytes alone.

In `.ndjson` and `.jsonl` files every line that is not blank is a row. A `.json` file is one array, and each
of its elements is a row; it must come from a conforming writer, as a CSV file with quotes must. Columns are
those that are declared, and no others: a row's own names decide nothing. A row that is no object, or is
longer than 64 MB, has NULL in every column. Numbers, texts and booleans become texts, as they are written;
missing values, nested ones and null are NULL. The last of several values of one name counts.

Proof: docs/proofs/bounding.md, "Files"
"""

import codecs
import io
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.engines.compressed_files import open_bytes
from hubbub.engines.csv_rows import MAX_FIELD_BYTES
from hubbub.errors import InvalidInput

__all__ = ["check_array", "read_json_batches"]

CHUNK_BYTES = 1 << 20
_BATCH_ROWS, _BATCH_BYTES = 1 << 15, 1 << 23
_MARK = re.compile(rb'["\\\[\]{},]')
_SPACE = b" \t\r\n"
_DECODER = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=lambda _: None)  # NaN is no JSON


def check_array(path: Path) -> None:
    """Refuse a file that does not begin as an array does; nothing beyond the first bracket is read."""
    try:
        with open_bytes(path) as file:
            first = file.read(len(codecs.BOM_UTF8)).removeprefix(codecs.BOM_UTF8).lstrip(_SPACE)
            while not first and (first := file.read(1)):
                first = first.lstrip(_SPACE)
    except OSError:
        first = b""
    if not first.startswith(b"["):
        raise InvalidInput(
            f"{path.name} is not a JSON array",
            why="the rows of a .json file are the elements of one array",
            fix="if each of its lines is an object, name it .ndjson",
        )


def read_json_batches(
    path: Path, names: Sequence[str], *, is_array: bool
) -> Iterator[list[NDArray[np.object_]]]:
    """Yield the rows in batches, as columns of texts and None.

    Args:
        path: the file.
        names: the columns, by their names in the file.
        is_array: True if rows are the elements of an array, False if they are lines.

    Guarantee: a row is a function of its own line, or of its own element; no line raises.
    Proof: docs/proofs/bounding.md, "Files"
    """
    rows: list[list[str | None]] = []
    size = 0
    with open_bytes(path) as file:
        for record in _split_array(file) if is_array else _split_lines(file):
            rows.append(_parse_row(record, names))
            size += len(record or b"")
            if len(rows) >= _BATCH_ROWS or size >= _BATCH_BYTES:
                yield _transpose(rows, len(names))
                rows, size = [], 0
    if rows:
        yield _transpose(rows, len(names))


def _transpose(rows: list[list[str | None]], width: int) -> list[NDArray[np.object_]]:
    columns = [np.empty(len(rows), dtype=object) for _ in range(width)]
    for column, values in zip(columns, zip(*rows, strict=True), strict=True):
        column[:] = values
    return columns


def _parse_row(record: bytes | None, names: Sequence[str]) -> list[str | None]:
    values: Any = None
    if record is not None:
        try:
            values = _DECODER.decode(record.decode("utf-8", "replace"))
        except (ValueError, RecursionError):  # no JSON, or nested too deeply
            values = None
    if not isinstance(values, dict):
        return [None] * len(names)
    return [_as_text(values.get(name)) for name in names]


def _as_text(value: Any) -> str | None:
    if isinstance(value, bool):
        return "true" if value else "false"
    # Half of a surrogate pair can be escaped, and is no character.
    return value.encode("utf-8", "replace").decode() or None if isinstance(value, str) else None


def _split_lines(file: io.BufferedReader) -> Iterator[bytes | None]:
    """Lines that are not blank, without a byte order mark; None for one that is too long.

    The mark is dropped from every line: a row is the first one only because of the rows before it.
    """
    while line := file.readline(MAX_FIELD_BYTES + 1):
        is_long = len(line) > MAX_FIELD_BYTES
        while is_long and not line.endswith(b"\n") and line:
            line = file.readline(CHUNK_BYTES)
        record = line.removeprefix(codecs.BOM_UTF8)
        if is_long:
            yield None
        elif record.strip(_SPACE):
            yield record


def _split_array(file: io.BufferedReader) -> Iterator[bytes | None]:
    """The elements of an array; None for one that is too long."""
    depth, at = 0, 0
    in_text, escaped_at = False, -1
    element = bytearray()
    while chunk := file.read(CHUNK_BYTES):
        start = 0
        for match in _MARK.finditer(chunk):
            place = match.start()
            mark = match[0]
            if in_text:
                if at + place == escaped_at:
                    continue
                if mark == b"\\":
                    escaped_at = at + place + 1
                elif mark == b'"':
                    in_text = False
            elif mark == b'"':
                in_text = True
            elif mark in b"[{":
                depth += 1
                if depth == 1:
                    element, start = bytearray(), place + 1
            elif mark in b",]}" and depth == 1:
                _add(element, chunk[start:place])
                is_long = len(element) > MAX_FIELD_BYTES
                if is_long or element.strip(_SPACE) or mark == b",":
                    yield None if is_long else bytes(element)
                element, start = bytearray(), place + 1
                if mark != b",":
                    return
            elif mark in b"]}":
                depth -= 1
        _add(element, chunk[start:])
        at += len(chunk)
    raise OSError("the array has no end")


def _add(element: bytearray, more: bytes) -> None:
    element += more[: MAX_FIELD_BYTES + 1 - len(element)]
