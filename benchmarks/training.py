"""Training: the time of a private step, compared with a plain step and with Opacus, on one thread.

All train the same model on the same lot by SGD. hubbub runs with its exact noise, and without (which is not
private: it shows the time of the noise). Plain is the user's own model in its own memory layout.
"""

import math
import subprocess
import sys
import warnings
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from measure import Target, Task, best, show, show_targets
from torch import nn

from hubbub.mechanisms import laplace_gaussian
from hubbub.noise import rounded_gaussian
from hubbub.training import make_private
from hubbub.training.clipping import ClippedSum, ClippingThreshold, ParameterGroup
from hubbub.unit import Unit

ROUNDS = 6
PLAIN, OURS, QUIET, HOOKS, GHOST = "plain", "hubbub", "hubbub, no noise", "Opacus hooks", "Opacus ghost"


class Pooled(nn.Module):
    """What comes out of a layer of sequences, averaged and classified."""

    def __init__(self, layer, width, classes=10):
        super().__init__()
        self.layer, self.out = layer, nn.Linear(width, classes)

    def forward(self, x):
        seen = self.layer(x)
        return self.out((seen[0] if isinstance(seen, tuple) else seen).mean(1))


def cnn():
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, 2), nn.ReLU(), nn.MaxPool2d(2, 1)),
        *(nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10)),
    )


def mlp():
    return nn.Sequential(nn.Linear(60, 1000), nn.ReLU(), nn.Linear(1000, 10))


def transformer():
    layer = nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True)
    return Pooled(nn.Sequential(nn.Embedding(1000, 64), nn.TransformerEncoder(layer, 2)), 64)


def embedding():
    return Pooled(nn.Embedding(10_000, 64), 64, 2)


def lstm():
    return Pooled(nn.LSTM(32, 64, batch_first=True), 64)


CASES = {
    "CNN, 256": (cnn, 256, lambda n: torch.randn(n, 1, 28, 28)),
    "CNN, 1024": (cnn, 1024, lambda n: torch.randn(n, 1, 28, 28)),
    "MLP, 256": (mlp, 256, lambda n: torch.randn(n, 60)),
    "MLP, 1024": (mlp, 1024, lambda n: torch.randn(n, 60)),
    "transformer, 256": (transformer, 256, lambda n: torch.randint(0, 1000, (n, 64))),
    "embedding, 256": (embedding, 256, lambda n: torch.randint(0, 10_000, (n, 256))),
    "LSTM, 256": (lstm, 256, lambda n: torch.randn(n, 32, 32)),
}
WANTED = {
    "CNN, 256": (1.3, OURS),
    "CNN, 1024": (1.4, OURS),
    "MLP, 256": (1.3, QUIET),
    "transformer, 256": (1.5, OURS),
    "embedding, 256": (4, OURS),
}


def run() -> None:
    torch.set_num_threads(1)
    warnings.filterwarnings("ignore", message="Full backward hook is firing")  # Opacus's, at every step
    measured = {name: best(steps(*case), ROUNDS) for name, case in CASES.items()}
    columns = (OURS, QUIET, HOOKS, GHOST)
    rows = [
        (
            name,
            f"{times[PLAIN] / 1e6:.2f}",
            *(f"{times[who] / times[PLAIN]:.2f}" if who in times else "—" for who in columns),
        )
        for name, times in measured.items()
    ]
    show("Steps of SGD: milliseconds of plain PyTorch, and ratios to it", ("", PLAIN, *columns), rows)
    memory = {name: (peak(name, PLAIN), peak(name, OURS)) for name in CASES}
    releases = {size: best(release_of_a_sum(size), 5 * ROUNDS) for size in (71_000, 640_000)}
    show_targets([*speed_targets(measured), *memory_targets(memory), *release_targets(releases)])


def speed_targets(measured):
    for name, (most, who) in WANTED.items():
        ratio = measured[name][who] / measured[name][PLAIN]
        yield Target(f"{name}: {who} over plain", f"≤ {most}", f"{ratio:.2f}", met=ratio <= most)
    noisy = measured["MLP, 256"][OURS] / measured["MLP, 256"][PLAIN]
    yield Target("MLP, 256: hubbub over plain", "≤ 1.8", f"{noisy:.2f}", met=noisy <= 1.8)
    for name, times in measured.items():
        peers = [times[who] for who in (HOOKS, GHOST) if who in times]
        ahead = min(peers, default=math.inf) / times[OURS]
        yield Target(f"{name}: ahead of Opacus", "> 1", f"{ahead:.2f}", met=ahead > 1)


def memory_targets(memory):
    for name, (plain, ours) in memory.items():
        ratio = ours / plain
        text = f"{ratio:.2f} ({ours >> 10} of {plain >> 10} MB)"
        yield Target(f"{name}: peak memory over plain", "≤ 1.3", text, met=ratio <= 1.3)


def release_of_a_sum(size):
    """The release of a lot's sum by the mechanism, and noise added in place by hand."""
    threshold = ClippingThreshold.of(1.0, Fraction(1), size)
    total = ClippedSum(ParameterGroup("all", (nn.Parameter(torch.zeros(size)),)), threshold, 256)
    doubles, gradient, unit, block = np.zeros(size), np.zeros(size, dtype=np.float32), Unit.row(), 1 << 17
    np.ones(30 << 17)  # freed again: the allocator keeps memory from then on, as after a first backward pass

    def by_hand():
        for start in range(0, size, block):
            part = doubles[start : start + block]
            part += rounded_gaussian(threshold.noise_steps, size=part.size)
            np.multiply(part, threshold.grid_step, out=gradient[start : start + block], casting="unsafe")

    return {OURS: Task(lambda: list(total.release_gradients(unit, 256))), "by hand": Task(by_hand)}


def release_targets(releases):
    for size, times in releases.items():
        ratio = times[OURS] / times["by hand"]
        text = f"{ratio:.2f} ({times[OURS] / 1e6:.2f} ms)"
        yield Target(f"release of {size:,} coordinates over noise by hand", "≤ 1.2", text, met=ratio <= 1.2)


def steps(make, lot, inputs):
    """One step of each, on models that start alike."""
    x, y = inputs(lot), torch.randint(0, 2, (lot,))
    tasks = {PLAIN: Task(plain_step(make(), x, y)), OURS: Task(private_step(make(), x, y))}
    quiet = private_step(make(), x, y)

    def without_noise():
        with silence():
            quiet()

    tasks[QUIET] = Task(without_noise)
    for who, mode in ((HOOKS, "hooks"), (GHOST, "ghost")):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                step = opacus_step(make(), x, y, mode)
                step()
            except Exception as problem:
                print(f"{who} does not do this model: {type(problem).__name__}")
                continue
        tasks[who] = Task(step)
    return tasks


def plain_step(model, x, y):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

    return step


def private_step(model, x, y):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    trainer = make_private(
        model,
        optimizer,
        (x, y),
        loss=F.cross_entropy,
        clipping_norm=1.0,
        sampling_rate=1,
        steps=10**6,
        noise_multiplier=1.0,
        lot_size=len(x),
        account=None,
        allow_large_epsilon=True,
    )
    steps_iterator = iter(trainer)
    return lambda: next(steps_iterator)


@contextmanager
def silence():
    real, laplace_gaussian.rounded_gaussian = (
        laplace_gaussian.rounded_gaussian,
        lambda _, size: np.zeros(size, dtype=np.int64),
    )
    try:
        yield
    finally:
        laplace_gaussian.rounded_gaussian = real


def opacus_step(model, x, y, mode):
    from opacus import PrivacyEngine
    from opacus.validators import ModuleValidator

    model = ModuleValidator.fix(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=len(x))
    private_parts = PrivacyEngine().make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        criterion=nn.CrossEntropyLoss(),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        poisson_sampling=False,
        grad_sample_mode=mode,
    )
    model, optimizer = private_parts[0], private_parts[1]
    criterion = private_parts[2] if mode == "ghost" else nn.CrossEntropyLoss()

    def step():
        optimizer.zero_grad()
        criterion(model(x), y).backward()
        optimizer.step()

    return step


def peak(name, who):
    """Kilobytes of a process of its own, at most, that makes a few steps."""
    code = f"import training; training.grow({name!r}, {who!r})"
    out = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, check=True, cwd=sys.path[0]
    )
    return int(out.stdout)


def grow(name, who):
    torch.set_num_threads(1)
    make, lot, inputs = CASES[name]
    x, y = inputs(lot), torch.randint(0, 2, (lot,))
    model = make()
    step = plain_step(model, x, y) if who == PLAIN else private_step(model, x, y)
    for _ in range(5):
        step()
    # What getrusage says holds for the process that this one was made from as well.
    status = Path("/proc/self/status").read_text()
    print(status.partition("VmHWM:")[2].split()[0])
