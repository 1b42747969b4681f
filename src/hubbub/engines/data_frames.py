"""Data frames and Arrow data, as DuckDB is given them: under their own names, in types that never fail.

DuckDB silently renames columns that differ only in case, fails on a timestamp that its own unit cannot hold,
becomes unusable after a text that is not UTF-8, and empties a stream that can be read only once. So data
frames and Arrow data are prepared first, by their names and types; values are touched only where each becomes
a text by itself, or is checked to be one.
"""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hubbub.engines.schema import refuse_duplicate_names
from hubbub.errors import InvalidInput

__all__ = ["REPLACEMENT", "find_encoded_texts", "prepare_frame"]

REPLACEMENT = "\ufffd"
"""The replacement character: stands for a text that is not UTF-8."""
_ENCODED = {b"hubbub": b"text"}
"""Marks a column of bytes that DuckDB decodes as UTF-8."""
_INFERRED_FORMATS = {"csv", "json"}
"""Formats for which Arrow infers the column types from rows."""


def prepare_frame(rows: Any, name: str) -> Any:
    """A data frame of pandas or Polars, or Arrow data, ready for DuckDB; a stream is read into memory.

    Guarantee: DuckDB can read every value of the result, and knows its columns by their own names.
    Proof: docs/proofs/bounding.md, "Files"
    """
    kind = type(rows)
    home, _, _ = kind.__module__.partition(".")
    if home == "pandas" and kind.__name__ == "DataFrame":
        refuse_duplicate_names([str(column) for column in rows.columns], name)
        return _prepare_pandas(rows)
    if home == "polars" and kind.__name__ == "LazyFrame":
        return prepare_frame(rows.collect(), name)
    table = _as_arrow(rows, home)
    if table is None:
        raise InvalidInput(
            f"rows are of type {kind.__name__}, which cannot be read",
            why="only files, data frames, Arrow data and DuckDB connections can be read",
            fix="pass a path to CSV or Parquet, a pandas or Polars data frame, or an Arrow table",
        )
    refuse_duplicate_names(list(table.schema.names), name)
    return _prepare_arrow(table)


def find_encoded_texts(frame: Any) -> tuple[str, ...]:
    """The columns of a prepared frame that are bytes for DuckDB to decode."""
    fields = getattr(frame, "schema", ()) if type(frame).__module__.startswith("pyarrow.") else ()
    return tuple(field.name for field in fields if _ENCODED.items() <= (field.metadata or {}).items())


# pandas


def _prepare_pandas(frame: Any) -> Any:
    changed = {}
    for place, dtype in enumerate(frame.dtypes):
        column = frame.iloc[:, place]
        if getattr(dtype, "storage", "") == "pyarrow":
            import pyarrow as pa

            texts = column.array.__arrow_array__()
            texts = texts if isinstance(texts, pa.ChunkedArray) else pa.chunked_array([texts])
            if _is_text(texts.type) and not _are_utf8(texts):
                changed[frame.columns[place]] = _make_texts(_repair_texts(texts).to_pylist())
        elif dtype.kind == "O" and type(dtype).__name__ != "ArrowDtype":  # categories too
            changed[frame.columns[place]] = _make_texts(column)
        elif type(dtype).__name__ == "DatetimeTZDtype" and dtype.unit in {"s", "ms"}:
            # In UTC, in its own unit, which DuckDB then reads without multiplying.
            changed[frame.columns[place]] = column.to_numpy(dtype=f"M8[{dtype.unit}]")
    if changed:
        import pandas as pd

        # A new frame, so that the caller's stays unchanged; without the index, which is no column.
        columns = {name: changed.get(name, frame[name].array) for name in frame.columns}
        frame = pd.DataFrame({name: pd.Series(values) for name, values in columns.items()})
    if not any(type(dtype).__name__ == "ArrowDtype" for dtype in frame.dtypes):
        return frame
    import pyarrow as pa

    # Objects are texts by now: an error of Arrow's on mixed types would show a value.
    return _prepare_arrow(pa.Table.from_pandas(frame, preserve_index=False))


def _make_texts(values: Iterable[Any]) -> Any:
    """Objects as texts, each by itself; none of them can fail."""
    texts = [_make_text(value) for value in values]
    import pandas as pd

    column = np.empty(len(texts), dtype=object)
    column[:] = texts
    return pd.Series(column, dtype=object)


def _make_text(value: Any) -> str | None:
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return None
    if isinstance(value, float) and value != value:  # noqa: PLR0124 - not-a-number
        return None
    try:
        return str(value).encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001 - the class of the error would tell about the row
        return REPLACEMENT


# Arrow


def _as_arrow(rows: Any, home: str) -> Any:
    """The rows as Arrow data that can be read repeatedly; None if they are not Arrow data."""
    if home == "polars" and hasattr(rows, "to_arrow") and hasattr(rows, "columns"):
        return rows.to_arrow()
    if home != "pyarrow" and not hasattr(rows, "__arrow_c_stream__"):
        return None
    try:
        import pyarrow as pa
        from pyarrow import dataset
    except ImportError:
        return None
    if isinstance(rows, (pa.Table, dataset.Dataset)):
        return rows
    try:
        if isinstance(rows, dataset.Scanner):
            return rows.to_table()
        if isinstance(rows, pa.RecordBatch):
            return pa.Table.from_batches([rows])
        return pa.table(rows)  # a stream, which can be read only once
    except Exception:  # noqa: BLE001 - its message may hold data
        return None


def _prepare_arrow(table: Any) -> Any:
    import pyarrow as pa
    from pyarrow import dataset, types

    if isinstance(table, dataset.InMemoryDataset):
        table = table.to_table()
    if not isinstance(table, pa.Table):
        return _prepare_dataset(table)
    for index, field in enumerate(table.schema):
        plain = _without_zone(field.type)
        if plain is not None:
            # The same numbers; DuckDB would multiply those with a time zone, and some would overflow.
            table = table.set_column(index, field.name, table.column(index).cast(plain))
        elif _is_text(field.type) and not _are_utf8(table.column(index)):
            table = table.set_column(index, field.name, _repair_texts(table.column(index)))
        elif types.is_decimal(field.type):
            table = table.set_column(index, field.name, _drop_long_decimals(table.column(index)))
    # Columns must be dropped, not just ignored: DuckDB reads the first one even to count rows.
    readable = [field.name for field in table.schema if _is_total(field.type)]
    return table if len(readable) == len(table.schema) else table.select(readable)


def _prepare_dataset(source: Any) -> Any:
    """A dataset of files, which each query reads again: its texts as bytes, for DuckDB to decode.

    Assumes: folder names are UTF-8, which Arrow itself checks.
    """
    import pyarrow as pa
    from pyarrow import dataset

    parts = _list_file_datasets(source)
    if any(getattr(part.format, "default_extname", "") in _INFERRED_FORMATS for part in parts):
        raise InvalidInput(
            "the dataset consists of CSV or JSON files",
            why="Arrow infers their types from the first rows, and fails on a later one that does not fit",
            fix="open the CSV files themselves by their path, or write them as Parquet",
        )
    if not parts:
        readable = [field for field in source.schema if _is_total(field.type)]
        return source if len(readable) == len(source.schema) else source.replace_schema(pa.schema(readable))
    files = [(part, list(part.get_fragments())) for part in parts]
    folders = {
        name
        for part, fragments in files
        for known in (part.partition_expression, *(each.partition_expression for each in fragments))
        for name in dataset.get_partition_keys(known)
    }
    is_parquet = any(type(part.format) is dataset.ParquetFileFormat for part in parts)
    schema = pa.schema(
        field if field.name in folders else _make_total(field)
        for field in source.schema
        if _is_total(field.type) and not (is_parquet and _is_recoded(field.type))
    )
    datasets = [
        dataset.FileSystemDataset(
            fragments, schema, part.format, part.filesystem, root_partition=part.partition_expression
        )
        for part, fragments in files
    ]
    return dataset.UnionDataset(schema, datasets) if len(datasets) > 1 else datasets[0]


def _make_total(field: Any) -> Any:
    """The field as a dataset of files is read: texts as bytes, decimals in DuckDB's widest type."""
    import pyarrow as pa

    if _is_text(field.type):
        return field.with_type(pa.large_binary()).with_metadata(_ENCODED)
    if pa.types.is_decimal128(field.type):
        # In narrower ones DuckDB leaves what was in memory, another row's value, if one does not fit.
        return field.with_type(pa.decimal128(38, field.type.scale))
    return field


def _list_file_datasets(source: Any) -> list[Any]:
    """The datasets of files that a dataset consists of; none if it contains others too."""
    from pyarrow import dataset

    if type(source) is dataset.FileSystemDataset:
        return [source]
    parts = [_list_file_datasets(part) for part in getattr(source, "children", ())]
    return [each for part in parts for each in part] if all(parts) else []


def _is_text(kind: Any) -> bool:
    """True if DuckDB reads each value as a text, and so as UTF-8; it never does so inside nested types."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return _is_text(kind.value_type)
    kind = getattr(kind, "storage_type", kind)  # of an extension type, such as JSON
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_recoded(kind: Any) -> bool:
    """True if Arrow's Parquet reader re-encodes such a dictionary, and then checks its texts."""
    from pyarrow import int32, types

    return bool(types.is_dictionary(kind) and _is_text(kind) and kind.index_type != int32())


def _are_utf8(column: Any) -> bool:
    from pyarrow import ArrowInvalid

    try:
        column.validate(full=True)
    except ArrowInvalid:
        return False
    return True


def _repair_texts(column: Any) -> Any:
    """The same column, with U+FFFD for each text that is not UTF-8."""
    import pyarrow as pa

    return pa.chunked_array([_repair_array(chunk) for chunk in column.chunks], column.type)


def _repair_array(texts: Any) -> Any:
    import pyarrow as pa

    if isinstance(texts, pa.DictionaryArray):
        return pa.DictionaryArray.from_arrays(texts.indices, _repair_array(texts.dictionary))
    if isinstance(texts, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(texts.type, _repair_array(texts.storage))
    # Not every version can cast every type of text to bytes.
    buffers = (text.as_buffer() for text in texts)
    decoded = [None if buffer is None else _decode(buffer.to_pybytes()) for buffer in buffers]
    return pa.array(decoded, texts.type)


def _decode(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return REPLACEMENT


def _drop_long_decimals(column: Any) -> Any:
    """The same column, with NULL for each decimal that has more digits than its type says.

    Arrow does not check that. DuckDB would leave what was in memory, another row's value, or fail.
    """
    import pyarrow as pa

    fits = [_fits_precision(chunk) for chunk in column.chunks]
    if all(each.all() for each in fits):
        return column
    nothing = pa.scalar(None, column.type)
    parts = zip(fits, column.chunks, strict=True)
    return pa.chunked_array([pa.compute.if_else(pa.array(fit), chunk, nothing) for fit, chunk in parts])


def _fits_precision(decimals: Any) -> NDArray[np.bool_]:
    kind, size, offset = decimals.type, len(decimals), decimals.offset
    limit = 10**kind.precision - 1
    if size == 0 or kind.bit_width > 128:  # of 256 bits: the engine does not know the type
        return np.ones(size, dtype=bool)
    stored = decimals.buffers()[1]
    if kind.bit_width < 128:
        numbers = np.frombuffer(stored, f"i{kind.bit_width // 8}")[offset : offset + size]
        return np.asarray((numbers <= limit) & (numbers >= -limit))
    words = np.frombuffer(stored, "<u8").reshape(-1, 2)[offset : offset + size]
    low, high = words[:, 0], words[:, 1].view("<i8")

    def at_most(number: int) -> NDArray[np.bool_]:
        top, rest = number >> 64, np.uint64(number & (2**64 - 1))
        return np.asarray((high < top) | ((high == top) & (low <= rest)))

    return at_most(limit) & ~at_most(-limit - 1)


def _without_zone(kind: Any) -> Any:
    """The type without its time zone, where DuckDB would multiply its values; else None."""
    from pyarrow import timestamp, types

    if types.is_timestamp(kind) and kind.tz is not None and kind.unit in {"s", "ms"}:
        return timestamp(kind.unit)
    return None


def _is_total(kind: Any) -> bool:
    """True if DuckDB reads every value of an Arrow type."""
    from pyarrow import types

    if types.is_timestamp(kind):
        return kind.tz is None or kind.unit in {"us", "ns"}
    if types.is_duration(kind):
        return kind.unit in {"us", "ns"}
    if types.is_time(kind) or types.is_interval(kind):
        return False
    if types.is_dictionary(kind):
        return _is_total(kind.value_type)
    if types.is_nested(kind):
        return all(_is_total(kind.field(index).type) for index in range(kind.num_fields))
    return True
