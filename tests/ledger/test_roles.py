"""An analyst charges with a role of her own: what her function lets through, and what raw SQL cannot."""

import json
from fractions import Fraction

import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import hubbub as hb
from hubbub.errors import BudgetExceeded, LedgerFailed, Refused
from hubbub.ledger import Ledger
from hubbub.ledger.book import START, cost_to_plain, digest, now, plain_text
from hubbub.loss import Budget, Cost, Filter, Loss
from hubbub.loss.stored import loss_to_json
from ledger.places import PATIENT, account

psycopg = pytest.importorskip("psycopg", reason="psycopg is not installed")

TENTH = Loss.pure(Fraction(1, 10))
TABLES = ("entries", "totals", "charges", "seen", "releases", "turn")


@pytest.fixture
def roles(database):
    with database.open() as ledger:
        owner = account(ledger, 1, 1e-6)
        ledger.account("sales", PATIENT, Budget(1))
        for who in ("ada", "bob"):
            owner.grant(who, Budget(0.5, 1e-7))
            database.attack(f"CREATE ROLE {who} LOGIN")
            ledger._store.admit(who, "analyst")
        for name, role in (("rita", "reader"), ("sven", "spender")):
            database.attack(f"CREATE ROLE {name} LOGIN")
            ledger._store.admit(name, role)
    yield database
    for name in ("ada", "bob", "rita", "sven"):
        database.attack(f"DROP OWNED BY {name}; DROP ROLE {name}")


def as_role(roles, name):
    return Ledger.open(roles.server.address(name))


def analyst(ledger, name):
    return ledger.account("visits").for_analyst(name)


def is_whole(roles):
    with roles.open() as ledger:
        found = ledger.verify()
        assert found.is_whole, found.problem
        return True


def test_an_analyst_charges_and_keeps_with_her_own_role(roles):
    with as_role(roles, "ada") as ledger:
        ada = analyst(ledger, "ada")
        charge = ada.begin("wie viele? ß 😀", TENTH, key="k")
        assert (charge.is_new, ada.begin("wie viele? ß 😀", TENTH, key="k").is_new) == (True, False)
        assert ada.keep(charge.number, "zwölf 😀\n\x7f") == "zwölf 😀\n\x7f"
        assert ada.keep(charge.number, "another") == ada.released(charge.number) == "zwölf 😀\n\x7f"
        ada.charge("noise", Loss.gaussian(Fraction(1, 100)))
        assert ada.spent.rho > 0
        with pytest.raises(BudgetExceeded, match="the budget of ada"):
            ada.charge("too much", Loss.pure(Fraction(1, 2)))
    with roles.open() as ledger:
        assert ledger.account("visits").spent == ledger.account("visits").analysts()["ada"].spent
    assert is_whole(roles)


def test_an_answer_of_another_is_seen_for_its_price_and_not_before(roles):
    with as_role(roles, "ada") as ledger:
        ada = analyst(ledger, "ada")
        first = ada.begin("a count", TENTH, key="f 1", fingerprint="1", related="f")
        ada.keep(first.number, "42")
        second = ada.begin("a count", TENTH, key="f 2", fingerprint="2", related="f")
        assert second.parts == (first.number,)
        ada.keep(second.number, "43")
    with as_role(roles, "bob") as ledger:
        bob = analyst(ledger, "bob")
        assert roles.attack("SELECT * FROM releases", user="bob") == []
        assert bob.begin("a count", TENTH, key="f 2", fingerprint="2").number == second.number
        assert (bob.released(second.number), bob.released(first.number)) == ("43", "42")
        assert bob.spent.epsilon == Fraction(1, 5)
        with pytest.raises(Refused, match="another question"):
            bob.begin("a sum", TENTH, key="f 2")
    with roles.open() as ledger:
        assert ledger.account("visits").spent.epsilon == Fraction(1, 5)
    assert is_whole(roles)


def test_a_dataset_is_asked_with_her_own_role(roles):
    rows = pd.DataFrame({"patient": range(100)})
    with hb.open(
        {"visits": rows}, unit="patient", ledger=roles.server.address("ada"), analyst="ada", rows_per_unit=1
    ) as data:
        plan = data.sql("SELECT COUNT(*) AS n FROM visits", epsilon=0.25)
        first = data.run(plan).value["n"]
        assert data.run(plan).value["n"] == first
        with pytest.raises(Refused, match="only the owner"):
            data.exact(plan)
    assert is_whole(roles)


def test_she_cannot_act_for_somebody_else(roles):
    with as_role(roles, "ada") as ledger:
        for other in (ledger.account("visits"), analyst(ledger, "bob"), ledger.account("sales")):
            with pytest.raises((LedgerFailed, Refused)):
                other.charge("a count", TENTH)
        owner = ledger.account("visits")
        for act in (
            lambda: owner.grant("ada", Budget(1)),
            lambda: owner.exact("rows"),
            owner.close,
            lambda: owner.version("2", "visits"),
            lambda: ledger.account("mine", PATIENT, Budget(9)),
            lambda: ledger._store.admit("ada", "spender"),
        ):
            with pytest.raises(LedgerFailed):
                act()
    for name in ("rita",):
        with as_role(roles, name) as ledger, pytest.raises(LedgerFailed):
            analyst(ledger, name).charge("a count", TENTH)
        for text in ("SELECT take_turn()", "SELECT * FROM head()", "SELECT * FROM known('visits', 'k')"):
            with pytest.raises(psycopg.Error):
                roles.attack(text, user=name)
    assert is_whole(roles)


# Raw SQL


def line(roles, who="ada", kind="charge", rest=None, **changed):
    """The next line as it should be, with what is changed; its digest is right unless that is changed."""
    found = roles.attack("SELECT number, digest FROM entries ORDER BY number DESC LIMIT 1")
    number, previous = found[0] if found else (0, START)
    body = {
        "what": "a count",
        "dataset": "",
        "loss": json.loads(loss_to_json(TENTH)),
        "cost": cost_to_plain(TENTH.cost()),
        "unit": "patient",
        "neighbours": "add/remove",
        "fingerprint": digest("a count"),
        "key": None,
    }
    parts = {
        "number": number + 1,
        "account": "visits",
        "kind": kind,
        "who": who,
        "moment": now(),
        "body": body,
        "previous": previous,
    } | changed
    if isinstance(parts["body"], dict):
        parts["body"] = plain_text(parts["body"])
    mark = changed.get(
        "digest",
        digest([parts[name] for name in ("number", "account", "kind", "who", "moment", "body", "previous")]),
    )
    return (
        parts["number"],
        parts["account"],
        parts["kind"],
        parts["moment"],
        parts["body"],
        parts["previous"],
        mark,
        rest,
    )


def add(roles, given, user="ada"):
    roles.attack("SELECT add_line(?, ?, ?, ?, ?, ?, ?, ?)", given, user=user)


def with_cost(roles, **figures):
    cost = {**cost_to_plain(TENTH.cost()), **figures}
    body = json.loads(line(roles)[4])
    return line(
        roles, body={**body, "cost": {name: value for name, value in cost.items() if value != "gone"}}
    )


def with_body(roles, **parts):
    body = json.loads(line(roles)[4])
    return line(roles, body={name: value for name, value in {**body, **parts}.items() if value != "gone"})


def released(roles, number, said="x", rest="x"):
    return line(roles, kind="release", body={"charge": number, "release": digest(said)}, rest=rest)


def seeing(roles, number, **more):
    return line(roles, kind="seen", body={"charge": number, **more})


NO_COSTS = [
    *(("epsilon", value) for value in ("-1/10", "0.1", "1/0", " 1", "gone", 0, ["1"])),
    *(("delta", value) for value in (None, "-1", "1/2")),
    *(("renyi", value) for value in ([], "gone", ["-1"] * 34)),
    *(("rho", "1e3"), ("mu_squared", {}), ("rho", "gone")),
]


def forgeries(roles, first, second, mine, third):
    """Lines that must not go through: all but `mine` are bob's, `second` is combined with `first`."""
    yield "not the next number", line(roles, number=99)
    yield "a number again", line(roles, number=1)
    yield "not the last digest", line(roles, previous=START)
    yield "no digest of it", line(roles, digest=START)
    yield "another's name", line(roles, who="bob")
    yield "the owner's name", line(roles, who="")
    yield "another account", line(roles, account="sales")
    yield "no account", line(roles, account="nowhere")
    for kind in ("open", "grant", "close", "exact", "version", "gift"):
        yield f"a line {kind}", line(roles, kind=kind)
    yield "no moment", line(roles, moment="now")
    yield "another time", line(roles, moment="2026-01-01T00:00:00.000000+00:00")
    yield "no JSON", line(roles, body="{")
    yield "no object", line(roles, body="[]")
    yield "letters beyond ASCII", line(roles, body='{"charge":"é"}')
    for name, value in NO_COSTS:
        yield f"a cost whose {name} is {value!r}", with_cost(roles, **{name: value})
    for value in (["epsilon", "delta", "mu_squared", "rho"], "epsilon", "gone"):
        yield f"the cost {value!r}", with_body(roles, cost=value)
    yield "more than her budget", with_cost(roles, epsilon="3/5", renyi=[None] * 34)
    for value in (
        None,
        "x",
        {},
        {"kind": "loss/1", "ways": []},
        {"kind": "loss/1", "ways": [[[1, {"part": "x"}]]]},
    ):
        yield f"the loss {value!r}", with_body(roles, loss=value)
    yield "more than a charge says", with_body(roles, more=1)
    yield "what is no text", with_body(roles, what=1)
    yield "another unit", with_body(roles, unit=None)
    yield "another relation", with_body(roles, neighbours="substitute")
    yield "no key", with_body(roles, key=7)
    for part in (first, 1, mine):
        yield f"combined with {part}", with_body(roles, **{"with": [part]})
    yield "sees her own", seeing(roles, mine)
    yield "sees no charge", seeing(roles, 1)
    yield "sees a part of it only", seeing(roles, second)
    yield "sees with more to say", seeing(roles, first, x=1)
    yield "releases bob's", released(roles, third)
    yield "releases bob's again", released(roles, first)
    yield "releases another text", released(roles, mine, rest="y")
    yield "releases nothing", released(roles, mine, rest=None)


def contents(roles):
    return [sorted(map(str, roles.attack(f"TABLE {table}"))) for table in TABLES]


def test_no_line_that_is_not_as_it_must_be_goes_through(roles):
    with roles.open() as ledger:
        owner = ledger.account("visits")
        bob = owner.for_analyst("bob")
        first = bob.begin("his", TENTH, key="f 1", related="f").number
        bob.keep(first, "42")
        second = bob.begin("his", TENTH, key="f 2", related="f").number
        mine = owner.for_analyst("ada").begin("hers", TENTH).number
        third = bob.begin("his", TENTH).number
    before = contents(roles)
    went_through = []
    for name, forged in forgeries(roles, first, second, mine, third):
        try:
            add(roles, forged)
            went_through.append(name)
        except psycopg.Error:
            pass
    for place in range(7):
        empty = [*line(roles)]
        empty[place] = None
        with pytest.raises(psycopg.Error):
            add(roles, empty)
    assert went_through == []
    assert contents(roles) == before
    add(roles, line(roles))  # as it should be, it goes through
    assert is_whole(roles)


def test_a_closed_account_is_charged_by_nobody(roles):
    with roles.open() as ledger:
        ledger.account("visits").close()
    with pytest.raises(psycopg.Error, match="closed"):
        add(roles, line(roles))


def test_a_line_that_costs_too_little_pays_for_nothing_and_is_found(roles):
    cheap = {**json.loads(line(roles)[4]), "key": "k"}
    cheap["cost"] = cost_to_plain(Cost.of(epsilon=Fraction(1, 10**6)))
    add(roles, line(roles, body=cheap))
    with as_role(roles, "sven") as ledger, pytest.raises(Refused, match="at another cost"):
        analyst(ledger, "ada").begin("a count", TENTH, key="k")  # who holds the rows does not run it
    with roles.open() as ledger:
        assert ledger.verify().problem.endswith("was charged less than it costs")


# The function adds up as the filter does

FIGURES = st.one_of(
    st.fractions(0, Fraction(1, 5), max_denominator=1000),
    st.integers(2**250, 2**257).map(lambda bottom: Fraction(1, bottom)),
)
COSTS = st.one_of(
    FIGURES.map(lambda epsilon: Cost.of(epsilon=epsilon)),
    FIGURES.map(lambda mu: Cost.of(mu_squared=mu)),
    st.builds(lambda epsilon, delta: Cost.of(epsilon=epsilon, delta=delta / 10**7), FIGURES, FIGURES),
    st.just(Cost.of(epsilon=2**64)),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(COSTS, max_size=8))
def test_the_function_adds_up_as_the_filter_does(roles, costs):
    total = Filter(Budget(1, 1e-6))
    with roles.connect() as connection:
        for cost in costs:
            text = connection.execute(
                "SELECT charged(%s::jsonb, %s::jsonb)", (total.to_json(), plain_text(cost_to_plain(cost)))
            ).fetchone()[0]
            fits = connection.execute("SELECT fits(%s::jsonb)", (text,)).fetchone()[0]
            assert fits == total.allows(cost)
            if not fits:
                break
            total = total.charge(cost)
            assert text == total.to_json()


@pytest.mark.parametrize("margin", [Fraction(-1, 10**9), Fraction(1, 10**9)])
def test_the_function_knows_the_same_limit(roles, margin):
    """Gaussian noise up to a billionth from all that fits, and beyond it."""
    total = Filter(Budget(1, 1e-6))
    low, high = Fraction(0), Fraction(1)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if total.allows(Cost.of(mu_squared=middle)) else (low, middle)
    cost = Cost.of(mu_squared=low * (1 + margin))
    assert total.allows(cost) == (margin < 0)
    given = (total.to_json(), plain_text(cost_to_plain(cost)))
    assert roles.attack("SELECT fits(charged(?::jsonb, ?::jsonb)::jsonb)", given) == [(margin < 0,)]


def test_who_becomes_a_reader_or_an_analyst_is_no_spender_any_more(roles):
    with roles.open() as ledger:
        for role in ("analyst", "reader"):
            ledger._store.admit("sven", "spender")
            ledger._store.admit("sven", role)
            for table in ("entries", "totals", "charges"):
                found = roles.attack(
                    "SELECT has_any_column_privilege('sven', ?, 'INSERT, UPDATE')", (f"hubbub.{table}",)
                )
                assert found == [(False,)]
        ledger._store.admit("rita", "analyst")
        ledger._store.admit("rita", "reader")
        ledger._store.admit("rita", "analyst")
    assert roles.attack("SELECT count(*) FROM entries WHERE kind = 'grant'", user="rita") == [(0,)]


def test_the_charge_of_a_key_is_known_to_those_with_a_budget_there(roles):
    with roles.open() as ledger:
        ledger.account("sales").begin("a count", TENTH, key="k")
        ledger.account("visits").begin("a count", TENTH, key="k")
    assert len(roles.attack("SELECT * FROM known('visits', 'k')", user="ada")) == 1
    assert roles.attack("SELECT * FROM known('sales', 'k')", user="ada") == []
