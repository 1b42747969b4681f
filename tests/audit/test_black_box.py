"""An audit refutes what is wrong, does not refute what is right, and says what it saw."""

import http.server
import json
import math
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

import hubbub as hb
from audit import subjects_under_test as under_test
from hubbub.audit import Claim, InputPair, RowDomain, audit
from hubbub.audit.finding import draw_laws
from hubbub.audit.neighbours import edge_pairs, read_pairs
from hubbub.audit.outcomes import Failure, Outcomes
from hubbub.audit.subjects import (
    CommandSubject,
    EndpointSubject,
    FunctionSubject,
    MechanismSubject,
    load_function,
)
from hubbub.errors import InvalidInput, Refused
from hubbub.unit import Neighbours

DOUBT = 1e-10
"""How likely a false alarm is."""
ONE = [([1.0], [])]


def sure(subject, **more):
    return audit(subject, **{"confidence": 1 - DOUBT, "samples": 6000, **more})


@pytest.mark.parametrize(
    "mechanism",
    [
        hb.Laplace.of(sensitivity=1, epsilon=1),
        hb.Laplace.of(sensitivity=1, epsilon=1, real=True),
        hb.Gaussian.of(sensitivity=1, epsilon=1, delta=1e-3, population=100),
    ],
    ids=["integers", "reals", "gaussian"],
)
def test_correct_mechanisms_are_not_refuted(mechanism):
    delta = 1e-3 if isinstance(mechanism, hb.Gaussian) else 0
    finding = sure(mechanism, epsilon=1, delta=delta, rows="int:0:1")
    assert not finding.refuted
    assert finding.lower < 1
    assert finding.pairs_tried > 3


def test_half_the_noise_is_refuted_with_its_event():
    finding = sure(hb.Laplace.of(sensitivity=1, epsilon=2, real=True), epsilon=1, pairs=ONE)
    assert finding.refuted
    assert 1 <= finding.lower <= 2
    assert finding.samples_to_refute < 3000
    witness = finding.witness
    ratio = witness.probability_x / max(1e-3, witness.probability_x_prime)
    assert abs(math.log(ratio)) > 1
    assert "VIOLATION" in str(finding)
    assert "cannot see" in str(finding)
    assert "VIOLATION" in finding._repr_html_()


def test_lower_bound_is_sharp_and_below_the_truth():
    finding = sure(
        hb.Laplace.of(sensitivity=1, epsilon=1),
        epsilon=1,
        pairs=[([1], [])],
        samples=200_000,
        stop_early=False,
    )
    assert 0.9 < finding.lower <= 1
    hull = finding.tradeoff
    assert hull[0] == (0.0, 1.0)
    # The true curve is that of ε = 1, and the bound lies above it.
    assert all(beta >= max(1 - math.e * alpha, (1 - alpha) / math.e) for alpha, beta in hull)
    assert 0 < finding.delta_lower(0.1) < PURE_DELTA


PURE_DELTA = (math.e - math.exp(0.1)) / (1 + math.e)
"""The largest δ at ε = 0.1 under pure ε = 1."""


@pytest.mark.sweep(7)
@pytest.mark.parametrize(
    ("claim", "mu", "refuted"),
    [
        (Claim.gaussian(0.5), 0.5, False),
        (Claim.gaussian(0.5), 1.0, True),
        (Claim.zcdp(0.125), 0.5, False),
        (Claim.zcdp(0.125), 1.5, True),
        (Claim.renyi(2, 0.25), 0.5, False),
        (Claim.renyi(2, 0.25), 2.0, True),
        (Claim.delta_at(0.5, 0.06), 0.5, False),
        (Claim.delta_at(0.5, 0.06), 1.0, True),
        (Claim.of_loss(hb.PrivacyLoss.gaussian(0.5)), 0.5, False),
        (Claim.of_loss(hb.PrivacyLoss.gaussian(0.5)), 1.0, True),
    ],
)
def test_claims_of_every_kind(claim, mu, refuted):
    noise = hb.Gaussian(10 / hb.Sensitivity.of(1).linf / mu, hb.Sensitivity.of(10))
    finding = sure(noise, claim=claim, pairs=[([10], [])], samples=30_000 if refuted else 3000)
    assert finding.refuted == refuted
    assert (finding.lower >= claim.value) == refuted


def test_errors_shapes_and_atoms_are_events():
    finding = sure(under_test.fails_on_rows, epsilon=1, samples=3000)
    assert finding.refuted
    assert "ValueError" in finding.witness.event or "y" in finding.witness.event
    assert sure(under_test.returns_rows, epsilon=1, samples=3000).refuted


def test_audit_needs_one_claim_and_valid_numbers():
    for wrong in ({}, {"epsilon": 1, "claim": Claim.zcdp(1)}, {"epsilon": -1}, {"epsilon": 1, "samples": 3}):
        with pytest.raises(InvalidInput):
            audit(under_test.exact_sum, **wrong)
    with pytest.raises(InvalidInput, match="no pairs"):
        audit(under_test.exact_sum, epsilon=1, pairs=[])
    with pytest.raises(InvalidInput, match="cannot be called"):
        audit(3, epsilon=1)
    with pytest.raises(InvalidInput, match="another number of answers"):
        audit(lambda database, count: np.zeros(1), epsilon=1, batch=True)


def test_a_batch_function_is_asked_once_for_many_answers():
    finding = sure(under_test.half_noise_batch, epsilon=1, batch=True, pairs=ONE)
    assert finding.refuted


def test_times_are_events_if_asked_for():
    def slow(database):
        return sum(range(30_000 if database else 10))

    pairs = [([1.0], [])]
    finding = sure(lambda database: slow(database) and 0, epsilon=1, pairs=pairs, samples=2000, times=True)
    assert finding.refuted
    assert finding.witness.score == "seconds" or "learned" in finding.witness.score
    assert not sure(lambda database: slow(database) and 0, epsilon=1, pairs=pairs, samples=2000).refuted


class _Drifting:
    """Answers nothing of the database, and takes a time that depends on how often it was called alone."""

    name, is_timed = "drifting", True

    def __init__(self, law):
        self.law, self.calls = law, 0

    def draw(self, database, count):
        return self.draw_each([database] * count)

    def draw_each(self, databases):
        seconds = np.array([self.law(self.calls + place) for place in range(len(databases))])
        self.calls += len(databases)
        return Outcomes.of(np.zeros(len(databases)), seconds)


@pytest.mark.parametrize(
    "law",
    [lambda call: call, lambda call: call % 2, lambda call: (call // 32) % 2],
    ids=["up", "two", "blocks"],
)
def test_times_that_drift_are_no_leak(law):
    finding = sure(_Drifting(law), epsilon=0, pairs=ONE, samples=3000)
    assert not finding.refuted
    assert finding.tradeoff == ((0.0, 1.0), (1.0, 0.0))


def test_times_of_a_subject_that_is_not_timed_are_not_bet_on():
    class Blocks(_Drifting):
        is_timed = False

    assert not sure(Blocks(lambda call: (call // 32) % 2), epsilon=0.1, pairs=ONE, samples=2000).refuted


# Inputs


def test_edge_pairs_differ_in_one_person():
    for domain in (RowDomain(), RowDomain.parse("int:0:120"), RowDomain.parse("red,green,blue")):
        for pair in edge_pairs(domain, beyond_bounds=True):
            assert len(pair.x) == len(pair.x_prime) + 1
        for pair in edge_pairs(domain, Neighbours.SUBSTITUTE):
            assert len(pair.x) == len(pair.x_prime)
            assert sum(a != b for a, b in zip(pair.x, pair.x_prime, strict=True)) == 1
    names = " ".join(pair.name for pair in edge_pairs(RowDomain(), beyond_bounds=True))
    for word in ("empty", "tie", "duplicates", "bound", "nan", "inf", "1e+308"):
        assert word in names
    assert "rows" in str(InputPair([1] * 50, []))


def test_rows_and_pairs_are_read(tmp_path):
    assert RowDomain.parse("-1:1").edges() == (-1, 1, 0)
    for wrong in ("1:0", "x", "nan:1", "int:0.5:2", ""):
        with pytest.raises(InvalidInput, match="rows"):
            RowDomain.parse(wrong)
    file = tmp_path / "pairs.json"
    file.write_text("[[[1], []], [[1, 2], [1]]]")
    assert [pair.x for pair in read_pairs(file)] == [[1], [1, 2]]
    file.write_text("nonsense")
    with pytest.raises(InvalidInput, match="pairs"):
        read_pairs(file)


# Subjects


def test_functions_are_loaded_from_modules_and_files():
    path = Path(under_test.__file__)
    assert load_function(f"{path}:exact_sum")([0.5]) is not None
    assert load_function("math:fsum") is math.fsum
    for wrong in ("nonsense", "math:nothing", "no_such_module:f", f"{path.parent}/none.py:f", "math:pi"):
        with pytest.raises(InvalidInput, match="cannot be loaded"):
            load_function(wrong)


def test_commands_read_rows_and_print_answers():
    code = "import sys; rows = [float(x) for x in sys.stdin]; print(sum(rows)); sys.exit(3 * (len(rows) > 2))"
    subject = CommandSubject((sys.executable, "-c", code), times=True)
    draws = subject.draw([0.5, 1.5], 2)
    assert draws.leaf("").tolist() == [2.0, 2.0]
    assert (draws.seconds > 0).all()
    assert subject.draw([1.0, 1.0, 1.0], 1).records == ({"": Failure("exit code 3")},)
    with pytest.raises(InvalidInput, match="command"):
        CommandSubject(("/no/such/program",)).draw([], 1)


def test_commands_may_print_anything(tmp_path):
    def answers(code, rows=()):
        return (
            CommandSubject((sys.executable, "-c", f"import sys; {code}")).draw(list(rows), 1).as_records()[0]
        )

    assert answers("sys.stdout.buffer.write(bytes([255]))") == {"": "\ufffd"}
    assert next(iter(answers("print('[' * 100_000)").values())).startswith("'[[")
    assert answers("print('x' * 2**21)") == {"": Failure("an answer that is too long")}
    assert answers("print(1); sys.stderr.write('x' * 2**20)") == {"": 1}
    idle = tmp_path / "idle"
    idle.write_text("no program")
    with pytest.raises(InvalidInput, match="cannot be run"):
        CommandSubject((str(idle),)).draw([], 1)


def test_answers_that_cannot_be_written_out_are_answers():
    class Hostile:
        def __repr__(self):
            raise RuntimeError

    deep = []
    for _ in range(100_000):
        deep = [deep]
    draws = Outcomes.of([10**5000, Hostile(), deep, "x" * 5000, b"x" * 5000, {"a": -(10**5000)}])
    for name in draws.category_names():
        assert len(draws.categories(name, draws.paths)) == 6
    assert draws.leaf("")[0] == math.inf
    assert len(draws.records[3][""]) < 200


def test_endpoints_must_be_on_this_machine():
    for url in (
        "http://127.0.0.1:99999/",
        "http://[::1/",
        "http://example.org/",
        "https://127.0.0.1/",
        "ftp://localhost/",
        "http://10.0.0.1/",
        "http://",
    ):
        with pytest.raises(Refused, match="not on this machine"):
            EndpointSubject(url)


def test_endpoint_answers_are_audited():
    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet for each answer

        def do_POST(self):
            rows = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps({"sum": sum(rows)}).encode() + b" " * (2**21 if len(rows) == 3 else 0)
            self.send_response(200 if rows else 500)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        subject = EndpointSubject(f"http://127.0.0.1:{server.server_port}/sum")
        assert subject.draw([1, 2], 2).leaf("['sum']").tolist() == [3, 3]
        assert subject.draw([], 1).records[0][""] == Failure("status 500")
        long, short = subject.draw_each([[1, 2, 3], [1, 2]]).records
        assert long == {"": Failure("an answer that is too long")}
        assert short["['sum']"] == 3
        assert sure(subject, epsilon=1, pairs=ONE, samples=400).refuted
    finally:
        server.shutdown()
        server.server_close()


def test_mechanisms_have_a_batch_door():
    gap = MechanismSubject(hb.ReportNoisyMax.of(sensitivity=1, epsilon=1), lambda rows: [len(rows), 0])
    assert len(gap.draw([1, 1], 50)) == 50
    refuses = MechanismSubject(hb.Laplace.of(sensitivity=1, epsilon=1), lambda rows: "nonsense")
    assert refuses.draw([], 2).records == ({"": Failure("InvalidInput")},) * 2
    assert FunctionSubject(lambda rows: rows.append(1)).draw([1], 3).records == ({"": None},) * 3


def test_outcomes_of_any_shape_become_columns():
    draws = Outcomes.of([(1, 2.5), [3], {"a": True, "b": None}, {1, 2}, b"x", np.array([1.0, 2.0]), object])
    assert len(draws) == 7
    for name in draws.numeric_names():
        assert draws.number(name, draws.paths).shape == (7,)
    for name in draws.category_names():
        assert len(draws.categories(name, draws.paths)) == 7
    huge = Outcomes.of([10**400, -(10**400)])
    assert huge.leaf("").tolist() == [math.inf, -math.inf]
    joined = Outcomes.join([Outcomes.of(np.array([1, 2])), draws])
    assert len(joined) == 9
    zeros = Outcomes.of(np.array([0.0, -0.0]))
    assert len(set(np.asarray(zeros.categories("atom ", ())).tolist())) == 2


def test_picture_shows_both_laws():
    finding = sure(hb.Laplace.of(sensitivity=1, epsilon=2, real=True), epsilon=1, pairs=ONE)
    picture = draw_laws(finding)
    assert picture.startswith("<svg")
    assert "neighbouring inputs" in picture
    stored = json.loads(finding.to_json())
    assert stored["refuted"] is True
    assert stored["witness"]["x"] == [1.0]
