"""A signed head finds what was cut off, with the public key alone; a secret seals what was released."""

import json
import stat
from fractions import Fraction
from pathlib import Path

import pytest

import hubbub as hb
from cli.terminal import run
from hubbub.accounting import PrivacyLoss
from hubbub.errors import InvalidInput, LedgerFailed, Refused
from hubbub.ledger import Ledger, check_signature, new_secret, new_signing_key
from hubbub.ledger.entries import START
from hubbub.ledger.stored_outcomes import charge_and_run
from internals import seal_of, store_of
from ledger.storage import File, account

pytest.importorskip("cryptography", reason="cryptography is not installed")

TENTH = PrivacyLoss.pure(Fraction(1, 10))
ANSWER = '{"n": 12345678}'


@pytest.fixture
def keys(tmp_path):
    for name in ("owner", "other"):
        new_signing_key(tmp_path / name)
        new_secret(tmp_path / f"{name}.secret")
    return tmp_path


def test_key_file_is_private_and_not_overwritten(keys):
    for name in ("owner", "owner.secret"):
        assert stat.S_IMODE((keys / name).stat().st_mode) == 0o600
    for make in (new_signing_key, new_secret):
        before = (keys / "owner").read_bytes()
        with pytest.raises(InvalidInput, match="the key cannot be written"):
            make(keys / "owner")
        assert (keys / "owner").read_bytes() == before


def test_signed_head_finds_truncation_and_rewriting(storage, keys):
    with storage.open() as ledger:
        owner = account(ledger)
        empty = ledger.sign(keys / "owner")
        owner.charge("a count", TENTH)
        owner.record_nonprivate_access("rows")
        text = ledger.sign(keys / "owner")
        owner.record_nonprivate_access("more rows")
        head = check_signature(text, keys / "owner.pub")
        assert (head.entries, ledger.verify(head.digest).ok) == (3, True)
        assert check_signature(empty, keys / "owner.pub").entries == 1
    storage.attack("DELETE FROM entries WHERE number > 2")
    storage.forget()
    with storage.open() as ledger:
        assert ledger.verify().ok
        assert "not in the chain" in ledger.verify(head.digest).problem


def test_signature_of_another_key_is_refused(keys, tmp_path):
    with Ledger.open(tmp_path / "x.ledger") as ledger:
        text = ledger.sign(keys / "owner")
        assert check_signature(text, keys / "owner.pub").digest == START
        forgeries = [ledger.sign(keys / "other"), "{}", "[]", "nonsense", text.replace(START, "1" * 64)]
        stated = json.loads(text)
        forgeries += [
            json.dumps({**stated, name: value})
            for name, value in (("entries", 1), ("timestamp", "x"), ("format", "x"), ("signature", "AAAA"))
        ]
        for forged in forgeries:
            with pytest.raises(InvalidInput, match="does not match this public key"):
                check_signature(forged, keys / "owner.pub")
        for wrong in ("owner.pub", "owner.secret", "not in the chain"):
            with pytest.raises(InvalidInput, match="the file is not a"):
                ledger.sign(keys / wrong)
        with pytest.raises(InvalidInput, match="the file is not a"):
            check_signature(text, keys / "owner")


# Seals


def sealed(storage, secret):
    return Ledger.open(storage.address, secret=secret)


def test_encrypted_release_is_read_with_its_secret_only(storage, keys):
    storage.open().close()
    with sealed(storage, keys / "owner.secret") as ledger:
        spender = account(ledger)
        number = spender.record_charge("a count", TENTH).number
        assert spender.record_release(number, ANSWER) == ANSWER
        assert spender.get_release(number) == ANSWER
        assert spender.record_release(number, "another") == ANSWER
        assert ledger.verify().ok
    ((stored,),) = storage.attack("SELECT body FROM releases")
    assert stored.startswith("encrypted/1 ")
    assert "12345678" not in stored
    for other in (None, keys / "other.secret"):
        with sealed(storage, other) as ledger:
            with pytest.raises(LedgerFailed, match="encrypted with another secret"):
                ledger.account("visits").get_release(number)
            assert ledger.verify().ok  # which needs no secret


def test_nothing_is_stored_in_clear_beside_encrypted_releases(storage, keys):
    with sealed(storage, keys / "owner.secret") as ledger:
        owner = account(ledger)
        owner.record_release(owner.record_charge("a count", PrivacyLoss.pure(Fraction(1, 10))).number, "42")
    with storage.open() as ledger:
        owner = ledger.account("visits")
        number = owner.record_charge("a sum", PrivacyLoss.pure(Fraction(1, 10))).number
        with pytest.raises(Refused, match="opened without its secret"):
            owner.record_release(number, "43")
        assert owner.get_release(number) is None


def test_charge_is_refused_if_its_outcome_could_not_be_sealed(folder, keys):
    place = File(folder / "x.ledger")
    with sealed(place, keys / "owner.secret") as ledger:
        charge_and_run(account(ledger), lambda _: "42", what="a count", loss=TENTH, key="one")
    with place.open() as ledger:
        with pytest.raises(Refused, match="opened without its secret"):
            charge_and_run(ledger.account("visits"), lambda _: "42", what="a sum", loss=TENTH, key="two")
        assert ledger.account("visits").spent().epsilon == Fraction(1, 10)


@pytest.mark.parametrize("spoil", ["no key", "", "QUJD", None])
def test_unreadable_key_is_reported_before_the_charge(folder, spoil):
    place = File(folder / "x.ledger")
    with place.open() as ledger:
        charge_and_run(account(ledger), lambda _: "42", what="a count", loss=TENTH, key="one")
        path = ledger.key_path
        path.unlink()
        if spoil is None:
            path.symlink_to(folder / "not in the chain")
        else:
            path.write_text(spoil)
        for key in ("one", "two"):
            with pytest.raises(LedgerFailed, match="cannot be read") as caught:
                charge_and_run(ledger.account("visits"), lambda _: "42", what="a count", loss=TENTH, key=key)
            assert "or remove it" in str(caught.value)
        assert ledger.account("visits").spent().epsilon == Fraction(1, 10)


def test_encrypted_release_is_bound_to_its_entry(storage, keys):
    storage.open().close()
    with sealed(storage, keys / "owner.secret") as ledger:
        spender = account(ledger)
        numbers = [spender.record_charge("a count", TENTH).number for _ in range(2)]
        for number in numbers:
            spender.record_release(number, ANSWER)
        texts = [
            store_of(spender).read(
                lambda rows, n=n: rows.execute("SELECT body FROM releases WHERE number = ?", (n,))
            )[0][0]
            for n in numbers
        ]
        assert texts[0] != texts[1]
        digests = {entry.number: entry.digest for entry in spender.entries()}
        assert seal_of(spender).unseal(texts[0], digests[numbers[0]]) == ANSWER
        with pytest.raises(LedgerFailed, match="encrypted"):
            seal_of(spender).unseal(texts[0], digests[numbers[1]])


def test_unencrypted_release_is_not_shown_with_a_secret(folder, keys):
    place = File(folder / "x.ledger")
    with place.open() as ledger:
        spender = account(ledger)
        number = spender.record_charge("a count", TENTH, key="k", fingerprint="q").number
        spender.record_release(number, ANSWER)
    with sealed(place, keys / "owner.secret") as ledger:
        spender = ledger.account("visits")
        with pytest.raises(LedgerFailed, match="is not authenticated"):
            spender.get_release(number)
        again = spender.record_charge("a count", TENTH, key="k", fingerprint="q")
        assert (again.is_new, spender.spent().epsilon) == (True, Fraction(1, 5))
        spender.record_release(again.number, ANSWER)
        assert not spender.record_charge("a count", TENTH, key="k", fingerprint="q").is_new
        assert ledger.verify().ok


def test_invalid_secret_is_refused(folder, keys):
    for wrong in ("owner", "not in the chain"):
        with pytest.raises(InvalidInput, match="the file is not a key"):
            Ledger.open(folder / "x.ledger", secret=keys / wrong)
    assert not (folder / "x.ledger").exists()


# From the shell


def test_from_the_shell(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("visits.csv").write_text("patient\n" + "\n".join(map(str, range(100))))
    Path("hubbub.toml").write_text(
        'ledger = "visits.ledger"\nsecret = "releases.key"\nrows_per_unit = 1\n[budget]\nepsilon = 1\n'
        '[tables.visits]\npath = "visits.csv"\nunit = "patient"\n'
    )
    assert run("ledger", "key", "owner.key").code == 0
    assert run("ledger", "key", "releases.key", "--secret").code == 0
    words = ("query", "visits.csv", "SELECT COUNT(*) AS n FROM visits", "--epsilon", "0.5")
    first = run(*words)
    assert first.code == 0
    again = run(*words)
    assert again.stdout.split("asked before")[0] == first.stdout.split("spent")[0]
    with Ledger.open("visits.ledger") as ledger, pytest.raises(LedgerFailed, match="encrypted"):
        ledger.account("visits").get_release(3)
    assert run("ledger", "sign", "--key", "owner.key", "--output", "head.json").code == 0
    assert "OK" in run("ledger", "verify", "--signed", "head.json", "--public", "owner.key.pub").stdout
    assert (
        "does not match this public key"
        in run("ledger", "verify", "--signed", "hubbub.toml", "--public", "owner.key.pub").stderr
    )
    assert "without --public" in run("ledger", "verify", "--signed", "head.json").stderr
    assert json.loads(run("ledger", "sign", "--key", "owner.key").stdout)["entries"] == 4
    with hb.open("visits.csv") as data:
        data.account.close()
    File(tmp_path / "visits.ledger").attack("DELETE FROM entries WHERE number >= 3")
    File(tmp_path / "visits.ledger").forget()
    out = run("ledger", "verify", "--signed", "head.json", "--public", "owner.key.pub")
    assert (out.code, "NOT OK" in out.stdout) == (1, True)
