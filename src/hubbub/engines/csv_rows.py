"""What a CSV file's rows are: a total function of its bytes, in which a row follows from its own bytes alone.

Every sequence of bytes has rows; none is refused, and none disappears. A line ends at a line feed, and one
carriage return before it is dropped. Fields are separated by commas. A field beyond the header's last is
ignored, a missing or empty one is NULL, and so is one of more than 64 MB. What the encoding cannot decode is
U+FFFD. An empty line is no row, unless the header has a single column.

Without quotes a line is a row, whatever is in it; so UTF-16 and UTF-32, in which one odd byte shifts all that
follow, are not read so. With quotes a field that *begins* with one goes on to the
next quote that is not doubled, over commas and lines; a quote anywhere else is a character like any other. So
a file of a conforming writer is read exactly as it was written. In one of a hostile writer an open quote
takes the following rows with it: such a file must be read without quotes.

An ordinary file is read by DuckDB's own reader, which is much faster. `plain` decides that: only where both
give the same rows.

Proof: docs/proofs/bounding.md, "Files"
"""

import codecs
import csv
import io
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hubbub.engines.schema import is_valid_text
from hubbub.errors import InvalidInput

__all__ = [
    "LONGEST",
    "UTF8",
    "CsvFormat",
    "PlainCsv",
    "check_plain",
    "csv_format",
    "read_batches",
    "read_header",
]

UTF8 = "utf-8"
LONGEST = 1 << 26
"""Bytes of a field that is read; the same as in PostgreSQL."""
_BOM = codecs.BOM_UTF8
_COMMA, _QUOTE, _FEED, _RETURN = b',"\n\r'
_PIECE = 1 << 20
"""Bytes of a line that are looked at together."""
_BLOCK = 1 << 21
"""Bytes that are looked at together, few enough that all that is made of them stays near the processor."""
_BATCH_ROWS, _BATCH_BYTES = 1 << 15, 1 << 23
_WIDE = {"utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"}
_SEVERAL_BYTES = {
    *("big5", "big5hkscs", "cp932", "cp949", "cp950", "euc_jp", "euc_jis_2004", "euc_jisx0213", "euc_kr"),
    *("gb18030", "gb2312", "gbk", "johab", "shift_jis", "shift_jis_2004", "shift_jisx0213"),
}
"""In all of these commas, quotes and line ends are single bytes that no other character has in it."""


@dataclass(frozen=True)
class CsvFormat:
    """How a file's bytes are read."""

    has_quotes: bool = True
    encoding: str = UTF8
    """Of the fields, once lines and fields are apart."""
    recoded: str | None = None
    """An encoding in which commas are not what they are in ASCII: all is decoded before it is split."""

    @property
    def is_ascii(self) -> bool:
        """Whether ASCII in it is read as such: in a few a backslash, ~ or % is another letter."""
        ascii_bytes = bytes(range(128))
        return self.recoded is None and ascii_bytes.decode(self.encoding) == ascii_bytes.decode("ascii")


@dataclass(frozen=True)
class PlainCsv:
    """Of a file that DuckDB's own reader reads as we do: what it must be told."""

    newline: str
    """As DuckDB's option has it."""
    is_quoted: bool


def csv_format(*, has_quotes: bool = True, encoding: str = UTF8) -> CsvFormat:
    r"""How to read a file in this encoding, one of Python's, if its lines can be told apart.

    >>> csv_format(encoding="Latin-1")
    CsvFormat(has_quotes=True, encoding='iso8859-1', recoded=None)
    >>> csv_format(encoding="utf-16").recoded
    'utf-16'
    """
    try:
        found = codecs.lookup(encoding)
    except (LookupError, TypeError, ValueError):
        raise InvalidInput(
            f"{str(encoding)[:40]!r} is not an encoding",
            why="it says which bytes are which letters",
            fix='use one of Python\'s, as "utf-8", "latin-1" or "cp1252"',
        ) from None
    name = found.name
    if name in {UTF8, "utf-8-sig"}:
        return CsvFormat(has_quotes, UTF8)
    if name in _WIDE:
        if not has_quotes:
            raise InvalidInput(
                f"files in {name} are not read without quotes",
                why="a byte too many in one line would shift all lines behind it",
                fix="convert the file to UTF-8; or read it with quotes, if all of it is well written",
            )
        return CsvFormat(has_quotes, UTF8, name)
    if name in {"ascii", "iso8859-1"} or name in _SEVERAL_BYTES:
        return CsvFormat(has_quotes, name)
    module = sys.modules.get(getattr(found.incrementaldecoder, "__module__", ""))
    table = getattr(module, "decoding_table", None)
    if not isinstance(table, str):
        raise InvalidInput(
            f"files in {name} are not read",
            why="what a byte means there depends on those before it, so one row would change the next",
            fix="convert the file to UTF-8",
        )
    if all(table[code] == chr(code) for code in (_COMMA, _QUOTE, _FEED, _RETURN)):
        return CsvFormat(has_quotes, name)
    return CsvFormat(has_quotes, UTF8, name)


def read_header(path: Path, how: CsvFormat) -> tuple[str, ...]:
    """The names in the first line of a file; no byte beyond that line is looked at.

    An empty name stands for a column that cannot be asked about.
    """
    try:
        with path.open("rb") as file:
            first = next(_pieces(file, how), b"")
    except OSError:
        raise _no_header() from None
    fields = _Fields(sys.maxsize, has_quotes=how.has_quotes)
    # A quote that stays open would take rows for names.
    has_ended = fields.feed(first if first.endswith(b"\n") or len(first) >= _PIECE else first + b"\n")
    try:
        names = tuple((field or b"").decode(how.encoding).strip() for field in fields.taken())
    except UnicodeDecodeError:
        raise _no_header() from None
    if not has_ended or not any(names) or not all(is_valid_text(name) and "\r" not in name for name in names):
        raise _no_header()
    return names


def _no_header() -> InvalidInput:
    return InvalidInput(
        "the CSV file has no header that can be read",
        why="its first line must name the columns, in the declared encoding, with no line break in a name",
        fix="add a header line, or declare the encoding",
    )


# Rows


def read_batches(path: Path, how: CsvFormat, width: int) -> Iterator[list[NDArray[np.object_]]]:
    """The rows below the header, many at a time, as columns of texts and None.

    Guarantee: a row is a function of its own line, and with quotes of its own record; no bytes raise.
    Proof: docs/proofs/bounding.md, "Files"
    """
    rows: list[Sequence[str | None]] = []
    size = 0
    records = _records(path, how, width)
    next(records, None)
    for record in records:
        rows.append([field.decode(how.encoding, "replace") if field else None for field in record])
        size += sum(map(len, filter(None, record)))
        if len(rows) >= _BATCH_ROWS or size >= _BATCH_BYTES:
            yield _columns(rows, width)
            rows, size = [], 0
    if rows:
        yield _columns(rows, width)


def _columns(rows: list[Sequence[str | None]], width: int) -> list[NDArray[np.object_]]:
    columns = [np.empty(len(rows), dtype=object) for _ in range(width)]
    for column, values in zip(columns, zip(*rows, strict=True), strict=True):
        column[:] = values
    return columns


def _records(path: Path, how: CsvFormat, width: int) -> Iterator[Sequence[bytes | None]]:
    """The records of a file, the header's included, each with so many fields."""
    with path.open("rb") as file:
        fields: _Fields | None = None
        for piece in _pieces(file, how):
            whole = _fields_of(piece, how, width) if fields is None and piece.endswith(b"\n") else None
            if whole is not None:
                if whole != [b""] or width == 1:
                    yield whole if len(whole) == width else whole[:width] + [b""] * (width - len(whole))
                continue
            fields = fields or _Fields(width, has_quotes=how.has_quotes)
            if fields.feed(piece):
                yield from _whole(fields, width)
                fields = None
        if fields is not None:  # the last line has no end
            fields.end()
            yield from _whole(fields, width)


def _fields_of(line: bytes, how: CsvFormat, width: int) -> list[bytes] | None:
    """The fields of a line that is a record by itself, at once; None where it has to be read byte by byte."""
    line = line[:-1].removesuffix(b"\r")
    if not how.has_quotes or b'"' not in line:
        return line.split(b",", width)
    if b"\r" in line:
        return None
    try:
        # Every byte as one letter. Python's reader is strict: what is not conforming it does not read.
        [fields] = csv.reader([line.decode("latin-1")], strict=True)
    except (csv.Error, ValueError):
        return None
    # An empty field in quotes is one, and a line of it is not empty.
    return [field.encode("latin-1") for field in fields] if any(fields) or len(fields) > 1 else None


def _whole(fields: "_Fields", width: int) -> Iterator[Sequence[bytes | None]]:
    if not fields.is_empty or width == 1:
        taken = fields.taken()
        yield taken + [b""] * (width - len(taken))


def _pieces(file: io.BufferedReader, how: CsvFormat) -> Iterator[bytes]:
    """The bytes in UTF-8 or what is like ASCII, each piece up to the end of a line or not beyond it."""
    lines = iter(lambda: file.readline(_PIECE), b"") if how.recoded is None else _recoded(file, how.recoded)
    for place, line in enumerate(lines):
        yield line.removeprefix(_BOM) if place == 0 and how.encoding == UTF8 else line


def _recoded(file: io.BufferedReader, encoding: str) -> Iterator[bytes]:
    text = io.TextIOWrapper(file, encoding=encoding, errors="replace", newline="\n")
    try:
        while line := text.readline(_PIECE):
            yield line.encode(UTF8, "replace")
    finally:
        text.detach()  # who opened the file closes it


class _Fields:
    """One record, read a piece at a time."""

    def __init__(self, width: int, *, has_quotes: bool) -> None:
        self._has_quotes = has_quotes
        self._width = width
        self._taken: list[bytes | None] = []
        self._count = 0
        self._part = bytearray()
        self._outside = 0
        """Where in the part what is not quoted begins: only there a carriage return can end the line."""
        self._state = "start"
        self.is_empty = True
        """Whether nothing is in the line."""

    def feed(self, piece: bytes) -> bool:
        """Read on; whether the record ends here, which it does nowhere but at the end of a piece."""
        at, end = 0, len(piece)
        while at < end:
            if self._state == "start":
                is_quoted = self._has_quotes and piece[at] == _QUOTE
                self._state = "quoted" if is_quoted else "plain"
                self._outside = 0
                at += is_quoted
                self.is_empty = self.is_empty and not is_quoted
            elif self._state == "plain":
                comma = piece.find(b",", at)
                stop = comma if comma >= 0 else end - piece.endswith(b"\n")
                self._add(piece[at:stop])
                at = stop + 1
                if comma >= 0:
                    self.is_empty = False
                    self._close()
                elif piece.endswith(b"\n"):
                    self.end()
                    return True
            elif self._state == "quoted":
                stop = piece.find(b'"', at)
                self._add(piece[at:] if stop < 0 else piece[at:stop])
                self._state = "quoted" if stop < 0 else "closed"
                at = end if stop < 0 else stop + 1
            elif piece[at] == _QUOTE:  # two of them stand for one
                self._add(b'"')
                self._state = "quoted"
                at += 1
            else:
                self._outside = len(self._part)
                self._state = "plain"
        return False

    def end(self) -> None:
        """The line is over."""
        if self._state == "plain" and len(self._part) > self._outside and self._part.endswith(b"\r"):
            del self._part[-1]
        self.is_empty = self.is_empty and not self._part
        self._close()

    def taken(self) -> list[bytes | None]:
        """The fields; those that are too long are None."""
        return self._taken

    def _add(self, more: bytes) -> None:
        # One byte too many says that it is too long; what is beyond the header's last is not held.
        if self._count < self._width:
            self._part += more[: LONGEST + 2 - len(self._part)]

    def _close(self) -> None:
        if self._count < self._width:
            self._taken.append(None if len(self._part) > LONGEST else bytes(self._part))
        self._part = bytearray()
        self._count += 1
        self._state = "start"


# Ordinary files


def check_plain(path: Path, how: CsvFormat, width: int) -> PlainCsv | None:
    """Whether DuckDB's reader gives the same rows as `batches`; None where that is not known.

    It is known of files in which every line has as many fields as the header, no line is empty or very
    long, no byte is zero, every carriage return is before a line feed (and then before every one), all is
    UTF-8, and every quote opens or closes a field, or is doubled within one, on the same line.

    Guarantee: it is a fact about the bytes; what is answered is the same either way.
    Proof: docs/proofs/bounding.md, "Files"
    """
    if not how.is_ascii:
        return None
    seen: set[str] = set()
    is_quoted = False
    with path.open("rb") as file:
        rest = file.read(len(_BOM)).removeprefix(_BOM)
        if rest.startswith(_BOM[:1]):
            return None
        while more := file.read(_BLOCK):
            last = more.rfind(b"\n") + 1
            if not last and len(rest) > _PIECE:
                return None
            block, rest = (rest + more[:last], more[last:]) if last else (b"", rest + more)
            if block and not _is_regular(block, how, width, seen):
                return None
            is_quoted = is_quoted or (how.has_quotes and b'"' in block)
        if rest:
            end = b"\r\n" if "\r\n" in seen else b"\n"
            if rest.endswith(b"\r") or not _is_regular(rest + end, how, width, seen):
                return None
            is_quoted = is_quoted or (how.has_quotes and b'"' in rest)
    return PlainCsv(r"\r\n" if "\r\n" in seen else r"\n", is_quoted) if len(seen) == 1 else None


def _is_regular(block: bytes, how: CsvFormat, width: int, seen: set[str]) -> bool:
    """Whether these lines are; `seen` are the ends of lines so far."""
    if b"\0" in block or not _is_readable(block, how.encoding):
        return False
    returns = block.count(b"\r") if b"\r" in block else 0  # to look for one is much faster than to count
    if returns and not returns == block.count(b"\r\n") == block.count(b"\n"):
        return False
    seen.add("\r\n" if returns else "\n")
    codes = np.frombuffer(block, np.uint8)
    is_quoted = how.has_quotes and b'"' in block
    is_special = (codes == _COMMA) | (codes == _FEED)
    if is_quoted:
        is_special |= codes == _QUOTE
        if returns:
            is_special |= codes == _RETURN
    # From here on only these few bytes are looked at.
    marks = np.flatnonzero(is_special)
    kinds = codes.take(marks)
    if is_quoted:
        is_quote = kinds == _QUOTE
        is_inside = np.bitwise_xor.accumulate(is_quote.view(np.uint8)).view(np.bool_)
        # The last byte ends a line: it is what is before the first.
        if is_inside[-1] or not _are_conforming(kinds, is_special.take(marks - 1), is_inside):
            return False
        # Behind an odd number of quotes a comma is a part of a field.
        is_mark = ~(is_inside | is_quote)
        if returns:
            is_mark &= kinds != _RETURN
        marks, kinds = marks[is_mark], kinds[is_mark]
    if len(marks) % width:
        return False
    table = kinds.reshape(-1, width)
    if not ((table[:, :-1] == _COMMA).all() and (table[:, -1] == _FEED).all()):
        return False
    lengths = np.diff(marks[width - 1 :: width], prepend=-1)
    return bool(lengths.min() > 1 + (returns > 0) and lengths.max() <= _PIECE)


def _is_readable(block: bytes, encoding: str) -> bool:
    """Whether it is the same in UTF-8."""
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
    """Whether every odd quote opens a field or follows another, and every even one is its counterpart.

    Given are all commas, quotes and line ends, which of them follow another at once, and behind which a quote
    is open; the last ends a line, and so is no quote.
    """
    may_open = follows & (np.roll(kinds, 1) != _RETURN)
    may_close = np.roll(follows, -1)
    return not bool(((kinds == _QUOTE) & ~np.where(is_inside, may_open, may_close)).any())
