"""Audits of the peers' mechanisms, in their own environment: what is claimed, and what an audit finds.

.venv-bench/bin/python benchmarks/audit_peers.py [opacus] [opendp] [pydp] [diffprivlib]

Every mechanism at ε = 1 (and δ = 1e-5), the sum of one row against that of none, 99.9 % confidence, 20,000
samples.
A violation is counted again on fresh draws.
"""

import sys
import warnings
from importlib.metadata import version

from hubbub.audit import Claim, InputPair, audit
from hubbub.audit.subjects import make_subject
from hubbub.audit.witness_file import replay

PAIR = [InputPair([1], [])]
PURE = Claim.approximate(1.0)
APPROXIMATE = Claim.approximate(1.0, 1e-5)


def examine(name, function, claim=PURE, pairs=PAIR, samples=20_000):
    finding = audit(function, claim=claim, pairs=pairs, samples=samples, confidence=0.999)
    claimed = f"{claim.symbol} = {claim.value:.4g} {claim.at}".strip()
    event = ""
    if finding.refuted:
        witness = finding.witness
        stored = {"inputs": witness.inputs, "event": witness.event, "score": witness.scored_by}
        stored |= {"threshold": witness.threshold, "above": witness.above}
        again = replay(make_subject(function), stored, 3000)
        event = f"{again.event}: {again.probability_x:.4g} on x, {again.probability_x_prime:.4g} on x′, fresh"
    verdict = "VIOLATION" if finding.refuted else "none found"
    needed = f"after {finding.samples_to_refute:,}" if finding.samples_to_refute else ""
    print(
        f"| {name} | {claimed} | {verdict} {needed} | {finding.symbol} ≥ {finding.lower:.3g} | {event} |",
        flush=True,
    )


def opendp():
    import opendp.prelude as dp

    dp.enable_features("contrib")
    real = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    whole = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    laplace, integers = dp.m.make_laplace(*real, scale=1.0), dp.m.make_laplace(*whole, scale=1.0)
    examine("make_laplace, float", lambda rows: laplace(float(sum(rows))))
    examine("make_laplace, int", lambda rows: integers(int(sum(rows))))
    gaussian = dp.m.make_gaussian(*real, scale=1.0)
    examine("make_gaussian, float", lambda rows: gaussian(float(sum(rows))), Claim.gaussian(1.0))
    keyed = dp.map_domain(dp.atom_domain(T=str), dp.atom_domain(T=int))
    for threshold in (3, 4):
        selection = dp.m.make_laplace_threshold(
            keyed, dp.l01inf_distance(dp.absolute_distance(T=int)), scale=1.0, threshold=threshold
        )
        epsilon, delta = selection.map((1, 1, 1))
        examine(
            f"make_laplace_threshold, int, threshold {threshold}",
            lambda rows, selection=selection: selection({"a": len(rows)} if rows else {}),
            Claim.delta_at(float(epsilon), float(delta)),
        )


def pydp():
    import pydp.algorithms.laplacian as algorithms
    import pydp.algorithms.numerical_mechanisms as mechanisms

    gaussian, laplace = mechanisms.GaussianMechanism(1.0, 1e-5, 1.0), mechanisms.LaplaceMechanism(1.0, 1.0)
    examine("GaussianMechanism", lambda rows: gaussian.add_noise(float(sum(rows))), Claim.delta_at(1.0, 1e-5))
    examine("LaplaceMechanism", lambda rows: laplace.add_noise(float(sum(rows))))
    for name in ("BoundedSum", "BoundedMean", "Count"):
        kind = getattr(algorithms, name)
        bounds = {} if name == "Count" else {"lower_bound": 0, "upper_bound": 1}

        def answer(rows, kind=kind, bounds=bounds):
            return kind(epsilon=1, dtype="float", **bounds).quick_result([float(row) for row in rows])

        examine(name, answer, pairs=None)


def diffprivlib():
    from diffprivlib import mechanisms

    plain = {"epsilon": 1, "sensitivity": 1}
    bounded = {**plain, "lower": 0, "upper": 3}
    for name, parameters, claim in (
        ("Laplace", plain, PURE),
        ("Staircase", plain, PURE),
        ("LaplaceFolded", bounded, PURE),
        ("LaplaceTruncated", bounded, PURE),
        ("LaplaceBoundedDomain", bounded, PURE),
        ("Snapping", {**plain, "lower": -10, "upper": 10}, PURE),
        ("Geometric", plain, PURE),
        ("Gaussian", {**plain, "delta": 1e-5}, APPROXIMATE),
        ("GaussianAnalytic", {**plain, "delta": 1e-5}, APPROXIMATE),
        ("GaussianDiscrete", {**plain, "delta": 1e-5}, APPROXIMATE),
    ):
        mechanism = getattr(mechanisms, name)(**parameters)
        kind = int if name in {"Geometric", "GaussianDiscrete"} else float
        examine(name, lambda rows, m=mechanism, kind=kind: m.randomise(kind(sum(rows))), claim)


def opacus():
    """One epoch of four lots, noise multiplier 0.4: one example with a gradient of 1, or 0, among seven of 0.

    `poisson_sampling=False` shuffles; the accountant computes the ε of Poisson samples all the same.
    """
    import torch
    from opacus import PrivacyEngine

    torch.set_num_threads(1)

    def make(rows, *, poisson):
        examples = torch.zeros(8, 1)
        examples[0, 0] = float(sum(rows))
        model, engine = torch.nn.Linear(1, 1, bias=False), PrivacyEngine(accountant="prv")
        loader = torch.utils.data.DataLoader(
            torch.utils.data.TensorDataset(examples), batch_size=2, shuffle=True
        )
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        model, optimizer, loader = engine.make_private(
            module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=0.4, max_grad_norm=1.0,
            poisson_sampling=poisson,
        )  # fmt: skip
        return model, optimizer, loader, engine

    def subject(*, poisson):
        pages = {}

        def epoch(rows):
            key = float(sum(rows))
            if key not in pages:
                pages[key] = make(rows, poisson=poisson)
            model, optimizer, loader, _ = pages[key]
            steps = []
            for (batch,) in loader:
                optimizer.zero_grad()
                model(batch).sum().backward()
                optimizer.pre_step()
                weight = next(model.parameters())
                steps.append(float(weight.grad) * optimizer.expected_batch_size)
            return steps

        return epoch

    # What the accountant says after one epoch: a large δ, so that the body of the law decides.
    delta = 0.4
    *_, loader, engine = make([1], poisson=False)
    engine.accountant.history = [(0.4, 1 / len(loader), len(loader))]
    claim = Claim.approximate(float(engine.get_epsilon(delta)), delta)
    for name, poisson in (("poisson_sampling=False", False), ("poisson_sampling=True", True)):
        examine(f"PrivacyEngine, {name}", subject(poisson=poisson), claim, samples=6000)


PEERS = {
    "opacus": (opacus, "opacus"),
    "opendp": (opendp, "opendp"),
    "pydp": (pydp, "python-dp"),
    "diffprivlib": (diffprivlib, "diffprivlib"),
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for peer in sys.argv[1:] or PEERS:
        run, package = PEERS[peer]
        print(f"\n{package} {version(package)}")
        run()
