"""Ledgers that were written by earlier versions are read, and mean what they meant."""

import shutil
from fractions import Fraction
from pathlib import Path

import pytest

from hubbub.accounting import PrivacyLoss
from hubbub.accounting.serialization import decode_loss
from hubbub.errors import InvalidInput, Refused
from hubbub.ledger import Ledger
from hubbub.unit import Neighbours, Unit, Window
from ledger.data.write import write_first, write_second
from ledger.storage import forget

DATA = Path(__file__).parent / "data"
FIRST, SECOND = DATA / "first.ledger", DATA / "second.ledger"
HEAD, SECOND_HEAD = ((DATA / f"{name}.head").read_text().strip() for name in ("first", "second"))


def copied(path, folder):
    """A copy with its key, taken over as an owner does who says that nothing was spent since."""
    for name in (path.name, f"{path.name}.key"):
        shutil.copy(path.with_name(name), folder / name)
    with pytest.raises(Refused, match="a copy"):
        Ledger.open(folder / path.name)
    forget(folder / path.name)  # another test took it over, and went on
    assert Ledger.restore(folder / path.name, spent_since={}).ok
    return Ledger.open(folder / path.name)


@pytest.fixture
def ledger(folder):
    with copied(FIRST, folder) as path:
        yield path


def test_ledger_of_an_earlier_format_is_refused(folder):
    shutil.copy(FIRST.with_name("format1.ledger"), folder / "old.ledger")
    before = (folder / "old.ledger").read_bytes()
    for open_it in (Ledger.open, Ledger.open_read_only):
        with pytest.raises(InvalidInput, match="a ledger of an earlier version"):
            open_it(folder / "old.ledger")
    assert (folder / "old.ledger").read_bytes() == before


def test_committed_ledger_is_read_the_same(ledger):
    result = ledger.verify(HEAD)
    assert (result.ok, result.entries) == (True, 15)  # two accounts, restored
    assert [entry.digest for entry in ledger.entries()][12] == HEAD
    visits, sales = ledger.account("visits"), ledger.account("sales")
    assert (visits.unit, sales.unit) == (Unit("patient"), Unit.row(Neighbours.SUBSTITUTE))
    assert (visits.privacy_filter.epsilon, visits.privacy_filter.delta) == (3, Fraction(1, 10**6))
    assert visits.privacy_filter.stage.cuts == Fraction(1, 16 * 10**6)  # as it was fixed when it opened
    assert {who: total.spent().epsilon for who, total in visits.analysts().items()} == {
        "ada": Fraction(1, 10),
        "bob": Fraction(1, 10),
    }
    assert visits.spent().delta == Fraction(1, 10**6)
    assert 1.239 < visits.spent().epsilon < 1.2396
    assert sales.is_closed
    assert visits.get_release(4) == '{"n": 42}'
    assert visits.latest_version("visits") == "2026-11"


def test_committed_losses_are_read_the_same(ledger):
    losses = [decode_loss(entry.body["loss"]) for entry in ledger.entries() if entry.kind == "charge"]
    tenth = Fraction(1, 10)
    assert losses == [
        PrivacyLoss.pure(tenth),
        PrivacyLoss.gaussian(tenth) + PrivacyLoss.approximate(tenth, Fraction(1, 10**9)),
        PrivacyLoss.gaussian(1).poisson_subsampled(Fraction(1, 100)) * 20,
        PrivacyLoss.randomized_response(Fraction(3, 4)),
    ]


def test_committed_ledger_can_be_charged_further(ledger):
    visits = ledger.account("visits")
    again = visits.for_analyst("ada").record_charge(
        "a count", PrivacyLoss.pure(Fraction(1, 10)), key="monday"
    )
    assert (again.is_new, again.number) == (False, 4)
    visits.charge("a count", PrivacyLoss.pure(Fraction(1, 10)))
    assert ledger.verify(HEAD).ok


TENTH = PrivacyLoss.pure(Fraction(1, 10))


@pytest.fixture
def second(folder):
    with copied(SECOND, folder) as path:
        yield path


def test_committed_windows_and_analysts_are_read_the_same(second):
    assert second.verify(SECOND_HEAD).ok
    november = second.account("visits", Unit("patient", window=Window.of("day", "2026-11")))
    assert november.lifetime_loss().reading.epsilon == Fraction(2, 5)
    assert not november.record_charge("a count", TENTH, unit=november.unit, key="f 2").is_new
    assert november.for_analyst("ada").spent().epsilon == Fraction(1, 10)
    assert november.get_release(11) == '{"n": 2}'


def test_windows_and_analysts_are_written_as_committed(second, folder):
    write_second(str(folder / "now.ledger"))
    with Ledger.open(folder / "now.ledger") as now:
        assert list(facts(now)) == list(facts(second))


def facts(ledger):
    """What its lines say, but for the marks, and the figures: their last digits may be another machine's."""
    for entry in ledger.entries():
        if entry.kind == "restore":
            continue
        body = {name: value for name, value in entry.body.items() if name not in {"charged", "digest"}}
        yield entry.number, entry.account, entry.kind, entry.analyst, body


def test_entries_are_written_as_committed(ledger, folder):
    write_first(str(folder / "now.ledger"))
    with Ledger.open(folder / "now.ledger") as now:
        assert list(facts(now)) == list(facts(ledger))
