"""What roles of the database may do: looked at through row-level security, written through one function.

A spender, who holds the rows, adds lines by herself. An analyst adds lines through `hubbub.add_line`, which
runs as the owner and does again what the ledger does: the chain, exact sums, whether they fit the budgets.
It cannot know what a loss costs, so whoever answers a charge looks whether its cost covers its loss.

Proof: docs/proofs/ledger.md, "Roles in PostgreSQL"
"""

from collections.abc import Iterator, Sequence
from typing import Any

from hubbub.errors import InvalidInput, LedgerFailed
from hubbub.loss.stored import PART_NAMES

__all__ = ["FUNCTIONS", "MINE", "AnalystRows", "admitting"]

_ROLES = ("spender", "analyst", "reader")
_SPENDER = """
GRANT SELECT, UPDATE ON turn TO {name};
GRANT SELECT, INSERT ON entries, seen, releases, charges TO {name};
GRANT UPDATE (released, charge_key) ON charges TO {name};
GRANT SELECT, INSERT, UPDATE ON totals TO {name};
"""
_LOOKER = "GRANT SELECT ON turn, entries, totals, charges, seen, releases TO {name};"
_ANALYST = """
GRANT EXECUTE ON FUNCTION take_turn(), head(), known(text, text),
    add_line(bigint, text, text, text, text, text, text, text) TO {name};
"""
MINE = {
    "entries": "who = CURRENT_USER OR kind IN ('open', 'rows', 'version', 'close') OR CASE kind "
    "WHEN 'charge' THEN number IN (SELECT number FROM seen WHERE who = CURRENT_USER) "
    "WHEN 'release' THEN (body::jsonb ->> 'charge')::bigint IN "
    "(SELECT number FROM seen WHERE who = CURRENT_USER) END",
    "totals": "who IN (CURRENT_USER, '')",
    "seen": "who = CURRENT_USER",
    "charges": "number IN (SELECT number FROM entries WHERE kind = 'charge')",
    "releases": "number IN (SELECT number FROM entries WHERE kind = 'charge')",
}
"""What an analyst sees of each table: her own, and what she has paid to see."""

FUNCTIONS = r"""
CREATE OR REPLACE FUNCTION plain(given text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    -- A text as JSON in ASCII, just as Python writes it: two escapes beyond the first 65,536 characters.
    SELECT '"' || coalesce(string_agg(CASE
        WHEN letter = '"' OR letter = '\' THEN '\' || letter
        WHEN code BETWEEN 32 AND 126 THEN letter
        WHEN code = 8 THEN '\b' WHEN code = 9 THEN '\t' WHEN code = 10 THEN '\n'
        WHEN code = 12 THEN '\f' WHEN code = 13 THEN '\r'
        WHEN code < 65536 THEN '\u' || lpad(to_hex(code), 4, '0')
        ELSE '\u' || to_hex(55296 + ((code - 65536) >> 10)) || '\u' || to_hex(56320 + ((code - 65536) & 1023))
        END, '' ORDER BY place), '') || '"'
    FROM (SELECT letter, ascii(letter) AS code, place
        FROM regexp_split_to_table(given, '') WITH ORDINALITY AS letters(letter, place)
        WHERE given <> '') AS split
$$;

CREATE OR REPLACE FUNCTION digest(json text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT encode(sha256(convert_to(json, 'UTF8')), 'hex')
$$;

CREATE OR REPLACE FUNCTION is_figure(given text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT given IS NULL OR (length(given) < 1000 AND given COLLATE "C" ~ '^(0|[1-9][0-9]*)(/[1-9][0-9]*)?$')
$$;

CREATE OR REPLACE FUNCTION top(given text) RETURNS numeric LANGUAGE sql IMMUTABLE AS $$
    SELECT split_part(given, '/', 1)::numeric
$$;

CREATE OR REPLACE FUNCTION bottom(given text) RETURNS numeric LANGUAGE sql IMMUTABLE AS $$
    SELECT CASE WHEN given LIKE '%/%' THEN split_part(given, '/', 2)::numeric ELSE 1 END
$$;

CREATE OR REPLACE FUNCTION plus(one text, other text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE n numeric; d numeric; g numeric;
BEGIN
    -- Exact; rounded up to multiples of 2^-128 where it grows beyond 256 bits, and unknown beyond 2^64.
    IF one IS NULL OR other IS NULL THEN RETURN NULL; END IF;
    n := top(one) * bottom(other) + top(other) * bottom(one);
    d := bottom(one) * bottom(other);
    g := gcd(n, d); n := div(n, g); d := div(d, g);
    IF n > 18446744073709551616 * d THEN RETURN NULL; END IF;
    IF d > 115792089237316195423570985008687907853269984665640564039457584007913129639936 THEN
        n := div(n * 340282366920938463463374607431768211456 + d - 1, d);
        d := 340282366920938463463374607431768211456;
        g := gcd(n, d); n := div(n, g); d := div(d, g);
    END IF;
    RETURN CASE WHEN d = 1 THEN n::text ELSE n::text || '/' || d::text END;
END $$;

CREATE OR REPLACE FUNCTION at_most(one text, other text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT top(one) * bottom(other) <= top(other) * bottom(one)
$$;

CREATE OR REPLACE FUNCTION rounded(given text) RETURNS numeric LANGUAGE sql IMMUTABLE AS $$
    -- To forty digits, up.
    SELECT div(top(given) * 1e40::numeric + bottom(given) - 1, bottom(given)) * 1e-40::numeric
$$;

CREATE OR REPLACE FUNCTION fits(state jsonb) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE
    spent jsonb := state -> 'spent'; split jsonb := state -> 'split'; epsilon numeric; work numeric := 0;
    alpha numeric; share text; figure text; alone numeric; j int;
BEGIN
    -- As hubbub.loss.Filter, but for its Gaussian part, with a margin for what is rounded: what does not fit
    -- there does not fit here.
    IF NOT at_most(spent ->> 'delta', split ->> 'approximate') THEN RETURN false; END IF;
    IF spent ->> 'epsilon' IS NOT NULL AND at_most(spent ->> 'epsilon', state ->> 'epsilon') THEN
        RETURN true;
    END IF;
    epsilon := rounded(state ->> 'epsilon') - 1e-18;
    FOR j IN 0 .. jsonb_array_length(spent -> 'orders') - 1 LOOP
        share := split -> 'renyi' ->> j; figure := spent -> 'renyi' ->> j;
        CONTINUE WHEN figure IS NULL OR top(share) = 0;
        alpha := rounded(spent -> 'orders' ->> j);
        alone := rounded(figure) - ln(round(alpha / (alpha - 1), 40))
            - ln(alpha * (div(top(share) * 1e80::numeric, bottom(share)) * 1e-80::numeric)) / (alpha - 1);
        IF alone <= epsilon THEN RETURN true; END IF;
        work := work + exp(greatest(round(-(alpha - 1) * (alone - epsilon), 40), -1000));
    END LOOP;
    RETURN work >= 1 + 1e-15;
END $$;

CREATE OR REPLACE FUNCTION listed(given jsonb) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT '[' || string_agg(coalesce('"' || figure || '"', 'null'), ', ' ORDER BY place) || ']'
    FROM jsonb_array_elements_text(given) WITH ORDINALITY AS figures(figure, place)
$$;

CREATE OR REPLACE FUNCTION said(given text) RETURNS text LANGUAGE sql IMMUTABLE AS $$
    SELECT coalesce('"' || given || '"', 'null')
$$;

CREATE OR REPLACE FUNCTION charged(state jsonb, cost jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE spent jsonb := state -> 'spent'; renyi jsonb; delta text; name text; split jsonb := state -> 'split';
BEGIN
    FOREACH name IN ARRAY ARRAY['epsilon', 'delta', 'mu_squared', 'rho'] LOOP
        IF jsonb_typeof(cost -> name) IS NULL OR jsonb_typeof(cost -> name) NOT IN ('string', 'null')
            OR NOT is_figure(cost ->> name) THEN
            RAISE EXCEPTION 'a figure is none';
        END IF;
    END LOOP;
    IF cost ->> 'delta' IS NULL OR jsonb_typeof(cost -> 'renyi') IS DISTINCT FROM 'array'
        OR jsonb_array_length(cost -> 'renyi') <> jsonb_array_length(spent -> 'orders')
        OR EXISTS (SELECT 1 FROM jsonb_array_elements(cost -> 'renyi') AS each(figure)
            WHERE jsonb_typeof(figure) NOT IN ('string', 'null') OR NOT is_figure(figure #>> '{}')) THEN
        RAISE EXCEPTION 'a figure is none';
    END IF;
    SELECT jsonb_agg(plus(spent -> 'renyi' ->> j, cost -> 'renyi' ->> j) ORDER BY j) INTO renyi
        FROM generate_series(0, jsonb_array_length(spent -> 'orders') - 1) AS j;
    delta := coalesce(plus(spent ->> 'delta', cost ->> 'delta'), '1');
    IF NOT at_most(delta, '1') THEN delta := '1'; END IF;
    RETURN '{"delta": ' || said(state ->> 'delta') || ', "epsilon": ' || said(state ->> 'epsilon')
        || ', "kind": "filter/1", "spent": {"delta": ' || said(delta)
        || ', "epsilon": ' || said(plus(spent ->> 'epsilon', cost ->> 'epsilon'))
        || ', "mu_squared": ' || said(plus(spent ->> 'mu_squared', cost ->> 'mu_squared'))
        || ', "orders": ' || listed(spent -> 'orders') || ', "renyi": ' || listed(renyi)
        || ', "rho": ' || said(plus(spent ->> 'rho', cost ->> 'rho'))
        || '}, "split": {"approximate": ' || said(split ->> 'approximate')
        || ', "gaussian": ' || said(split ->> 'gaussian')
        || ', "renyi": ' || listed(split -> 'renyi') || '}}';
END $$;

CREATE OR REPLACE FUNCTION spend(acc text, target text, cost jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE old text; new text;
BEGIN
    SELECT state INTO old FROM totals WHERE account = acc AND who = target;
    IF old IS NULL THEN RAISE EXCEPTION 'there is no budget'; END IF;
    new := charged(old::jsonb, cost);
    IF NOT fits(new::jsonb) THEN RAISE EXCEPTION 'the charge does not fit the budget'; END IF;
    UPDATE totals SET state = new,
        seal = digest('[' || plain(acc) || ',' || plain(target) || ',' || plain(new) || ']')
        WHERE account = acc AND who = target;
END $$;

CREATE OR REPLACE FUNCTION sees(n bigint, name text) RETURNS boolean LANGUAGE sql AS $$
    SELECT EXISTS (SELECT 1 FROM entries WHERE number = n AND kind = 'charge' AND who = name)
        OR EXISTS (SELECT 1 FROM seen WHERE number = n AND who = name)
$$;

CREATE OR REPLACE FUNCTION is_loss(given jsonb) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
DECLARE way jsonb; pair jsonb;
BEGIN
    -- Of the shape in which losses are stored; what its parts say is read by who verifies.
    IF jsonb_typeof(given) <> 'object' OR given - ARRAY['kind', 'ways'] <> '{}'
        OR given ->> 'kind' IS DISTINCT FROM 'loss/1'
        OR jsonb_typeof(given -> 'ways') IS DISTINCT FROM 'array' OR given -> 'ways' = '[]' THEN
        RETURN false;
    END IF;
    FOR way IN SELECT * FROM jsonb_array_elements(given -> 'ways') LOOP
        IF jsonb_typeof(way) <> 'array' THEN RETURN false; END IF;
        FOR pair IN SELECT * FROM jsonb_array_elements(way) LOOP
            IF jsonb_typeof(pair) <> 'array' OR jsonb_array_length(pair) <> 2
                OR (pair -> 0)::text COLLATE "C" !~ '^[1-9][0-9]{0,18}$'
                OR jsonb_typeof(pair -> 1) <> 'object'
                OR NOT coalesce(pair -> 1 ->> 'part' = ANY ({parts}), false) THEN
                RETURN false;
            END IF;
        END LOOP;
    END LOOP;
    RETURN true;
END $$;

CREATE OR REPLACE FUNCTION take_turn() RETURNS bigint LANGUAGE sql SECURITY DEFINER
    SET search_path = hubbub, pg_temp AS $$ SELECT version FROM turn FOR UPDATE $$;

CREATE OR REPLACE FUNCTION head() RETURNS TABLE (number bigint, digest text) LANGUAGE sql SECURITY DEFINER
    SET search_path = hubbub, pg_temp AS $$
    SELECT entries.number, entries.digest FROM entries ORDER BY entries.number DESC LIMIT 1
$$;

CREATE OR REPLACE FUNCTION known(acc text, key text) RETURNS SETOF entries LANGUAGE sql SECURITY DEFINER
    SET search_path = hubbub, pg_temp AS $$
    -- The charge of a question, which who asks for it knows, and what it is combined with; to those alone
    -- who have a budget there.
    WITH line AS (SELECT entries.* FROM charges JOIN entries USING (number)
        WHERE charges.account = acc AND charge_key = key
        AND EXISTS (SELECT 1 FROM totals WHERE totals.account = acc AND who = session_user))
    SELECT * FROM line UNION ALL
    SELECT entries.* FROM line, jsonb_array_elements_text(coalesce(line.body::jsonb -> 'with', '[]')) AS part
        JOIN entries ON entries.number = part::bigint
$$;

CREATE OR REPLACE FUNCTION add_line(
    n bigint, acc text, knd text, mom text, bod text, prev text, dig text, rest text
) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = hubbub, pg_temp AS $$
DECLARE
    me text := session_user; last entries; body jsonb; opening jsonb; of bigint; line entries; part text;
BEGIN
    IF num_nulls(n, acc, knd, mom, bod, prev, dig) > 0 THEN RAISE EXCEPTION 'the line is not whole'; END IF;
    PERFORM take_turn();
    SELECT * INTO last FROM entries ORDER BY number DESC LIMIT 1;
    SELECT entries.body::jsonb INTO opening FROM entries WHERE account = acc AND kind = 'open';
    IF opening IS NULL OR n <> last.number + 1 OR prev <> last.digest THEN
        RAISE EXCEPTION 'the line is not the next one';
    END IF;
    IF dig <> digest('[' || n || ',' || plain(acc) || ',' || plain(knd) || ',' || plain(me)
        || ',' || plain(mom) || ',' || plain(bod) || ',' || plain(prev) || ']') THEN
        RAISE EXCEPTION 'the digest is not that of the line';
    END IF;
    IF mom COLLATE "C" !~ '^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}[.][0-9]{6}[+]00:00$'
        OR bod COLLATE "C" ~ '[^ -~]'
        OR mom::timestamptz NOT BETWEEN clock_timestamp() - interval '1 minute'
            AND clock_timestamp() + interval '1 minute' THEN
        RAISE EXCEPTION 'the line is not as lines are written';
    END IF;
    body := bod::jsonb;
    IF knd <> 'release' AND EXISTS (SELECT 1 FROM entries WHERE account = acc AND kind = 'close') THEN
        RAISE EXCEPTION 'the account is closed';
    END IF;
    IF knd = 'charge' THEN
        IF NOT body ?& ARRAY['what', 'dataset', 'loss', 'cost', 'unit', 'neighbours', 'fingerprint', 'key']
            OR body - ARRAY['what', 'dataset', 'loss', 'cost', 'unit', 'neighbours', 'fingerprint', 'key']
                - 'with' - 'attempt' <> '{}'
            OR jsonb_typeof(body -> 'key') NOT IN ('string', 'null')
            OR jsonb_typeof(body -> 'what') <> 'string' OR jsonb_typeof(body -> 'dataset') <> 'string'
            OR jsonb_typeof(body -> 'fingerprint') <> 'string'
            OR jsonb_typeof(coalesce(body -> 'with', '[]')) <> 'array'
            OR NOT is_loss(body -> 'loss')
            OR body -> 'unit' IS DISTINCT FROM opening -> 'unit'
            OR body -> 'neighbours' IS DISTINCT FROM opening -> 'neighbours' THEN
            RAISE EXCEPTION 'the line does not say what it should';
        END IF;
        FOR part IN SELECT * FROM jsonb_array_elements_text(coalesce(body -> 'with', '[]')) LOOP
            IF NOT sees(part::bigint, me) OR NOT EXISTS (SELECT 1 FROM charges
                WHERE number = part::bigint AND account = acc AND released IS NOT NULL) THEN
                RAISE EXCEPTION 'it is combined with what was not seen';
            END IF;
        END LOOP;
        PERFORM spend(acc, '', body -> 'cost');
        PERFORM spend(acc, me, body -> 'cost');
        INSERT INTO charges VALUES (n, acc, body ->> 'key', NULL);
    ELSIF knd = 'seen' THEN
        of := (body ->> 'charge')::bigint;
        SELECT * INTO line FROM entries WHERE number = of AND account = acc AND kind = 'charge';
        IF line.number IS NULL OR sees(of, me) OR body <> jsonb_build_object('charge', of) THEN
            RAISE EXCEPTION 'there is nothing to see';
        END IF;
        FOR part IN SELECT * FROM jsonb_array_elements_text(coalesce(line.body::jsonb -> 'with', '[]')) LOOP
            IF NOT sees(part::bigint, me) THEN RAISE EXCEPTION 'a part of it was not seen'; END IF;
        END LOOP;
        PERFORM spend(acc, me, line.body::jsonb -> 'cost');
        INSERT INTO seen VALUES (of, me);
    ELSIF knd = 'release' THEN
        of := (body ->> 'charge')::bigint;
        IF NOT EXISTS (SELECT 1 FROM entries JOIN charges USING (number)
            WHERE number = of AND entries.account = acc
            AND entries.kind = 'charge' AND entries.who = me AND released IS NULL)
            OR rest IS NULL OR body <> jsonb_build_object('charge', of, 'release', digest(plain(rest))) THEN
            RAISE EXCEPTION 'there is nothing to release';
        END IF;
        INSERT INTO releases VALUES (of, rest);
        UPDATE charges SET released = n WHERE number = of;
    ELSE
        RAISE EXCEPTION 'an analyst adds no such lines';
    END IF;
    INSERT INTO entries VALUES (n, acc, knd, me, mom, bod, prev, dig);
END $$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA hubbub FROM PUBLIC;
"""


def admitting(name: str, role: str) -> str:
    """The statements that let a role of the database in; owner's words, in the schema `hubbub`."""
    from psycopg import sql

    if role not in _ROLES:
        raise InvalidInput("there is no such role", why="it must be known what it may do", fix="see admit()")
    named = sql.Identifier(name).as_string()
    functions = FUNCTIONS.replace("{parts}", f"ARRAY{sorted(PART_NAMES)}")
    grants = {"spender": _SPENDER, "analyst": functions + _LOOKER + _ANALYST, "reader": _LOOKER}[role]
    # What it may do as another role ends first.
    text = f"REVOKE ALL ON ALL TABLES IN SCHEMA hubbub FROM {named};"
    text += f"REVOKE ALL ON ALL FUNCTIONS IN SCHEMA hubbub FROM {named};"
    text += grants.replace("{name}", named)
    for table, mine in MINE.items():
        for other in _ROLES:
            before = sql.Identifier(f"{other} {name}"[:63]).as_string()
            text += f"DROP POLICY IF EXISTS {before} ON {table};"
        policy = sql.Identifier(f"{role} {name}"[:63]).as_string()
        which = mine if role == "analyst" else "true"
        what = "ALL" if role == "spender" else "SELECT"
        text += f"CREATE POLICY {policy} ON {table} "
        text += f"FOR {what} TO {named} USING ({which});"
    return f"GRANT USAGE ON SCHEMA hubbub TO {named}; {text}"


class AnalystRows:
    """The same statements for one who may not write: each line goes through the owner's function.

    Reads are her own, by row-level security, but for the head of the chain and the charge of a key she has.
    """

    def __init__(self, rows: Any) -> None:
        self._rows = rows
        self._line: tuple[Any, ...] | None = None
        self._known: dict[int, tuple[Any, ...]] = {}
        self._release: str | None = None

    def head(self) -> tuple[int, str] | None:
        """The number and the digest of the last line."""
        found = self._rows.run("SELECT number, digest FROM head()")
        return (int(found[0][0]), str(found[0][1])) if found else None

    def now(self) -> str:
        """By the server's clock: the function takes no other's."""
        utc = "SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US')"
        return f"{self._rows.run(utc)[0][0]}+00:00"

    def run(self, text: str, given: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, or what stands for it."""
        verb, _, rest = text.partition(" ")
        if verb == "SELECT":
            return self._read(text, given)
        table = rest.removeprefix("INTO ").split()[0]
        if (verb, table) == ("INSERT", "totals"):
            return []  # the function adds up by itself
        if (verb, table) == ("INSERT", "entries"):
            self._line = tuple(given)
        elif (verb, table) == ("INSERT", "releases"):
            self._release = given[1]
        elif table in {"charges", "seen"}:  # the last statement of each line
            self._add()
        else:
            self._line = ()
        return []

    def each(self, text: str, given: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        """Run one statement, row by row."""
        rows: Iterator[tuple[Any, ...]] = self._rows.each(text, given)
        return rows

    def _read(self, text: str, given: Sequence[Any]) -> list[tuple[Any, ...]]:
        if text.startswith("SELECT number FROM charges WHERE account = ? AND charge_key = ?"):
            found = self._rows.run("SELECT * FROM known(?, ?)", given)
            self._known |= {int(row[0]): row for row in found}
            return [found[0][:1]] if found else []
        found = self._rows.run(text, given)
        if not found and text.endswith("FROM entries WHERE number = ?") and given[0] in self._known:
            return [self._known[given[0]]]
        rows: list[tuple[Any, ...]] = found
        return rows

    def finish(self) -> None:
        """Refuse what only the owner writes: nothing may seem to be written that is not."""
        if self._line is not None or self._release is not None:
            raise LedgerFailed(
                "this role cannot do this",
                why="an analyst adds charges and releases of her own, and nothing else",
                fix="ask the owner",
            )

    def _add(self) -> None:
        if not self._line:
            self.finish()
        assert self._line is not None
        number, account, kind, _, moment, body, previous, digest = self._line
        given = (number, account, kind, moment, body, previous, digest, self._release)
        self._rows.run("SELECT add_line(?, ?, ?, ?, ?, ?, ?, ?)", given)
        self._line = self._release = None
