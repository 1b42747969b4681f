"""Rows in memory, as the embedded engine is handed them: by their own names, and in types that never fail.

The engine renames columns that differ only in case before anybody can see them, fails on a moment that its
own unit does not hold, is lost for good by a text that is no UTF-8, and empties what can be read only once.
So what is handed over is looked at first, by its names and types; values are looked at only where each is
made a text by itself, or seen to be one.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hubbub.errors import InvalidInput

__all__ = ["UNREADABLE", "encoded", "framed", "refuse_alike"]

UNREADABLE = "\ufffd"
"""What stands for a text that cannot be read."""
_ENCODED = {b"hubbub": b"text"}
"""Marks a column of bytes that are texts in UTF-8, or should be."""
_TYPED_BY_ROWS = {"csv", "json"}


def framed(rows: Any, name: str) -> Any:
    """A data frame of pandas or Polars, or Arrow data; what can be read only once is read here.

    Guarantee: the engine can read every value of what comes back, and knows its columns by their own names.
    Proof: docs/proofs/bounding.md, "Files"
    """
    kind = type(rows)
    home, _, _ = kind.__module__.partition(".")
    if home == "pandas" and kind.__name__ == "DataFrame":
        refuse_alike([str(column) for column in rows.columns], name)
        return _of_pandas(rows)
    if home == "polars" and kind.__name__ == "LazyFrame":
        return framed(rows.collect(), name)
    table = _as_arrow(rows, home)
    if table is None:
        raise InvalidInput(
            f"rows are of type {kind.__name__}, which cannot be read",
            why="files, data frames, Arrow data and DuckDB connections can",
            fix="pass a path to CSV or Parquet, a pandas or Polars data frame, or an Arrow table",
        )
    refuse_alike(list(table.schema.names), name)
    return _of_arrow(table)


def encoded(frame: Any) -> tuple[str, ...]:
    """The columns of what `framed` gives that are bytes, and for the engine to decode."""
    fields = getattr(frame, "schema", ()) if type(frame).__module__.startswith("pyarrow.") else ()
    return tuple(field.name for field in fields if _ENCODED.items() <= (field.metadata or {}).items())


def refuse_alike(names: Sequence[str], table: str) -> None:
    """Refuse two columns that differ only in case: the engine would rename one of them."""
    if len({name.lower() for name in names}) < len(names):
        raise InvalidInput(
            f"two columns of {table} have one name, or names that differ only in case",
            why="in SQL they are the same, and the one that is meant would not be the one that is read",
            fix="rename one of them",
        )


# pandas


def _of_pandas(frame: Any) -> Any:
    changed = {}
    for place, dtype in enumerate(frame.dtypes):
        column = frame.iloc[:, place]
        if getattr(dtype, "storage", "") == "pyarrow":
            import pyarrow as pa

            held = column.array.__arrow_array__()
            held = held if isinstance(held, pa.ChunkedArray) else pa.chunked_array([held])
            if not _are_utf8(held):
                changed[frame.columns[place]] = _texts(_as_utf8(held).to_pylist())
        elif dtype.kind == "O" and type(dtype).__name__ != "ArrowDtype":  # categories too
            changed[frame.columns[place]] = _texts(column)
        elif type(dtype).__name__ == "DatetimeTZDtype" and dtype.unit in {"s", "ms"}:
            # The moment in Greenwich, in its own unit, which the engine then reads without multiplying.
            changed[frame.columns[place]] = column.to_numpy(dtype=f"M8[{dtype.unit}]")
    if changed:
        import pandas as pd

        # A new frame, so that the person's own stays as it is; without its index, which is no column.
        columns = {name: changed.get(name, frame[name].array) for name in frame.columns}
        frame = pd.DataFrame({name: pd.Series(values) for name, values in columns.items()})
    if not any(type(dtype).__name__ == "ArrowDtype" for dtype in frame.dtypes):
        return frame
    import pyarrow as pa

    # Objects are texts by now: of a column of several types Arrow's message would show one.
    return _of_arrow(pa.Table.from_pandas(frame, preserve_index=False))


def _texts(values: Iterable[Any]) -> Any:
    """Objects as texts, each by itself: whatever they are, none of them fails."""
    listed = [_text(value) for value in values]
    import pandas as pd

    out = np.empty(len(listed), dtype=object)
    out[:] = listed
    return pd.Series(out, dtype=object)


def _text(value: Any) -> str | None:
    if value is None or type(value).__name__ in {"NAType", "NaTType"}:
        return None
    if isinstance(value, float) and value != value:  # noqa: PLR0124 - not-a-number
        return None
    try:
        return str(value).encode("utf-8", "replace").decode()
    except Exception:  # noqa: BLE001 - of any class: which one would tell about the row
        return UNREADABLE


# Arrow


def _as_arrow(rows: Any, home: str) -> Any:
    """Arrow data that can be read again and again; None where there is none."""
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
        return pa.table(rows)  # a stream: it can be read once, and is read now
    except Exception:  # noqa: BLE001 - its message may hold data
        return None


def _of_arrow(table: Any) -> Any:
    import pyarrow as pa
    from pyarrow import dataset

    if isinstance(table, dataset.InMemoryDataset):
        table = table.to_table()
    if not isinstance(table, pa.Table):
        return _with_bytes(table)
    for place, field in enumerate(table.schema):
        plain = _without_zone(field.type)
        if plain is not None:
            # The same numbers; the engine would multiply those that have a zone, and some would overflow.
            table = table.set_column(place, field.name, table.column(place).cast(plain))
        elif _is_text(field.type) and not _are_utf8(table.column(place)):
            table = table.set_column(place, field.name, _as_utf8(table.column(place)))
    # Not only named: the engine reads the first column also where rows alone are counted.
    kept = [field.name for field in table.schema if _is_total(field.type)]
    return table if len(kept) == len(table.schema) else table.select(kept)


def _with_bytes(source: Any) -> Any:
    """A data set of files, which is read anew by each query: its texts as bytes, for the engine to decode.

    Assumes: what is in the names of folders is UTF-8, as Arrow itself makes sure.
    """
    import pyarrow as pa
    from pyarrow import dataset

    parts = _parts(source)
    if any(getattr(part.format, "default_extname", "") in _TYPED_BY_ROWS for part in parts):
        raise InvalidInput(
            "the data set is of CSV or JSON files",
            why="Arrow takes their types from the first rows, and fails on a later one that does not fit",
            fix="open the CSV files themselves by their path, or write them as Parquet",
        )
    if not parts:
        kept = [field for field in source.schema if _is_total(field.type)]
        return source if len(kept) == len(source.schema) else source.replace_schema(pa.schema(kept))
    files = [(part, list(part.get_fragments())) for part in parts]
    folders = {
        name
        for part, fragments in files
        for known in (part.partition_expression, *(each.partition_expression for each in fragments))
        for name in dataset.get_partition_keys(known)
    }
    is_parquet = any(type(part.format) is dataset.ParquetFileFormat for part in parts)
    schema = pa.schema(
        field.with_type(pa.large_binary()).with_metadata(_ENCODED)
        if _is_text(field.type) and field.name not in folders
        else field
        for field in source.schema
        if _is_total(field.type) and not (is_parquet and _is_recoded(field.type))
    )
    made = [
        dataset.FileSystemDataset(
            fragments, schema, part.format, part.filesystem, root_partition=part.partition_expression
        )
        for part, fragments in files
    ]
    return dataset.UnionDataset(schema, made) if len(made) > 1 else made[0]


def _parts(source: Any) -> list[Any]:
    """The data sets of files that it is made of; none if it is made of others too."""
    from pyarrow import dataset

    if type(source) is dataset.FileSystemDataset:
        return [source]
    parts = [_parts(part) for part in getattr(source, "children", ())]
    return [each for part in parts for each in part] if all(parts) else []


def _is_text(kind: Any) -> bool:
    """Whether the engine takes each value for a text, and so for UTF-8; what is nested it never reads so."""
    from pyarrow import types

    if types.is_dictionary(kind):
        return _is_text(kind.value_type)
    kind = getattr(kind, "storage_type", kind)  # of an extension, as of JSON
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def _is_recoded(kind: Any) -> bool:
    """Whether Arrow's reader of Parquet makes such a dictionary of another, and then checks its texts."""
    from pyarrow import int32, types

    return bool(types.is_dictionary(kind) and _is_text(kind) and kind.index_type != int32())


def _are_utf8(column: Any) -> bool:
    from pyarrow import ArrowInvalid

    try:
        column.validate(full=True)
    except ArrowInvalid:
        return False
    return True


def _as_utf8(column: Any) -> Any:
    """The same column, with U+FFFD where a text is no UTF-8."""
    import pyarrow as pa

    return pa.chunked_array([_repaired(chunk) for chunk in column.chunks], column.type)


def _repaired(texts: Any) -> Any:
    import pyarrow as pa

    if isinstance(texts, pa.DictionaryArray):
        return pa.DictionaryArray.from_arrays(texts.indices, _repaired(texts.dictionary))
    if isinstance(texts, pa.ExtensionArray):
        return pa.ExtensionArray.from_storage(texts.type, _repaired(texts.storage))
    held = (each.as_buffer() for each in texts)  # not every version casts every type of texts to bytes
    return pa.array([None if each is None else _decoded(each.to_pybytes()) for each in held], texts.type)


def _decoded(text: bytes) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        return UNREADABLE


def _without_zone(kind: Any) -> Any:
    from pyarrow import timestamp, types

    if types.is_timestamp(kind) and kind.tz is not None and kind.unit in {"s", "ms"}:
        return timestamp(kind.unit)
    return None


def _is_total(kind: Any) -> bool:
    """Whether the engine reads every value of an Arrow type."""
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
        return all(_is_total(kind.field(place).type) for place in range(kind.num_fields))
    return True
