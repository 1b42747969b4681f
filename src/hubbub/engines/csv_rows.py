"""The rows of a CSV file: a total function of its bytes, in which each row depends on its own bytes alone.

Every sequence of bytes has rows; none is refused, and none disappears. A line ends at a line feed, and one
carriage return before it is dropped. Fields are separated by commas, or by semicolons, tabs or bars: as it is
declared, or as the header line alone shows. A field beyond the header's last is ignored; a missing or empty
one is NULL, and so is one of more than 64 MB. Bytes that the encoding cannot decode are U+FFFD. An empty line
is no row, unless the header has a single column.

Without quotes, every line is one row; so UTF-16 and UTF-32, in which one odd byte shifts all that follow, are
refused then. With quotes, a field that *begins* with a quote extends to the next quote that is not doubled,
across separators and lines; a quote anywhere else is an ordinary character. So the file of a conforming
writer is read exactly as it was written. In the file of a hostile writer an open quote swallows the rows that
follow: such a file must be read without quotes.

DuckDB's own reader is much faster. `detect_plain` finds the files for which it gives the same rows.

Proof: docs/proofs/bounding.md, "Files"
"""

import codecs
import csv
import io
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hubbub.engines.compressed_files import open_bytes
from hubbub.engines.schema import is_valid_text
from hubbub.errors import InvalidInput

__all__ = [
    "MAX_FIELD_BYTES",
    "SEPARATORS",
    "UTF8",
    "CsvFormat",
    "PlainCsv",
    "detect_plain",
    "detect_separator",
    "make_csv_format",
    "read_batches",
    "read_header",
]

UTF8 = "utf-8"
MAX_FIELD_BYTES = 1 << 26
"""A longer field is NULL; the same limit as in PostgreSQL."""
_BOM = codecs.BOM_UTF8
_QUOTE, _LINE_FEED, _CARRIAGE_RETURN = b'"\n\r'
SEPARATORS = {",": "a comma", ";": "a semicolon", "\t": "a tab", "|": "a bar"}
"""The characters that may separate fields, in words."""
_CHUNK_BYTES = 1 << 20
"""Bytes of a line that are parsed together."""
_BLOCK_BYTES = 1 << 21
"""Bytes that `detect_plain` checks together; few enough that all arrays made from them stay in the cache."""
_BATCH_ROWS, _BATCH_BYTES = 1 << 15, 1 << 23
_WIDE_ENCODINGS = {"utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"}
_MULTIBYTE_ENCODINGS = {
    *("big5", "big5hkscs", "cp932", "cp949", "cp950", "euc_jp", "euc_jis_2004", "euc_jisx0213", "euc_kr"),
    *("gb18030", "gb2312", "gbk", "johab", "shift_jis", "shift_jis_2004", "shift_jisx0213"),
}
"""In all of these, the bytes of commas, tabs, quotes and line ends occur in no other character."""


@dataclass(frozen=True)
class CsvFormat:
    """The way in which the bytes of a file are read."""

    has_quotes: bool = True
    encoding: str = UTF8
    """Encoding of the fields, once lines and fields are split."""
    transcoded_from: str | None = None
    """An encoding in which commas differ from ASCII: the file is transcoded to UTF-8 before it is split."""
    separator: str = ","

    @property
    def is_ascii(self) -> bool:
        """True if the encoding extends ASCII: in a few, a backslash, ~ or % is another character."""
        ascii_bytes = bytes(range(128))
        return self.transcoded_from is None and ascii_bytes.decode(self.encoding) == ascii_bytes.decode(
            "ascii"
        )


@dataclass(frozen=True)
class PlainCsv:
    """DuckDB's options for a file of which its own reader gives the same rows."""

    newline: str
    """In the spelling of DuckDB's option."""
    is_quoted: bool


def make_csv_format(*, has_quotes: bool = True, encoding: str = UTF8, separator: str = ",") -> CsvFormat:
    r"""The format of files in an encoding of Python's; refuse one in which lines cannot be split reliably.

    >>> make_csv_format(encoding="Latin-1")
    CsvFormat(has_quotes=True, encoding='iso8859-1', transcoded_from=None, separator=',')
    >>> make_csv_format(encoding="utf-16").transcoded_from
    'utf-16'
    """
    if separator not in SEPARATORS:
        raise InvalidInput(
            f"{str(separator)[:40]!r} does not separate fields",
            why="other characters may be part of names and numbers",
            fix=f"use one of: {', '.join(SEPARATORS.values())}",
        )
    try:
        codec = codecs.lookup(encoding)
    except (LookupError, TypeError, ValueError):
        raise InvalidInput(
            f"{str(encoding)[:40]!r} is not an encoding",
            why="the encoding decides which bytes are which characters",
            fix='use one of Python\'s names, such as "utf-8", "latin-1" or "cp1252"',
        ) from None
    name = codec.name
    if name in {UTF8, "utf-8-sig"}:
        return CsvFormat(has_quotes, UTF8, separator=separator)
    if name in _WIDE_ENCODINGS:
        if not has_quotes:
            raise InvalidInput(
                f"files in {name} are not read without quotes",
                why="an extra byte in one line would shift all lines after it",
                fix="convert the file to UTF-8; or read it with quotes, if its writer is trusted",
            )
        return CsvFormat(has_quotes, UTF8, name, separator)
    if name in _MULTIBYTE_ENCODINGS and separator not in ",\t":
        raise InvalidInput(
            f"files in {name} are not read with {SEPARATORS[separator]} between fields",
            why="in this encoding its byte may be part of another character",
            fix="convert the file to UTF-8",
        )
    if name in {"ascii", "iso8859-1"} or name in _MULTIBYTE_ENCODINGS:
        return CsvFormat(has_quotes, name, separator=separator)
    module = sys.modules.get(getattr(codec.incrementaldecoder, "__module__", ""))
    table = getattr(module, "decoding_table", None)
    if not isinstance(table, str):
        raise InvalidInput(
            f"files in {name} are not read",
            why="the meaning of a byte depends on those before it, so one row would change the next",
            fix="convert the file to UTF-8",
        )
    if all(table[ord(mark)] == mark for mark in (*'"\n\r', separator)):
        return CsvFormat(has_quotes, name, separator=separator)
    return CsvFormat(has_quotes, UTF8, name, separator)


def detect_separator(path: Path, *, has_quotes: bool = True, encoding: str = UTF8) -> str:
    """The separator with which the header line has most names; a comma if none has more.

    Guarantee: it depends on the header line alone.
    """
    counts = {",": len(read_header(path, make_csv_format(has_quotes=has_quotes, encoding=encoding)))}
    for separator in SEPARATORS:
        with suppress(InvalidInput):  # of another separator, or in an encoding that has none such
            csv_format = make_csv_format(has_quotes=has_quotes, encoding=encoding, separator=separator)
            counts[separator] = len(read_header(path, csv_format))
    return max(counts, key=lambda separator: counts[separator])


def read_header(path: Path, csv_format: CsvFormat) -> tuple[str, ...]:
    """The column names in the first line of a file; no byte beyond that line is read.

    A column with an empty name cannot be queried.
    """
    try:
        with open_bytes(path) as file:
            first = next(_read_chunks(file, csv_format), b"")
    except OSError:
        raise _missing_header(path) from None
    parser = _RecordParser(sys.maxsize, csv_format)
    # A quote that stays open would read rows as names.
    has_ended = parser.feed(first if first.endswith(b"\n") or len(first) >= _CHUNK_BYTES else first + b"\n")
    try:
        names = tuple((field or b"").decode(csv_format.encoding).strip() for field in parser.fields)
    except UnicodeDecodeError:
        raise _missing_header(path) from None
    if not has_ended or not any(names) or not all(is_valid_text(name) and "\r" not in name for name in names):
        raise _missing_header(path)
    return names


def _missing_header(path: Path) -> InvalidInput:
    return InvalidInput(
        f"{path.name} has no header that can be read",
        why="its first line must name the columns, in the declared encoding, with no line break in a name",
        fix="add a header line, or declare the encoding",
    )


# Rows


def read_batches(path: Path, csv_format: CsvFormat, width: int) -> Iterator[list[NDArray[np.object_]]]:
    """Yield the rows below the header in batches, as columns of texts and None.

    Guarantee: a row is a function of its own line, or, with quotes, of its own record; no bytes raise.
    Proof: docs/proofs/bounding.md, "Files"
    """
    rows: list[Sequence[str | None]] = []
    size = 0
    records = _read_records(path, csv_format, width)
    next(records, None)
    for record in records:
        rows.append([field.decode(csv_format.encoding, "replace") if field else None for field in record])
        size += sum(map(len, filter(None, record)))
        if len(rows) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield _transpose(rows, width)
            rows, size = [], 0
    if rows:
        yield _transpose(rows, width)


def _transpose(rows: list[Sequence[str | None]], width: int) -> list[NDArray[np.object_]]:
    columns = [np.empty(len(rows), dtype=object) for _ in range(width)]
    for column, values in zip(columns, zip(*rows, strict=True), strict=True):
        column[:] = values
    return columns


def _read_records(path: Path, csv_format: CsvFormat, width: int) -> Iterator[Sequence[bytes | None]]:
    """The records of a file, including the header, each with `width` fields."""
    with open_bytes(path) as file:
        parser: _RecordParser | None = None
        for chunk in _read_chunks(file, csv_format):
            fields = None
            if parser is None and chunk.endswith(b"\n"):
                fields = _split_line(chunk, csv_format, width)
            if fields is not None:
                if fields != [b""] or width == 1:
                    yield fields if len(fields) == width else fields[:width] + [b""] * (width - len(fields))
                continue
            parser = parser or _RecordParser(width, csv_format)
            if parser.feed(chunk):
                yield from _pad_record(parser, width)
                parser = None
        if parser is not None:  # the last line has no end
            parser.end()
            yield from _pad_record(parser, width)


def _split_line(line: bytes, csv_format: CsvFormat, width: int) -> list[bytes] | None:
    """The fields of a line that is a record by itself, the fast way; None if it must be parsed."""
    line = line[:-1].removesuffix(b"\r")
    if not csv_format.has_quotes or b'"' not in line:
        return line.split(csv_format.separator.encode(), width)
    if b"\r" in line:
        return None
    try:
        # Latin-1 maps every byte to one character. A strict reader raises on anything not conforming.
        [fields] = csv.reader([line.decode("latin-1")], strict=True, delimiter=csv_format.separator)
    except (csv.Error, ValueError):
        return None
    # A line with an empty field in quotes is not an empty line.
    return [field.encode("latin-1") for field in fields] if any(fields) or len(fields) > 1 else None


def _pad_record(parser: "_RecordParser", width: int) -> Iterator[Sequence[bytes | None]]:
    if not parser.is_empty or width == 1:
        yield parser.fields + [b""] * (width - len(parser.fields))


def _read_chunks(file: io.BufferedReader, csv_format: CsvFormat) -> Iterator[bytes]:
    """The bytes in UTF-8, or in an encoding like ASCII; no chunk extends beyond the end of a line."""
    lines = iter(lambda: file.readline(_CHUNK_BYTES), b"")
    if csv_format.transcoded_from is not None:
        lines = _transcode(file, csv_format.transcoded_from)
    for number, line in enumerate(lines):
        yield line.removeprefix(_BOM) if number == 0 and csv_format.encoding == UTF8 else line


def _transcode(file: io.BufferedReader, encoding: str) -> Iterator[bytes]:
    text = io.TextIOWrapper(file, encoding=encoding, errors="replace", newline="\n")
    try:
        while line := text.readline(_CHUNK_BYTES):
            yield line.encode(UTF8, "replace")
    finally:
        text.detach()  # the caller closes the file


class _RecordParser:
    """Parses one record, a chunk at a time."""

    def __init__(self, width: int, csv_format: CsvFormat) -> None:
        self._has_quotes = csv_format.has_quotes
        self._separator = csv_format.separator.encode()
        self._width = width
        self.fields: list[bytes | None] = []
        """The fields so far; those that are too long are None."""
        self._count = 0
        self._field = bytearray()
        self._unquoted_start = 0
        """Where the unquoted part of the field begins: only there a carriage return can end the line."""
        self._state = "start"
        self.is_empty = True
        """True if the line is empty."""

    def feed(self, chunk: bytes) -> bool:
        """Parse a chunk. Return True if the record ends with it; it ends nowhere else."""
        at, end = 0, len(chunk)
        while at < end:
            if self._state == "start":
                is_quoted = self._has_quotes and chunk[at] == _QUOTE
                self._state = "quoted" if is_quoted else "plain"
                self._unquoted_start = 0
                at += is_quoted
                self.is_empty = self.is_empty and not is_quoted
            elif self._state == "plain":
                mark = chunk.find(self._separator, at)
                stop = mark if mark >= 0 else end - chunk.endswith(b"\n")
                self._add(chunk[at:stop])
                at = stop + 1
                if mark >= 0:
                    self.is_empty = False
                    self._close()
                elif chunk.endswith(b"\n"):
                    self.end()
                    return True
            elif self._state == "quoted":
                stop = chunk.find(b'"', at)
                self._add(chunk[at:] if stop < 0 else chunk[at:stop])
                self._state = "quoted" if stop < 0 else "closed"
                at = end if stop < 0 else stop + 1
            elif chunk[at] == _QUOTE:  # a doubled quote is one quote
                self._add(b'"')
                self._state = "quoted"
                at += 1
            else:
                self._unquoted_start = len(self._field)
                self._state = "plain"
        return False

    def end(self) -> None:
        """End the line."""
        if self._state == "plain" and len(self._field) > self._unquoted_start and self._field.endswith(b"\r"):
            del self._field[-1]
        self.is_empty = self.is_empty and not self._field
        self._close()

    def _add(self, more: bytes) -> None:
        # One extra byte marks a field as too long; fields beyond the header's last are not kept.
        if self._count < self._width:
            self._field += more[: MAX_FIELD_BYTES + 2 - len(self._field)]

    def _close(self) -> None:
        if self._count < self._width:
            self.fields.append(None if len(self._field) > MAX_FIELD_BYTES else bytes(self._field))
        self._field = bytearray()
        self._count += 1
        self._state = "start"


# Files for DuckDB's own reader


def detect_plain(path: Path, csv_format: CsvFormat, width: int) -> PlainCsv | None:
    """DuckDB's options if its reader gives the same rows as `read_batches`; None if that is not known.

    It is known of files in which every line has as many fields as the header, no line is empty or very
    long, no byte is zero, carriage returns stand only before line feeds (before all of them or none), all is
    UTF-8, and every quote opens or closes a field, or is doubled within one, on the same line.

    Guarantee: it depends only on the bytes; the rows are the same either way.
    Proof: docs/proofs/bounding.md, "Files"
    """
    if not csv_format.is_ascii:
        return None
    line_ends: set[str] = set()
    is_quoted = False
    with open_bytes(path) as file:
        rest = file.read(len(_BOM)).removeprefix(_BOM)
        if rest.startswith(_BOM[:1]):
            return None
        while more := file.read(_BLOCK_BYTES):
            last = more.rfind(b"\n") + 1
            if not last and len(rest) > _CHUNK_BYTES:
                return None
            block, rest = (rest + more[:last], more[last:]) if last else (b"", rest + more)
            if block and not _is_plain(block, csv_format, width, line_ends):
                return None
            is_quoted = is_quoted or (csv_format.has_quotes and b'"' in block)
        if rest:
            end = b"\r\n" if "\r\n" in line_ends else b"\n"
            if rest.endswith(b"\r") or not _is_plain(rest + end, csv_format, width, line_ends):
                return None
            is_quoted = is_quoted or (csv_format.has_quotes and b'"' in rest)
    return PlainCsv(r"\r\n" if "\r\n" in line_ends else r"\n", is_quoted) if len(line_ends) == 1 else None


def _is_plain(block: bytes, csv_format: CsvFormat, width: int, line_ends: set[str]) -> bool:
    """True if these lines are plain; adds their line ends to `line_ends`."""
    if b"\0" in block or not _is_readable(block, csv_format.encoding):
        return False
    returns = block.count(b"\r") if b"\r" in block else 0  # a search is much faster than a count
    if returns and not returns == block.count(b"\r\n") == block.count(b"\n"):
        return False
    line_ends.add("\r\n" if returns else "\n")
    codes = np.frombuffer(block, np.uint8)
    is_quoted = csv_format.has_quotes and b'"' in block
    separator = ord(csv_format.separator)
    is_special = (codes == separator) | (codes == _LINE_FEED)
    if is_quoted:
        is_special |= codes == _QUOTE
        if returns:
            is_special |= codes == _CARRIAGE_RETURN
    # From here on, only these few bytes matter.
    marks = np.flatnonzero(is_special)
    kinds = codes.take(marks)
    if is_quoted:
        is_quote = kinds == _QUOTE
        is_inside = np.bitwise_xor.accumulate(is_quote.view(np.uint8)).view(np.bool_)
        # The last byte ends a line, so it serves as the byte before the first.
        if is_inside[-1] or not _are_conforming(kinds, is_special.take(marks - 1), is_inside):
            return False
        # After an odd number of quotes, a separator is part of a field.
        is_mark = ~(is_inside | is_quote)
        if returns:
            is_mark &= kinds != _CARRIAGE_RETURN
        marks, kinds = marks[is_mark], kinds[is_mark]
    if len(marks) % width:
        return False
    table = kinds.reshape(-1, width)
    if not ((table[:, :-1] == separator).all() and (table[:, -1] == _LINE_FEED).all()):
        return False
    lengths = np.diff(marks[width - 1 :: width], prepend=-1)
    return bool(lengths.min() > 1 + (returns > 0) and lengths.max() <= _CHUNK_BYTES)


def _is_readable(block: bytes, encoding: str) -> bool:
    """True if the bytes mean the same in UTF-8."""
    if block.isascii():
        return True
    try:
        block.decode(UTF8)
    except UnicodeDecodeError:
        return False
    return encoding == UTF8


def _are_conforming(
    kinds: NDArray[np.uint8], follows: NDArray[np.bool_], is_inside: NDArray[np.bool_]
) -> bool:
    """True if every odd quote opens a field or follows another, and every even one is its counterpart.

    Args:
        kinds: all separators, quotes and line ends; the last is a line end.
        follows: True for those that directly follow another.
        is_inside: True for those after which a quote is open.
    """
    may_open = follows & (np.roll(kinds, 1) != _CARRIAGE_RETURN)
    may_close = np.roll(follows, -1)
    return not bool(((kinds == _QUOTE) & ~np.where(is_inside, may_open, may_close)).any())
