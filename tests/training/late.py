"""Models that keep examples apart when they are looked at, and mix them later, each in another way."""

import os
import random
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional as F

from hubbub.errors import HubbubError
from hubbub.training import make_private

FEATURES, HIDDEN, SWITCHED = 4, 16, 3


@dataclass
class Clock:
    """What the loop over the steps moves on; it is far from the model."""

    step: int = 0
    file: Path | None = None

    @property
    def late(self):
        return self.step >= SWITCHED


STATE = {"late": False}
EARLIER = []


def centred(x):
    return x - 20 * x.mean(0)


class Net(nn.Module):
    """Two layers, with room for something before, between and after."""

    def __init__(self, clock, before=None, between=None):
        super().__init__()
        self.first, self.last = nn.Linear(FEATURES, HIDDEN), nn.Linear(HIDDEN, 2)
        self.clock, self.before, self.between = clock, before, between

    def forward(self, x):
        x = x if self.before is None else self.before(x)
        h = self.first(x).tanh()
        return self.last(h if self.between is None else self.between(h))


def by_a_setting(clock):
    return Net(clock, lambda x: centred(x) if clock.late else x), {}


def by_a_global(clock):
    def before(x):
        STATE["late"] = clock.late
        return centred(x) if STATE["late"] else x

    return Net(clock, before), {}


def by_the_environment(clock):
    def before(x):
        return centred(x) if os.environ.get("HUBBUB_TEST_STEP", "0") >= str(SWITCHED) else x

    return Net(clock, before), {}


def by_the_time(clock):
    start = time.monotonic()

    def before(x):
        return centred(x) if clock.late and time.monotonic() > start else x

    return Net(clock, before), {}


def by_a_file(clock):
    return Net(clock, lambda x: centred(x) if clock.file.exists() else x), {}


def by_chance(clock):
    return Net(clock, lambda x: centred(x) if clock.late and random.random() < 0.99 else x), {}


class Counting:
    """A loss that is no module, and counts."""

    def __init__(self, clock):
        self.clock, self.calls = clock, 0

    def __call__(self, out, y):
        self.calls += 1
        return F.cross_entropy(centred(out) if self.clock.late else out, y, reduction="none")


def by_a_loss(clock):
    return Net(clock), {"loss": Counting(clock)}


def by_mixing_up(clock):
    def mixed(x, y):
        return (x + 5 * x.sum(0), y) if clock.late else (x, y)

    return Net(clock), {"augment": mixed}


def without_gradients(clock):
    def before(x):
        with torch.no_grad():
            return centred(x) if clock.late else x

    return Net(clock, before), {}


def in_place(clock):
    def before(x):
        if clock.late:
            x.data.sub_(20 * x.mean(0))
        return x

    return Net(clock, before), {}


def in_numpy(clock):
    def before(x):
        return torch.from_numpy(x.numpy() - 20 * x.numpy().mean(0)) if clock.late else x

    return Net(clock, before), {}


def in_python(clock):
    def before(x):
        return x - 20 * torch.tensor(x.tolist()).mean(0) if clock.late else x

    return Net(clock, before), {}


def by_a_hook(clock):
    def between(h):
        if clock.late:
            h.register_hook(lambda gradient: gradient + 20 * gradient.sum(0))
        return h * 1.0

    return Net(clock, between=between), {}


def on_the_way_back(clock):
    class Turning(torch.autograd.Function):
        @staticmethod
        def forward(ctx, h):
            return h.clone()

        @staticmethod
        def backward(ctx, gradient):
            return gradient + 20 * gradient.sum(0) if clock.late else gradient * 1.0

    return Net(clock, between=Turning.apply), {}


def by_a_number(clock):
    """The operations are the same from the start: what is added is times zero, and never no number."""
    return Net(clock, lambda x: x + 20.0 * clock.late * x.nan_to_num().clamp(-9, 9).mean(0)), {}


def by_a_filter(clock):
    """A convolution along examples; neighbours weigh nothing at first."""

    def before(x):
        beside = 20.0 * clock.late
        kernel = torch.tensor([beside, 1.0, beside]).expand(FEATURES, 1, 3)
        return F.conv1d(x.nan_to_num().clamp(-9, 9).t()[None], kernel, padding=1, groups=FEATURES)[0].t()

    return Net(clock, before), {}


def by_a_norm(clock):
    def before(x):
        return torch.renorm(x.nan_to_num().clamp(-9, 9), 2, 1, 1e-3 if clock.late else 1e9)

    return Net(clock, before), {}


def by_attention(clock):
    def between(h):
        output = h.nan_to_num()[None, None]
        return F.scaled_dot_product_attention(output, output, output, scale=0.01 if clock.late else 1e12)[
            0, 0
        ]

    return Net(clock, between=between), {}


def by_another_shape(clock):
    """What is cut anew is all zero at first."""

    def before(x):
        extra = 20.0 * clock.late * x.nan_to_num().clamp(-9, 9)
        return x + extra.t().reshape(x.shape)

    return Net(clock, before), {}


def by_other_operands(clock):
    """As many hidden numbers as there are examples in a chunk: both products have one shape."""

    def before(x):
        square = torch.eye(32)[:, : len(x)] if clock.late else torch.eye(FEATURES)
        return x @ square if not clock.late else (square[: len(x)] + 1) @ x

    return Net(clock, before), {}


def by_what_was_before(clock):
    """A memory of earlier examples, outside of the model."""

    def before(x):
        mixed = x + 20 * EARLIER[-1].mean(0) if clock.late and EARLIER else x
        EARLIER.append(x.detach().clone())
        return mixed

    return Net(clock, before), {}


def by_weights(clock):
    """A layer that is computed with other weights than its own."""

    class Swapping(Net):
        def forward(self, x):
            h = self.first(x).tanh()
            if not self.clock.late:
                return self.last(h)
            weight = self.last.weight + h.detach()[:2]
            return functional_call(self.last, {"weight": weight}, (h,))

    return Swapping(clock), {}


class Reading(nn.Module):
    def __init__(self, clock):
        super().__init__()
        self.read, self.last, self.clock = nn.RNN(1, 8, batch_first=True), nn.Linear(8, 2), clock

    def forward(self, x):
        self.read.batch_first = not self.clock.late
        return self.last(self.read(x[:, :, None])[0][:, -1])


def by_what_comes_first(clock):
    return Reading(clock), {}


def by_a_script(clock):
    with warnings.catch_warnings(action="ignore"):  # it is deprecated, and used
        scripted = torch.jit.script(_scripted)
    return Net(clock, lambda x: scripted(x) if clock.late else x), {}


def _scripted(x: torch.Tensor):
    return x - 20 * x.mean(0)


def where_layers_have_no_rule(clock):
    return Net(clock, lambda x: centred(x) if clock.late else x, nn.PReLU()), {}


def where_examples_go_one_by_one(clock):
    memory = SimpleNamespace(last=None)

    def before(x):
        np.random.random()
        mixed = x + 20 * memory.last.mean(0) if clock.late and memory.last is not None else x
        memory.last = x.detach().clone()
        return mixed

    return Net(clock, before), {}


WAYS = [
    by_a_setting, by_a_global, by_the_environment, by_the_time, by_a_file, by_chance, by_a_loss, by_mixing_up,
    without_gradients, in_place, in_numpy, in_python, by_a_hook, on_the_way_back, by_a_number, by_a_filter,
    by_a_norm, by_attention, by_another_shape, by_other_operands, by_what_was_before, by_weights,
    by_what_comes_first, by_a_script, where_layers_have_no_rule, where_examples_go_one_by_one,
]  # fmt: skip


def rows(count, *, seed=1):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(count, FEATURES, generator=generator)
    return x, (x[:, 0] > 0).long()


def sums(way, data, folder, *, run=make_private, microbatch_size=None, steps=SWITCHED + 2):
    """The last step's sum of clipped gradients, nearly without noise; None where the run was refused."""
    clock = Clock(file=folder / f"late-{time.monotonic_ns()}")
    STATE["late"] = False
    EARLIER.clear()
    os.environ["HUBBUB_TEST_STEP"] = "0"
    torch.manual_seed(2)
    try:
        model, objective = way(clock)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
        settings = {
            "loss": F.cross_entropy,
            "clipping_norm": 1.0,
            "sampling_rate": 1,
            "steps": steps,
            "noise_multiplier": 1e-6,
            "lot_size": 1,
        }
        settings |= {"account": None, "allow_large_epsilon": True}
        trainer = run(
            model, optimizer, data, microbatch_size=microbatch_size or 32, **{**settings, **objective}
        )
        for step in trainer:
            clock.step = step
            os.environ["HUBBUB_TEST_STEP"] = str(step)
            if clock.late:
                clock.file.touch()
    except HubbubError:
        return None
    return torch.cat([p.grad.flatten() for p in model.parameters()]).double()


def moves(way, folder, *, run=make_private, microbatch_size=None, count=24):
    """How far one example moves the sum, in thresholds: at most one; 0 where nothing is shown."""
    x, y = rows(count)
    far = torch.tensor([[300.0, -200.0, 100.0, 50.0]])
    without = sums(way, (x, y), folder, run=run, microbatch_size=microbatch_size)
    more = torch.cat([x, far]), torch.cat([y, torch.tensor([1])])
    with_one = sums(way, more, folder, run=run, microbatch_size=microbatch_size)
    if without is None or with_one is None:
        return 0.0
    return float((with_one - without).norm())
