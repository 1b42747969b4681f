"""Every step does what was looked at before the first, or is looked at itself."""

import time
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hubbub.errors import InvalidInput, Refused
from hubbub.training.state_isolation import restore_state
from training.late import WAYS, Clock, Net, by_a_filter, by_a_setting, by_what_was_before, moves
from training.test_trainer import STEPS, net, rows, run

STAYING = "layer rules"


def follow(trainer, clock):
    for step in trainer:
        clock.step = step


@pytest.mark.sweep(7)
@pytest.mark.parametrize("way", WAYS)
def test_late_mixing_moves_the_sum_by_at_most_the_clipping_norm(way, tmp_path):
    assert moves(way, tmp_path, microbatch_size=16) < 1


def test_model_that_begins_to_mix_is_refused_at_that_step():
    clock = Clock()
    trainer = run(by_a_setting(clock)[0], account=None)
    assert STAYING in trainer.gradient_method
    with pytest.raises(Refused, match="depends on another"):
        follow(trainer, clock)
    assert trainer.step == 4


@pytest.mark.parametrize("count", [0, 1])
def test_refusal_does_not_reveal_an_empty_lot(count):
    clock = Clock()
    trainer = run(by_a_setting(clock)[0], rows(count), sampling_rate=1)
    with pytest.raises(Refused, match="depends on another"):
        follow(trainer, clock)
    assert trainer.step == 4


class Copying(dict):
    """As some settings are: it copies in a way of its own."""

    def copy(self):
        raise NotImplementedError


ODD = {
    "sparse": lambda: torch.eye(4).to_sparse(),
    "rows": lambda: torch.eye(4).to_sparse_csr(),
    "columns": lambda: torch.eye(4).to_sparse_csc(),
    "meta": lambda: torch.empty(3, device="meta"),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.quint8),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "dictionary": lambda: Copying(a=1),
}


@pytest.mark.sweep(3)
@pytest.mark.parametrize("kind", ODD)
@pytest.mark.filterwarnings("ignore")  # what torch says of such tensors
def test_model_may_hold_non_plain_tensors(kind):
    model = net()
    model.leaf = leaf = ODD[kind]()
    run(model).run(progress=False)
    assert model.leaf is leaf


@pytest.mark.filterwarnings("ignore")
def test_writes_into_a_sparse_tensor_are_undone():
    model = net()
    model.leaf = torch.eye(4).to_sparse()
    with restore_state(model):
        model.leaf._values().fill_(7)
    assert torch.equal(model.leaf.to_dense(), torch.eye(4))


def test_a_schedule_that_keeps_examples_apart_stays_fast():
    """Other numbers are the same program; other calls are looked at, once."""
    clock = Clock()

    def between(h):
        h = h * (1 + 0.1 * clock.step) + 3 * clock.step
        return h.relu() if clock.late else h

    trainer = run(Net(clock, between=between), account=None, steps=6)
    for step in trainer:
        clock.step = step
        assert STAYING in trainer.gradient_method


def test_value_dependent_operations_lose_layer_rules():
    """A branch that made-up examples never take."""

    def before(x):
        return x.clamp(-2, 2) if clock.late and (x.detach().numpy() == 99).any() else x

    clock, (x, y) = Clock(), rows(40)
    x[3] = 99
    trainer = run(Net(clock, before), (x, y), sampling_rate=1, account=None, steps=6)
    assert STAYING in trainer.gradient_method
    follow(trainer, clock)
    assert trainer.gradient_method.startswith(("loop", "torch.func"))
    assert STAYING not in trainer.gradient_method


def test_constants_that_change_within_a_lot_are_refused():
    """Else an example would be treated by which chunk it happens to be in."""
    generator = np.random.default_rng(1)
    clock = Clock()
    model = Net(clock, lambda x: x * (float(generator.uniform(1, 2)) if clock.late else 1.0))
    trainer = run(model, rows(60), sampling_rate=1, microbatch_size=16, account=None)
    with pytest.raises(Refused, match="within a lot"):
        follow(trainer, clock)
    assert trainer.step == 4


@pytest.mark.parametrize("count", [0, 1, 16, 17])
def test_refusal_of_changing_constants_does_not_reveal_the_lot_size(count):
    clock = Clock()

    def before(x):
        return x * (1.0 + clock.late * time.perf_counter())

    trainer = run(Net(clock, before), rows(count), sampling_rate=1, microbatch_size=16)
    with pytest.raises(Refused, match="change within a lot"):
        follow(trainer, clock)


def test_operations_are_checked_for_all_values():
    """A filter along examples mixes nothing while its neighbours weigh nothing."""
    assert STAYING not in run(by_a_filter(Clock())[0], account=None).gradient_method


def test_results_of_an_earlier_microbatch_are_not_reused(tmp_path):
    assert moves(by_what_was_before, tmp_path, microbatch_size=16, count=40) < 1


def test_dropout_and_layers_that_draw_are_the_same_program_at_every_step():
    model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 2))
    trainer = run(model, account=None)
    assert STAYING in trainer.gradient_method
    assert sum(1 for _ in trainer) == STEPS
    assert STAYING in trainer.gradient_method


@pytest.mark.parametrize(
    "change",
    [
        lambda model: model.eval(),
        lambda model: model.append(nn.Tanh()),
        lambda model: model[0].register_forward_hook(lambda *_: None),
        lambda model: model[1].register_full_backward_hook(lambda *_: None),
        lambda model: model[0].weight.requires_grad_(False),
        lambda model: setattr(model[1], "forward", lambda x: x - x.mean(0)),
        lambda model: setattr(model[0], "weight", nn.Parameter(torch.zeros(8, 4))),
        lambda model: model.__setitem__(1, nn.BatchNorm1d(8)),
        lambda model: nn.utils.parametrizations.weight_norm(model[0]),
    ],
)
def test_a_model_that_is_changed_between_steps_is_refused(change):
    model = net()
    steps = iter(run(model, account=None))
    next(steps)
    change(model)
    with pytest.raises(InvalidInput, match="changed"):
        next(steps)


def test_a_loss_that_is_changed_between_steps_is_refused():
    class Loss(nn.Module):
        def forward(self, out, y):
            return F.cross_entropy(out, y, reduction="none")

    loss = Loss()
    trainer = run(loss=loss, account=None)
    steps = iter(trainer)
    next(steps)
    loss.register_forward_hook(lambda module, inputs, output: output - output.mean())
    with pytest.raises(InvalidInput, match="changed"):
        next(steps)


# What is kept elsewhere

COUNTED = {"calls": 0}
TOTAL = 0


class Plain:
    calls = 0

    def __init__(self):
        self.seen = []


class Slotted:
    __slots__ = ("last",)

    def __init__(self):
        self.last = None


def test_state_of_objects_closures_globals_and_classes_is_restored():
    plain, slotted, space, enclosed = Plain(), Slotted(), SimpleNamespace(n=0), 0

    class Keeping(nn.Module):
        calls = 0

        def __init__(self):
            super().__init__()
            self.plain, self.slotted, self.layer = plain, slotted, nn.Linear(4, 2)

        def forward(self, x):
            global TOTAL  # noqa: PLW0603 - as programs do
            nonlocal enclosed
            TOTAL += 1
            enclosed += 1
            COUNTED["calls"] += 1
            Keeping.calls += 1
            type(self.plain).calls += 1
            self.plain.seen.append(x)
            self.plain.more = x
            self.slotted.last = x
            space.n += 1
            return self.layer(x)

    model = Keeping()
    with restore_state(model):
        model(torch.zeros(3, 4))
        assert (TOTAL, enclosed, COUNTED["calls"], space.n, len(plain.seen)) == (1, 1, 1, 1, 1)
    assert (TOTAL, enclosed, COUNTED["calls"], space.n, plain.seen) == (0, 0, 0, 0, [])
    assert (Plain.calls, Keeping.calls, slotted.last, vars(plain)) == (0, 0, None, {"seen": []})


def test_accounts_that_a_loss_reaches_are_left_alone():
    """To put back what was spent would be to spend it twice."""
    from hubbub.accounting import PrivacyLoss
    from hubbub.accounting.in_memory_account import InMemoryAccount

    account = InMemoryAccount()

    class Noting(nn.Module):
        def forward(self, x):
            account.charge("as if from another thread", PrivacyLoss.pure(1))
            return x

    model = Noting()
    with restore_state(model):
        model(torch.zeros(1))
    assert account.spent().epsilon == 1
    assert len(account.receipts) == 1
