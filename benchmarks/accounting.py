"""Privacy loss: ε, its error and the time it takes beside other accountants, calibration and schedules."""

import itertools
import subprocess
import sys
import time
from fractions import Fraction

import dp_accounting
from dp_accounting.pld import PLDAccountant
from measure import Target, Task, best, show, show_targets
from opacus.accountants import PRVAccountant as OpacusAccountant
from prv_accountant import PoissonSubsampledGaussianMechanism
from prv_accountant import PRVAccountant as MicrosoftAccountant

from hubbub.accounting import PrivacyLoss, calibrate

ROUNDS = 3
# Rate, σ, steps, δ, and ε to more digits than doubles have.
CASES = {
    "q = 0.01, σ = 1.1, 1000 steps": (Fraction(1, 100), Fraction(11, 10), 1000, 1e-5, 1.515361916664484576),
    "MNIST: q = 256/60000, σ = 1.1, 14063 steps": (
        Fraction(256, 60000),
        Fraction(11, 10),
        14063,
        1e-5,
        2.381689726141648730,
    ),
}
PEERS = ("dp-accounting PLD", "prv-accountant", "Opacus PRV")
COLD = {
    "hubbub": "from fractions import Fraction as F; from hubbub.accounting import PrivacyLoss; "
    "(PrivacyLoss.gaussian(F(10, 11)).poisson_subsampled(F(256, 60000)) * 14063).epsilon(1e-5)",
    "dp-accounting PLD": "import dp_accounting as d; from dp_accounting.pld import PLDAccountant as P; "
    "a = P(); "
    "a.compose(d.PoissonSampledDpEvent(256/60000, d.GaussianDpEvent(1.1)), 14063); a.get_epsilon(1e-5)",
    "prv-accountant": "from prv_accountant import PRVAccountant as A; "
    "from prv_accountant import PoissonSubsampledGaussianMechanism as M; "
    "m = M(sampling_probability=256/60000, noise_multiplier=1.1); "
    "a = A(prvs=[m], max_self_compositions=[14063], eps_error=0.01, delta_error=1e-8); "
    "a.compute_epsilon(1e-5, [14063])",
    "Opacus PRV": "from opacus.accountants import PRVAccountant as A; a = A(); "
    "a.history = [(1.1, 256/60000, 14063)]; a.get_epsilon(1e-5)",
}


def run() -> None:
    targets = []
    for name, case in CASES.items():
        answers, seconds = compared(case)
        truth = case[-1]
        errors = {who: abs(answer - truth) / truth for who, answer in answers.items()}
        show(
            f"ε of {name} (processor time, warm)",
            ("", "ms", "× hubbub", "ε", "relative error"),
            [
                (
                    who,
                    f"{seconds[who] / 1e6:.1f}",
                    f"{seconds[who] / seconds['hubbub']:.0f}",
                    f"{answer:.12g}",
                    f"{errors[who]:.1e}",
                )
                for who, answer in answers.items()
            ],
        )
        fastest = min(PEERS, key=seconds.__getitem__)
        ratio, closer = (
            seconds[fastest] / seconds["hubbub"],
            min(errors[peer] for peer in PEERS) / errors["hubbub"],
        )
        targets += [
            Target(f"{name}: over the fastest ({fastest})", "≥ 20×", f"{ratio:.0f}×", met=ratio >= 20),
            Target(
                f"{name}: error, against the best of them", "1000× less", f"{closer:.0f}×", met=closer >= 1000
            ),
        ]
    cold = {who: fresh_seconds(program) for who, program in COLD.items()}
    show(
        "MNIST run, cold: a new process, imports counted",
        ("", "s"),
        [(who, f"{s:.2f}") for who, s in cold.items()],
    )
    targets += calibration_targets()
    targets.append(schedule_target())
    show_targets(targets)


def compared(case: tuple) -> tuple[dict[str, float], dict[str, float]]:
    rate, sigma, steps, delta, _ = case
    q, s = float(rate), float(sigma)
    loss = PrivacyLoss.gaussian(1 / sigma).poisson_subsampled(rate) * steps
    # A δ that was not asked before: nothing is remembered.
    other = itertools.count(1)

    def google(delta: float) -> float:
        accountant = PLDAccountant()
        accountant.compose(dp_accounting.PoissonSampledDpEvent(q, dp_accounting.GaussianDpEvent(s)), steps)
        return accountant.get_epsilon(delta)

    def microsoft(delta: float) -> float:
        mechanism = PoissonSubsampledGaussianMechanism(noise_multiplier=s, sampling_probability=q)
        accountant = MicrosoftAccountant(
            prvs=[mechanism], max_self_compositions=[steps], eps_error=0.01, delta_error=delta / 1000
        )
        return accountant.compute_epsilon(delta, [steps])[2]

    def opacus(delta: float) -> float:
        accountant = OpacusAccountant()
        accountant.history = [(s, q, steps)]
        return accountant.get_epsilon(delta)

    ways = {
        "hubbub": loss.epsilon,
        "dp-accounting PLD": google,
        "prv-accountant": microsoft,
        "Opacus PRV": opacus,
    }
    answers = {who: way(delta) for who, way in ways.items()}
    tasks = {who: Task(lambda way=way: way(delta * (1 + next(other) / 10**6))) for who, way in ways.items()}
    return answers, best(tasks, ROUNDS)


def calibration_targets() -> list[Target]:
    rate, steps = Fraction(256, 60000), 14063

    def ours() -> float:
        return calibrate(
            lambda sigma: PrivacyLoss.gaussian(1 / sigma).poisson_subsampled(rate) * steps,
            2,
            1e-5,
            guess=next(guesses),
        )

    def google() -> float:
        return dp_accounting.calibrate_dp_mechanism(
            PLDAccountant,
            lambda sigma: dp_accounting.SelfComposedDpEvent(
                dp_accounting.PoissonSampledDpEvent(float(rate), dp_accounting.GaussianDpEvent(sigma)), steps
            ),
            2.0,
            1e-5,
            dp_accounting.LowerEndpointAndGuess(0.5, 1.0),
            tol=1e-6,
        )

    guesses = (1 + Fraction(k, 1000) for k in itertools.count())
    start = time.process_time()
    theirs = google()
    slow = time.process_time() - start
    quick = best({"hubbub": Task(ours)}, ROUNDS)["hubbub"] / 1e9
    show(
        "σ for ε = 2 at δ = 1e-5 of the MNIST run (processor time)",
        ("", "s", "σ"),
        [
            ("hubbub, to eight digits", f"{quick:.3f}", f"{ours():.12g}"),
            ("dp-accounting PLD, to six", f"{slow:.1f}", f"{theirs:.12g}"),
        ],
    )
    ratio = slow / quick
    return [Target("calibration of σ, over dp-accounting's PLD", "≥ 100×", f"{ratio:.0f}×", met=ratio >= 100)]


def schedule_target() -> Target:
    def schedule(k: int) -> float:
        steps = (
            PrivacyLoss.gaussian(1 / (1 + Fraction(step, 1000))).poisson_subsampled(Fraction(1, 100))
            for step in range(1000)
        )
        return PrivacyLoss.compose(steps).epsilon(Fraction(100 + k, 10**7))

    times = []
    for k in range(2 * ROUNDS):
        # By the clock: matrices are multiplied on all processors.
        start = time.perf_counter()
        schedule(k)
        times.append(time.perf_counter() - start)
    return Target("1000 steps of different σ", "< 1 s", f"{min(times):.2f} s", met=min(times) < 1)


def fresh_seconds(program: str) -> float:
    times = []
    for _ in range(2):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-W", "ignore", "-c", program], check=True)
        times.append(time.perf_counter() - start)
    return min(times)
