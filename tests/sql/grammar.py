"""Queries by chance: valid ones of many shapes, and ones broken in the ways people and attackers break them.

All randomness is `random.Random` with a given seed: the same seed is the same query.
"""

import re
from random import Random

Columns = dict[str, str]
"""Names as they can be written, with their kinds: n, t, b, d, s, o."""

VISITS: Columns = {
    "patient": "n", "region": "t", "cost": "n", "day": "d", "seen": "s", "note": "t", "ok": "b", "odd": "o",
}  # fmt: skip
PEOPLE: Columns = {"patient": "n", "age": "n", "town": "t"}
TOWNS: Columns = {"town": "t", "country": "t", "size": "n"}

NUMBERS = [
    "0", "1", "2", "-1", "0.5", "10", "7.25", "1e3", "1e-3", "3", "100", "-0.0", "1e308", "1e-320", ".5",
    "5.", "9007199254740993", "9223372036854775808", "0.1", "1e19",
]  # fmt: skip
TEXTS = ["''", "'a'", "'b'", "'O''Brien'", "'nan'", "'12'", "'é🙂'", "'%a_'", "'infinity'", "'2024-02-29'"]
DATES = ["'2024-01-01'", "'1999-12-31'", "DATE '2024-02-29'", "'0001-01-01'", "'9999-12-31'"]
PARTS = ["year", "quarter", "month", "week", "day", "dow", "isodow", "doy", "hour", "minute"]
TEXT_CALLS = [
    "RIGHT({}, 2)", "LPAD({}, 3, 'x')", "REPLACE({}, 'a', '')", "SPLIT_PART({}, 'a', 2)", "RTRIM({})",
    "REGEXP_EXTRACT({}, '[a-z]+')", "REPLACE({}, 'a', 'aa')",
]  # fmt: skip
CUTS = ["year", "quarter", "month", "week", "day", "hour", "minute"]
TOKENS = [
    "SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "OFFSET 1", "UNION", "UNION ALL",
    "EXCEPT", "JOIN", "LEFT JOIN", "FULL JOIN", "CROSS JOIN", "ASOF JOIN", "LATERAL", "ON",
    "USING (patient)", "AS", "AND", "OR", "NOT", "IN", "EXISTS", "ANY", "ALL", "DISTINCT", "CASE", "WHEN",
    "THEN", "ELSE", "END", "NULL", "OVER ()", "FILTER (WHERE ok)", "QUALIFY", "WINDOW", "WITH", "RECURSIVE",
    "TABLESAMPLE 1", "VALUES", "(", ")", "((", "))", ",", ";", "*", "+", "-", "/", "//", "%", "||", "<",
    ">", "=", "<>", "::", "::INT", "::TINYINT", "::FLOAT", ".", "[", "]", "{", "}", "->", "=>", ":=", "?",
    "$1", "@x", "#1", "'", '"', "`", "\\", "--", "/*", "*/", "/* x */", "0x1F", "1_000", "1e", "1e999999",
    "²", "٣", "NaN", "Infinity", "-0", "é", "🙂", "\u202e", "\ufeff", "\t", "\n", "visits", "people",
    "towns", "patient", "region", "cost", "_unit", "_rows", "k0", "a0", "x0", "rowid", '"cost"', "COUNT(*)",
    "SUM(cost)", "MAX(note)", "error('x')", "getenv('HOME')", "random()", "now()", "current_date",
    "read_csv('x')", "hubbub_per_group(COUNT(*), 0, 1)", "hubbub_per_group(1)", "GROUPING SETS (())",
    "ROLLUP (ok)", "COLUMNS(*)", "EXCLUDE (cost)", "UNNEST([1])", "INTERVAL 1 DAY", "PIVOT",
    "ROUND(COUNT(*), 99)", "FETCH FIRST ROW", "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon=1)",
    "WITH DIFFERENTIAL_PRIVACY OPTIONS(max_groups_contributed=0.5)",
    "contribution_bounds_per_group => (0, 5)", ", contribution_bounds_per_group => (-1, 2))",
    "TRY_CAST(note AS DATE)",
]  # fmt: skip


class Grammar:
    """Texts by chance, from one seed."""

    def __init__(self, seed: int, *, rows_are_units: bool = False) -> None:
        self.random = Random(seed)
        self.rows_are_units = rows_are_units
        self._names = 0
        self._protected = 0

    def query(self) -> str:
        """A query that is mostly valid."""
        self._names = self._protected = 0
        ctes = ""
        source, columns = self._from(2)
        if self._chance(0.08) and not self.rows_are_units:
            inner, columns = self._sub_query(1)
            ctes, source = f"WITH c AS ({inner}) ", "c"
        by = self._by(columns)
        items = [f"{key} AS g{place}" if self._chance(0.5) else key for place, key in enumerate(by)]
        outputs = [f"{self._output(columns, by)} AS o{place}" for place in range(self.random.randint(1, 3))]
        if by and self._chance(0.06):
            top = f"GROUP BY {', '.join(by)} ORDER BY COUNT(*) DESC LIMIT 2"
            return f"{ctes}SELECT {', '.join(items)} FROM {source} {top}"
        text = f"{ctes}SELECT {', '.join([*items, *outputs])} FROM {source}"
        if self._chance(0.4):
            text += f" WHERE {self._truth(columns, 2)}"
        if by:
            how = (
                "{}"
                if self._chance(0.85)
                else self._pick(["ROLLUP ({})", "CUBE ({})", "GROUPING SETS (({}), ())"])
            )
            text += f" GROUP BY {how.format(', '.join(by))}"
        if self._chance(0.1):
            text += f" HAVING {self._aggregate(columns)} > {self._number()}"
        if self._chance(0.1):
            text += f" ORDER BY o0{self._pick(['', ' DESC'])}"
        if self._chance(0.1):
            text += f" LIMIT {self.random.randint(1, 3)}"
        return text

    def google(self) -> str:
        """The same in GoogleSQL's words."""
        self._names = self._protected = 0
        low, high = self._pick([(0, 5), (-2, 3), (0, 1), (1, 2)])
        counted_column = self._pick(["*", "cost", "note"])
        inner = self._pick([f"COUNT({counted_column})", "SUM(cost)", "AVG(cost)"])
        groups = self.random.randint(1, 3)
        by = self._pick(["", " GROUP BY region"])
        key = "region, " if by else ""
        return (
            f"SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS(epsilon={self._pick(['1', '0.5', '1e-1'])}, "
            f"max_groups_contributed={groups}) {key}{inner[:-1]}, "
            f"contribution_bounds_per_group => ({low}, {high})) AS o "
            f"FROM visits WHERE {self._truth(VISITS, 1)}{by}"
        )

    def mutant(self, text: str) -> str:
        """A text with a few of its tokens changed."""
        parts = re.findall(r"\w+|\s+|'[^']*'|.", text)
        for _ in range(self.random.randint(1, 3)):
            place = self.random.randrange(len(parts))
            match self.random.randrange(9):
                case 0:
                    del parts[place]
                case 1:
                    other = self.random.randrange(len(parts))
                    parts[place], parts[other] = parts[other], parts[place]
                case 2:
                    parts.insert(place, f" {self._pick(TOKENS)} ")
                case 3:
                    parts[place] = self._pick(TOKENS)
                case 4:
                    parts.insert(place, parts[place])
                case 5:
                    parts[place] = self._pick([str.upper, str.lower, str.title, str.swapcase])(parts[place])
                case 6:
                    depth = self._pick([1, 3, 30, 300])
                    parts[place] = "(" * depth + parts[place] + ")" * depth
                case 7:
                    other = self.random.randrange(len(parts))
                    parts[place:place] = parts[min(place, other) : max(place, other)]
                case _:
                    parts[place] = self._number()
            parts = parts or [" "]
        return "".join(parts)

    # Where rows come from

    def _from(self, depth: int) -> tuple[str, Columns]:
        if self._chance(0.5) or depth == 0:
            self._protected += 1
            if self.rows_are_units or self._chance(0.8):
                return "visits", VISITS
            return "people", PEOPLE
        kind = self.random.randrange(4)
        if kind == 0:
            inner, columns = self._sub_query(depth - 1)
            name = self._name()
            return f"({inner}) AS {name}", columns
        if kind == 1 and not self.rows_are_units:
            on = self._pick(["USING (patient)", "ON visits.patient = people.patient AND cost > age"])
            how = self._pick(["JOIN", "LEFT JOIN", "INNER JOIN"])
            columns = {**PEOPLE, **VISITS}
            columns.pop("patient")
            return f"visits {how} people {on}", {**columns, "visits.patient": "n"}
        if kind == 2 and not self.rows_are_units:
            part = self._pick(["cost, patient", "note, patient", "patient, day"])
            other = self._pick(["visits", "visits WHERE ok"])
            name = self._name()
            columns = {each: VISITS[each] for each in part.split(", ")}
            return f"(SELECT {part} FROM visits UNION ALL SELECT {part} FROM {other}) AS {name}", columns
        how = self._pick(["JOIN", "LEFT JOIN"])
        columns = {**TOWNS, **VISITS}
        return f"visits {how} towns ON visits.region = towns.town", columns

    def _sub_query(self, depth: int) -> tuple[str, Columns]:
        source, columns = self._from(depth)
        unit = next((name for name in columns if name.endswith("patient")), None)
        where = f" WHERE {self._truth(columns, 1)}" if self._chance(0.4) else ""
        if unit is not None and not self.rows_are_units and self._chance(0.5):
            number = self._term(columns, "n", 1)
            items = [f"{self._pick(['SUM', 'AVG', 'MIN', 'MAX', 'COUNT'])}({number}) AS s", "COUNT(*) AS c"]
            more = self._pick([[], ["region"]]) if "region" in columns else []
            results = {"patient": "n", "s": "n", "c": "n", **dict.fromkeys(more, "t")}
            by = ", ".join([unit, *more])
            return f"SELECT {', '.join([by, *items])} FROM {source}{where} GROUP BY {by}", results
        results = {"e": "n", "f": "t", "h": "b"}
        items = [f"{self._term(columns, kind, 2)} AS {name}" for name, kind in results.items()]
        if unit is not None:
            items.append(f"{unit} AS patient")
            results["patient"] = "n"
        distinct = "DISTINCT " if self._chance(0.2) and not self.rows_are_units else ""
        return f"SELECT {distinct}{', '.join(items)} FROM {source}{where}", results

    # What is asked

    def _by(self, columns: Columns) -> list[str]:
        if self._chance(0.4):
            return []
        texts = [name for name, kind in columns.items() if kind in "tb"]
        keys = [self._pick(texts)] if texts else []
        if self._chance(0.3):
            keys.append(self._term(columns, self._pick("tbnds"), 1))
        return list(dict.fromkeys(keys))

    def _output(self, columns: Columns, by: list[str]) -> str:
        one = self._aggregate(columns)
        match self.random.randrange(8):
            case 0:
                return f"{one} {self._pick('+-*/')} {self._aggregate(columns)}"
            case 1:
                return f"ROUND({one}, {self.random.randint(0, 4)})"
            case 2:
                return f"CASE WHEN {one} > {self._number()} THEN {one} ELSE {self._number()} END"
            case _:
                return one

    def _aggregate(self, columns: Columns) -> str:
        number = self._column(columns, "n")
        if self._chance(0.5):
            number = self._term(columns, "n", 2)
            number = f"LEAST(GREATEST({number}, -2), 9)" if self._chance(0.8) else number
        match self.random.randrange(12):
            case 0 | 1:
                return "COUNT(*)"
            case 2:
                return f"COUNT({self._term(columns, self._pick('ntbdso'), 2)})"
            case 3 if self._chance(0.4):
                return f"{self._pick(['SUM', 'AVG', 'STDDEV'])}(DISTINCT {number})"
            case 3:
                return f"COUNT(DISTINCT {self._term(columns, self._pick('ntds'), 1)})"
            case 4:
                return f"COUNT(*) FILTER (WHERE {self._truth(columns, 1)})"
            case 5:
                return f"{self._pick(['VARIANCE', 'STDDEV', 'VAR_POP', 'STDDEV_POP'])}({number})"
            case 6:
                return f"{self._pick(['MEDIAN', 'MIN', 'MAX'])}({number})"
            case 7:
                return f"QUANTILE_CONT({number}, {self._pick(['0.1', '0.5', '0.99'])})"
            case 8:
                both = f"{number}, {self._column(columns, 'n')}"
                return f"{self._pick(['CORR', 'COVAR_SAMP', 'COVAR_POP', 'REGR_SLOPE'])}({both})"
            case _:
                return f"{self._pick(['SUM', 'AVG'])}({number})"

    # Expressions of a row

    def _term(self, columns: Columns, kind: str, depth: int) -> str:
        if kind == "o":
            return self._column(columns, "o")
        if depth == 0 or self._chance(0.25):
            return self._column(columns, kind) if self._chance(0.7) else self._literal(kind)
        return {"n": self._numeric, "t": self._text, "b": self._truth, "d": self._date, "s": self._time}[
            kind
        ](columns, depth)

    def _numeric(self, columns: Columns, depth: int) -> str:
        one, two = (self._term(columns, "n", depth - 1) for _ in range(2))
        match self.random.randrange(16):
            case 14:
                unit = self._pick(["year", "quarter", "month", "hour", "minute", "second", "week"])
                moments = (self._term(columns, self._pick("ds"), depth - 1) for _ in range(2))
                return f"DATE_DIFF('{unit}', {', '.join(moments)})"
            case 15:
                call = self._pick(["LOG10({})", "LOG(2, {})", "TRUNC({})", "WIDTH_BUCKET({}, 0, 9, 4)"])
                return call.format(one)
            case 0 | 1 | 2:
                return f"({one} {self._pick(['+', '-', '*', '/', '//', '%'])} {two})"
            case 3:
                return f"{self._pick(['ABS', 'FLOOR', 'CEIL', 'ROUND', 'SQRT', 'LN', 'EXP', 'SIGN'])}({one})"
            case 4:
                return f"POWER({one}, {self._pick(['2', '0.5', '3', '-1', two])})"
            case 5:
                return f"{self._pick(['LEAST', 'GREATEST'])}({one}, {two})"
            case 6:
                return f"CASE WHEN {self._truth(columns, depth - 1)} THEN {one} ELSE {two} END"
            case 7:
                return f"COALESCE({one}, {two})"
            case 8:
                target_type = self._pick(
                    ["DOUBLE", "INTEGER", "TINYINT", "FLOAT", "BIGINT", "DECIMAL(4,2)", "UBIGINT"]
                )
                return f"CAST({self._term(columns, self._pick('ntb'), depth - 1)} AS {target_type})"
            case 9:
                return f"LENGTH({self._term(columns, 't', depth - 1)})"
            case 10:
                return f"EXTRACT({self._pick(PARTS)} FROM {self._term(columns, self._pick('ds'), depth - 1)})"
            case 11:
                days = (self._term(columns, "d", depth - 1) for _ in range(2))
                return f"DATE_DIFF('day', {', '.join(days)})"
            case 12:
                return f"NULLIF({one}, {two})"
            case _:
                return f"-({one})"

    def _text(self, columns: Columns, depth: int) -> str:
        one = self._term(columns, "t", depth - 1)
        match self.random.randrange(8):
            case 6:
                call = self._pick(TEXT_CALLS)
                return call.format(one)
            case 7:
                layout = self._pick(["%Y-%m-%d", "%H:%M:%S", "%A %j", "%B %y", "%q", "%"])
                return f"STRFTIME({self._term(columns, self._pick('ds'), depth - 1)}, '{layout}')"
            case 0:
                return f"{self._pick(['LOWER', 'UPPER', 'TRIM'])}({one})"
            case 1:
                return f"SUBSTRING({one}, {self.random.randint(1, 4)}, {self.random.randint(0, 4)})"
            case 2:
                return f"({one} || {self._term(columns, 't', depth - 1)})"
            case 3:
                return f"CASE WHEN {self._truth(columns, depth - 1)} THEN {one} ELSE 'a' END"
            case 4:
                return f"CAST({self._term(columns, self._pick('nbds'), depth - 1)} AS VARCHAR)"
            case _:
                return f"COALESCE({one}, 'b')"

    def _truth(self, columns: Columns, depth: int) -> str:
        if depth <= 0:
            return self._column(columns, "b")
        kind = self._pick("nntds")
        one = self._term(columns, kind, depth - 1)
        match self.random.randrange(9):
            case 0:
                parts = [self._truth(columns, depth - 1) for _ in range(2)]
                return f"({self._pick([' AND ', ' OR ']).join(parts)})"
            case 1:
                return f"NOT ({self._truth(columns, depth - 1)})"
            case 2:
                return f"{one} IS {self._pick(['', 'NOT '])}NULL"
            case 3:
                return f"{one} BETWEEN {self._literal(kind)} AND {self._literal(kind)}"
            case 4:
                return f"{one} IN ({self._literal(kind)}, {self._literal(kind)})"
            case 5:
                return f"{self._term(columns, 't', depth - 1)} LIKE {self._pick(TEXTS)}"
            case 6:
                return f"CAST({self._term(columns, self._pick('nt'), depth - 1)} AS BOOLEAN)"
            case _:
                sign = self._pick(["<", "<=", "=", "<>", ">", ">="])
                return f"({one} {sign} {self._term(columns, kind, depth - 1)})"

    def _date(self, columns: Columns, depth: int) -> str:
        if self._chance(0.5):
            return f"CAST({self._term(columns, self._pick('ts'), depth - 1)} AS DATE)"
        if self._chance(0.5):
            return f"({self._column(columns, 'd')} {self._pick('+-')} {self._pick(['7', '999999', '1.5'])})"
        return f"DATE_TRUNC('{self._pick(CUTS[:5])}', {self._column(columns, 'd')})"

    def _time(self, columns: Columns, depth: int) -> str:
        if self._chance(0.5):
            return f"CAST({self._term(columns, self._pick('td'), depth - 1)} AS TIMESTAMP)"
        if self._chance(0.5):
            interval = self._pick(["7 DAY", "1 MONTH", "4000 YEAR", "90 SECOND", "9999999 DAY", "1 DECADE"])
            sign = self._pick("+-")
            return f"({self._term(columns, self._pick('ds'), depth - 1)} {sign} INTERVAL {interval})"
        return f"DATE_TRUNC('{self._pick(CUTS)}', {self._column(columns, 's')})"

    def _column(self, columns: Columns, kind: str) -> str:
        names = [name for name, known in columns.items() if known == kind]
        return self._pick(names) if names else "NULL" if kind == "o" else self._literal(kind)

    def _literal(self, kind: str) -> str:
        if kind in "ds":
            target_type = "DATE" if kind == "d" else "TIMESTAMP"
            return f"CAST({self._pick(DATES).removeprefix('DATE ')} AS {target_type})"
        return self._pick({"n": NUMBERS, "t": TEXTS, "b": ["TRUE", "FALSE", "NULL"]}[kind])

    def _number(self) -> str:
        return self._pick(NUMBERS)

    def _name(self) -> str:
        self._names += 1
        return f"s{self._names}"

    def _pick(self, choices):
        return choices[self.random.randrange(len(choices))]

    def _chance(self, share: float) -> bool:
        return self.random.random() < share
