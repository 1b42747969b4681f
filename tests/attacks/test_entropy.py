"""A25, A26: where the random bits come from, and whether they come twice."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import hubbub
from attacks import mutants
from attacks.rows import Row, both_tests

OURS = Path(hubbub.__file__).parent
TESTS = Path(__file__).parent.parent

SOURCE = "noise/entropy.py"
"""The one file that may ask for random bits, and may ask nobody but OpenSSL."""
GENERATORS = {"random", "secrets", "uuid", "numpy.random", "scipy.stats", "torch", "Crypto", "cryptography"}
OPERATING_SYSTEM = {"RAND_bytes", "RAND_pseudo_bytes", "urandom", "getrandom", "SystemRandom"}
ELSEWHERE = {
    ("training/", "torch"),
    ("audit/training.py", "torch"),
    ("training/state_isolation.py", "random"),
    ("training/state_isolation.py", "numpy"),
    ("ledger/signing.py", "cryptography"),
    ("server/certificates.py", "cryptography"),
    ("server/certificates.py", "ssl"),
    ("server/pgwire/listener.py", "ssl"),
    ("remote.py", "ssl"),
}
"""Models are torch's, signatures and certificates cryptography's, encrypted connections ssl's; what models
draw is seeded by our bits; lots, noise and tokens are drawn as everywhere. RAND_bytes is found everywhere."""
DRAWS = {
    "rand", "rand_like", "randn", "randn_like", "randint", "randint_like", "randperm", "bernoulli",
    "multinomial", "normal", "poisson", "Generator", "manual_seed",
}  # fmt: skip
"""What torch draws with a generator that can be seeded."""
PROBES = {("training/model_checks.py", "*"), ("training/example_independence.py", "randn_like")}
PROBES |= {
    ("training/state_isolation.py", "manual_seed"),
    ("training/example_independence.py", "rand"),
    ("training/state_isolation.py", "Generator"),
}
"""Where it may: made-up examples, on which a model is tried; the seed of dropout, which is ours; and a
type that is told from others."""
SEEDS = {"seed", "rng", "random_state", "generator", "random_seed"}


def attack_A25(target):
    """Whether some module (given as a name and a text) draws bits elsewhere, or lets a caller choose them."""
    return any(_draws(name, node) for name, text in target.items() for node in ast.walk(ast.parse(text)))


def _draws(name, node):
    if isinstance(node, ast.Import):
        return any(_is_foreign(name, alias.name) for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        return any(
            _is_foreign(name, whole) or alias.name in {"_inject_bits", "_injected"}
            for alias in node.names
            for whole in (node.module or "", f"{node.module}.{alias.name}")
        )
    if isinstance(node, ast.Attribute):
        is_numpy = (
            node.attr == "random" and isinstance(node.value, ast.Name) and node.value.id in {"np", "numpy"}
        )
        if isinstance(node.value, ast.Name) and node.value.id == "torch" and node.attr in DRAWS:
            return not {(name, "*"), (name, node.attr)} & PROBES
        is_bits = node.attr in OPERATING_SYSTEM and (name != SOURCE or node.attr != "RAND_bytes")
        return is_numpy or is_bits or (node.attr in {"_inject_bits", "_injected"} and name != SOURCE)
    return isinstance(node, ast.arg) and node.arg in SEEDS


def _is_foreign(name, module):
    if any(name.startswith(place) and module.split(".")[0] == theirs for place, theirs in ELSEWHERE):
        return False
    return (
        any(module == known or module.startswith(f"{known}.") for known in GENERATORS)
        or module.rpartition(".")[2] in OPERATING_SYSTEM
        or (module == "ssl" and name != SOURCE)
    )


SPLIT = """
import json, os, sys, threading
{setup}

def forked():
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, draw().hex().encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        drawn = pipe.read()
    os.wait()
    return drawn

drawn = [draw().hex()]
drawn += [forked() for _ in range(4)]
threads = [threading.Thread(target=lambda: drawn.append(draw().hex())) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
drawn.append(draw().hex())
json.dump(drawn, sys.stdout)
"""


def attack_A26(target):
    """Whether any of the draws of two programs, their forks and their threads come twice.

    False alarms: 190 pairs of 128 bits, 2^-120.
    """
    program = SPLIT.format(setup=target)
    draws = []
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "-c", program], cwd=TESTS, capture_output=True, text=True, check=True, timeout=60
        )
        draws += json.loads(run.stdout)
    assert len(draws) == 20
    assert {len(one) for one in draws} == {32}
    return len(set(draws)) < len(draws)


OUR_BITS = "from hubbub.noise.entropy import random_bytes\ndraw = lambda: random_bytes(16)"
OUR_NOISE = """
from fractions import Fraction
from hubbub.noise import discrete_laplace
draw = lambda: b"".join((discrete_laplace(Fraction(2**48)) % 2**32).to_bytes(4, "big") for _ in range(4))
"""

ROWS = [
    Row(
        "A25",
        attack_A25,
        {"hubbub": {str(path.relative_to(OURS)): path.read_text() for path in sorted(OURS.rglob("*.py"))}},
        {"weak.py": mutants.ANOTHER_GENERATOR},
    ),
    Row(
        "A26",
        attack_A26,
        {"bits": OUR_BITS, "noise": OUR_NOISE},
        "from attacks.mutants import seeded_at_import as draw",
    ),
]

test_ours_resists, test_mutant_falls = both_tests(ROWS)


def test_every_other_random_source_is_detected():
    for text in (
        "import random",
        "import secrets",
        "from random import gauss",
        "from numpy import random",
        "from numpy.random import default_rng",
        "import numpy.random as r",
        "noise = np.random.laplace()",
        "import os\nos.urandom(8)",
        "from os import urandom",
        "import ssl",
        "from hubbub.noise.entropy import _inject_bits",
        "def draw(seed): ...",
        "def draw(*, rng=None): ...",
    ):
        assert attack_A25({"weak.py": text})
    assert attack_A25({SOURCE: "import os\nos.urandom(8)"})
    assert not attack_A25({SOURCE: "import ssl\nssl.RAND_bytes(8)"})


def test_torch_randomness_is_used_for_synthetic_examples_and_dropout_only():
    for name, text in (
        ("training/trainer.py", "noise = torch.randn(3)"),
        ("training/batch_sampling.py", "torch.manual_seed(1)"),
        ("training/clipping.py", "import torch\ntorch.normal(0, 1)"),
        ("mechanisms/laplace_gaussian.py", "import torch"),
    ):
        assert attack_A25({name: text})
    for name, text in (
        ("training/model_checks.py", "torch.randn(3)"),
        ("training/clipping.py", "import torch\ntorch.zeros(3)"),
    ):
        assert not attack_A25({name: text})
