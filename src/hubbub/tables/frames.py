"""Rows in memory, as the embedded engine is handed them: by their own names, and in types that never fail.

The engine renames columns that differ only in case before anybody can see them, fails on a moment that its
own unit does not hold, and empties what can be read only once. So what is handed over is looked at first, by
its names and types; values are only looked at where each is made a text by itself.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hubbub.errors import InvalidInput

__all__ = ["framed", "refuse_alike"]

_UNREADABLE = "\ufffd"


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
    if any(type(dtype).__name__ == "ArrowDtype" for dtype in frame.dtypes):
        import pyarrow as pa

        return _of_arrow(pa.Table.from_pandas(frame, preserve_index=False))
    changed = {}
    for place, dtype in enumerate(frame.dtypes):
        column = frame.iloc[:, place]
        if dtype.kind == "O" and getattr(dtype, "storage", "") != "pyarrow":  # categories too
            changed[frame.columns[place]] = _texts(column)
        elif type(dtype).__name__ == "DatetimeTZDtype" and dtype.unit in {"s", "ms"}:
            # The moment in Greenwich, in its own unit, which the engine then reads without multiplying.
            changed[frame.columns[place]] = column.to_numpy(dtype=f"M8[{dtype.unit}]")
    if not changed:
        return frame
    import pandas as pd

    # A new frame, so that the person's own stays as it is; without its index, which is no column.
    columns = {name: changed.get(name, frame[name].array) for name in frame.columns}
    return pd.DataFrame({name: pd.Series(values) for name, values in columns.items()})


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
        return _UNREADABLE


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

    if isinstance(table, pa.Table):
        for place, field in enumerate(table.schema):
            plain = _without_zone(field.type)
            if plain is not None:
                # The same numbers; the engine would multiply those that have a zone, and some would overflow.
                table = table.set_column(place, field.name, table.column(place).cast(plain))
    # Not only named: the engine reads the first column also where rows alone are counted.
    kept = [field for field in table.schema if _is_total(field.type)]
    if len(kept) == len(table.schema):
        return table
    names = [field.name for field in kept]
    return table.select(names) if isinstance(table, pa.Table) else table.replace_schema(pa.schema(kept))


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
