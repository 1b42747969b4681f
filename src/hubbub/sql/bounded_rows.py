"""The rows of a query in the engine's SQL: with places of public keys, and what each unit keeps of them.

Proof: docs/proofs/bounding.md, "Places of keys" and "Kept keys"
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from hubbub.engines.schema import UNIT, Key
from hubbub.sql.bounding_sql import parse_template
from hubbub.sql.query import ContributionBounds, Query
from hubbub.unit import Neighbours

__all__ = ["BoundedRows"]

_GIVEN, _ROWS = "_given", "_rows"
_SALT = "hubbub"


@dataclass(frozen=True)
class BoundedRows:
    """The rows of a query, for known contribution bounds."""

    query: Query
    bounds: ContributionBounds
    neighbours: Neighbours

    def _kept_values_cte(self, columns: str, most: int) -> str:
        """`_kept`: of the different values of the columns in `_pairs`, those that each unit keeps.

        Those with the least hash: a unit within the bound keeps all.
        """
        rank = f"ROW_NUMBER() OVER (PARTITION BY {UNIT} ORDER BY {self._keep_order(columns)})"
        ranked = f"SELECT *, {rank} AS n FROM _pairs"
        return f"_kept AS (SELECT * FROM ({ranked}) AS _ranked WHERE n <= {most})"

    def _keep_order(self, columns: str) -> str:
        """The order in which a unit keeps values of columns: a function of the unit and the values alone."""
        # The number of a row depends on other rows, so it may not choose.
        hashed = columns if self.query.is_numbered else f"{UNIT}, {columns}"
        return f"HASH({hashed}, '{_SALT}'), {columns}"

    # Parts of the SQL

    @property
    def _key_names(self) -> list[str]:
        return [f"k{place}" for place in range(len(self.query.keys))]

    @property
    def _key_list(self) -> str:
        return "".join(f"{key}, " for key in self._key_names)

    @property
    def _group_by(self) -> str:
        return f" GROUP BY {', '.join(self._key_names)}" if self.query.keys else ""

    def _where(self, *conditions: str) -> str:
        return " WHERE " + " AND ".join(conditions) if conditions else ""

    @property
    def _key_sets(self) -> dict[str, Sequence[Key]]:
        return {
            f"_keys{place}": key.values for place, key in enumerate(self.query.keys) if key.values is not None
        }

    def _parse_over_rows(
        self, text: str, *columns: str, is_late: bool = False, chooses: bool | None = None
    ) -> exp.Select:
        """The text as a syntax tree, with the query's rows for `_rows`; by groups if columns are named.

        Rows that have no public key count for nobody and are left out; those that have one have its place
        among the keys instead: numbers are faster to group than texts. Where all keys are public their places
        p0, p1, … leave the engine, no key does. Not if the text `chooses`, as it does where keys are kept:
        that depends on keys, not on how they are listed. If `is_late`, rows without a public key make groups
        of their own, left out in the end.
        """
        coded = [place for place, key in enumerate(self.query.keys) if key.values is not None]
        if chooses is None:
            chooses = not self.query.is_public
        if coded and columns and (is_late or not chooses):
            listed = [
                f"_found.k{place} AS p{place}"
                if not is_late
                else f"_keys{place}.place AS p{place}"
                if self.query.is_public
                else f"{f'_keys{place}.key' if place in coded else f'_found.k{place}'} AS k{place}"
                for place in range(len(self.query.keys))
            ]
            listed += [f"_found.{name}" for name in columns]
            joined = " ".join(self._join_keys("_found", place) for place in coded) if is_late else ""
            text = f"WITH _found AS ({text}) SELECT {', '.join(listed)} FROM _found {joined}"
        if coded and not is_late:
            own = [UNIT] if self.query.is_keyed else []
            own += [f"x{place}" for place in range(len(self.query.arguments))]
            own += [key for place, key in enumerate(self._key_names) if chooses or place not in coded]
            listed = [f"{_GIVEN}.{name}" for name in own]
            listed += [f"_keys{place}.place AS k{place}" for place in coded if not chooses]
            joined = " ".join(self._join_keys(_GIVEN, place) for place in coded)
            rows = f"{_ROWS} AS (SELECT {', '.join(listed)} FROM {_GIVEN} {joined})"
        else:
            rows = f"{_ROWS} AS (SELECT * FROM {_GIVEN})"
        start = f"WITH {rows}, " if text.startswith("WITH ") else f"WITH {rows} "
        tree = parse_template(start + text.removeprefix("WITH ")).copy()
        rows_cte = exp.CTE(this=self.query.rows.copy(), alias=exp.TableAlias(this=exp.to_identifier(_GIVEN)))
        # Rows read twice could be numbered in two ways; not so those of a unit, by their content.
        if any(not window.args.get("partition_by") for window in rows_cte.find_all(exp.Window)):
            rows_cte.set("materialized", True)
        clause = tree.args["with_"]
        clause.set("expressions", [rows_cte, *clause.expressions])
        return tree

    def _join_keys(self, table: str, place: int) -> str:
        values = self.query.keys[place].values or ()
        if len(values) == 1 and values[0] is None:  # such a list has no type to compare
            return f"JOIN _keys{place} ON {table}.k{place} IS NULL"
        same = "IS NOT DISTINCT FROM" if None in values else "="
        return f"JOIN _keys{place} ON {table}.k{place} {same} _keys{place}.key"
