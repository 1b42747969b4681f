"""What is computed with is the same in all chunks of a lot: no example decides how others are treated."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset

from hubbub.errors import Refused
from hubbub.training import make_private
from training.late import FEATURES, Clock, Net, rows
from training.test_operation_trace import follow
from training.test_trainer import run

WITHIN = "within a lot"


class Telling(Dataset):
    """Examples that tell an object of the model's how large they are, as a cache of statistics would."""

    def __init__(self, x, y, tell):
        self.x, self.y, self.tell = x, y, tell

    def __len__(self):
        return len(self.x)

    def __getitem__(self, place):
        self.tell(float(self.x[place].abs().max()))
        return self.x[place], self.y[place]


def by_a_setting():
    settings = SimpleNamespace(largest=1.0)

    def tell(size):
        settings.largest = max(settings.largest, size)

    return Net(None, lambda x: x / settings.largest), tell


def by_a_whole_number():
    settings = SimpleNamespace(largest=1)

    def tell(size):
        settings.largest = max(settings.largest, int(size))

    return Net(None, lambda x: x.clamp(-1, settings.largest)), tell


def by_a_buffer():
    model = Net(None)
    model.register_buffer("largest", torch.ones(()))
    model.before = lambda x: x / model.largest

    def tell(size):
        model.largest.fill_(max(float(model.largest), size))

    return model, tell


def by_what_is_one_by_one():
    settings = SimpleNamespace(largest=1.0)

    def tell(size):
        settings.largest = max(settings.largest, size)

    def before(x):
        np.random.random()  # one draw for a batch: so examples go one by one
        return x / settings.largest

    return Net(None, before), tell


def total(signalling, x, y, chunk):
    """The last of two steps' sums of clipped gradients, nearly without noise."""
    torch.manual_seed(2)
    model, tell = signalling()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    settings = {
        "clipping_norm": 1.0,
        "sampling_rate": 1,
        "steps": 2,
        "noise_multiplier": 1e-6,
        "lot_size": 1,
        "allow_large_epsilon": True,
    }
    data, example = Telling(x, y, tell), (torch.zeros(FEATURES), torch.tensor(0))
    trainer = make_private(
        model,
        optimizer,
        data,
        loss=F.cross_entropy,
        account=None,
        microbatch_size=chunk,
        padding_example=example,
        **settings,
    )
    trainer.run(progress=False)
    return torch.cat([p.grad.flatten() for p in model.parameters()]).double()


@pytest.mark.sweep(5)
@pytest.mark.parametrize("signalling", [by_a_setting, by_a_whole_number, by_a_buffer, by_what_is_one_by_one])
@pytest.mark.parametrize("chunk", [32, 128])
def test_reading_an_example_does_not_change_others(signalling, chunk):
    x, y = rows(60)
    more = torch.cat([x, torch.tensor([[300.0, -200.0, 100.0, 50.0]])]), torch.cat([y, torch.tensor([1])])
    assert float((total(signalling, *more, chunk) - total(signalling, x, y, chunk)).norm()) < 1


class Eps(nn.Module):
    """A layer with a real of its own that follows what no one can put back."""

    def __init__(self, number):
        super().__init__()
        self.norm, self.last, self.number = nn.LayerNorm(FEATURES), nn.Linear(FEATURES, 2), number

    def forward(self, x):
        self.norm.eps = 1e-5 * self.number()
        return self.last(self.norm(x))


TABLES = [torch.full((FEATURES,), 1.0 + n) for n in range(3)]
ARRAYS = [np.full(FEATURES, 1.0 + n, dtype=np.float32) for n in range(3)]
CHANGING = {
    "a real of a sum": lambda n: Net(None, lambda x: x * float(n())),
    "a whole number": lambda n: Net(None, lambda x: x.clamp(-2, n())),
    "a setting of a layer": Eps,
    "a tensor from outside": lambda n: Net(None, lambda x: x + TABLES[n()]),
    "an array": lambda n: Net(None, lambda x: x + torch.from_numpy(ARRAYS[n()].copy())),
}


def following(clock, numbers):
    """1 until it is late, and then what comes next: a counter of calls, out of reach of what is put back."""
    return lambda: next(numbers) if clock.late else 1


@pytest.mark.sweep(7)
@pytest.mark.parametrize("kind", CHANGING)
@pytest.mark.parametrize("count", [0, 1, 16, 17, 60])
def test_constant_change_is_refused_for_any_lot_size(kind, count):
    clock = Clock()
    model = CHANGING[kind](following(clock, itertools.cycle([1, 2])))
    trainer = run(model, rows(count), sampling_rate=1, microbatch_size=16)
    with pytest.raises(Refused):
        follow(trainer, clock)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("kind", CHANGING)
def test_change_between_microbatches_is_refused(kind):
    """Else an example would be treated by which chunk it happens to be in."""
    clock = Clock()
    once = itertools.chain([1, 1], itertools.repeat(2))
    trainer = run(CHANGING[kind](following(clock, once)), rows(60), sampling_rate=1, microbatch_size=16)
    with pytest.raises(Refused, match=WITHIN):
        follow(trainer, clock)
    assert trainer.step == 4


@pytest.mark.sweep(3)
@pytest.mark.parametrize("kind", CHANGING)
def test_change_between_steps_is_allowed(kind):
    clock = Clock()
    trainer = run(
        CHANGING[kind](lambda: 1 + clock.late), rows(60), sampling_rate=1, microbatch_size=16, steps=6
    )
    for step in trainer:
        clock.step = step
        assert "layer rules" in trainer.gradient_method
