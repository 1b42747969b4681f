"""A run from its plan to its release, through the public door."""

import copy
import json
import math
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, IterableDataset, TensorDataset

import hubbub
from hubbub.accounting import Budget, PrivacyLoss
from hubbub.accounting.in_memory_account import InMemoryAccount
from hubbub.errors import BudgetExceeded, Halted, HubbubError, InvalidInput, Refused, Unsupported
from hubbub.noise import rounded_gaussian
from hubbub.noise.entropy import random_bytes
from hubbub.training import AdaptiveClipping, ShuffledSampling, make_private
from hubbub.unit import Neighbours, Unit
from internals import inject_bits

RATE, STEPS = 0.1, 12


def net():
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))


def rows(count=300):
    x = torch.randn(count, 4)
    return x, (x[:, 0] > 0).long()


def run(model=None, data=None, optimizer=None, **options):
    model = model or net()
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.5)
    settings = {
        "loss": F.cross_entropy,
        "clipping_norm": 1.0,
        "sampling_rate": RATE,
        "steps": STEPS,
        "noise_multiplier": 1.0,
        "lot_size": 30,
        "account": None,
        "allow_large_epsilon": True,
    }
    return make_private(model, optimizer, rows() if data is None else data, **{**settings, **options})


def stream():
    """Bits that can be drawn again: for comparing runs, not for hiding anything."""
    generator = np.random.default_rng(5)
    return lambda count: generator.bytes(count) if count else b""


# What it costs


def test_privacy_loss_is_that_of_sampled_gaussians():
    assert run().privacy_loss == PrivacyLoss.gaussian(1).poisson_subsampled(RATE) * STEPS
    assert run(noise_multiplier=2.0).noise_multiplier() == 2


def test_noise_is_calibrated_to_the_budget():
    trainer = run(noise_multiplier=None, budget=Budget(1.5, 1e-5))
    assert 1.4999 < trainer.epsilon() <= 1.5
    assert trainer.epsilon(1e-5) == trainer.epsilon()


def test_layers_share_one_lot():
    """σ_eff = (Σ σ_l⁻²)^−½, sampled once."""
    trainer = run(clipping_norm={"0": 0.5, "2": 2.0}, noise_multiplier={"0": 3.0, "2": 4.0})
    assert (
        trainer.privacy_loss
        == PrivacyLoss.gaussian_from_mu_squared(Fraction(1, 9) + Fraction(1, 16)).poisson_subsampled(RATE)
        * STEPS
    )
    assert trainer.noise_multiplier() == pytest.approx(1 / math.sqrt(1 / 9 + 1 / 16))
    shared = run(clipping_norm={"0": 0.5, "2": 2.0}, noise_multiplier=1.0)
    assert shared.noise_multiplier() == pytest.approx(1)
    assert shared.epsilon(1e-5) <= run().epsilon(1e-5) * (1 + 1e-9)


def test_schedules_are_summed_step_by_step():
    sigmas = [1 + step / 10 for step in range(STEPS)]
    rates = [0.05 + step / 100 for step in range(STEPS)]
    trainer = run(
        noise_multiplier=sigmas,
        sampling_rate=lambda step: rates[step],
        clipping_norm=lambda step: 1 / (step + 1),
    )
    parts = [
        PrivacyLoss.gaussian(1 / Fraction(repr(s))).poisson_subsampled(Fraction(repr(r)))
        for s, r in zip(sigmas, rates, strict=True)
    ]
    assert trainer.privacy_loss == PrivacyLoss.compose(parts)
    shaped = run(noise_multiplier=lambda step: 1 + step % 2, budget=Budget(2, 1e-5))
    assert 1.999 < shaped.epsilon() <= 2
    assert shaped.noise_multiplier(3) == pytest.approx(2 * shaped.noise_multiplier(0))


def test_sampling_rate_function_is_called_once_per_step():
    """Else the noise could be for other rates than those that are drawn."""
    calls = []
    trainer = run(sampling_rate=lambda step: calls.append(step) or 0.1 * len(calls), steps=2)
    assert calls == [0, 1]
    assert [trainer.schedule.sampler.sampling_rate(step) for step in range(2)] == [
        Fraction(1, 10),
        Fraction(2, 10),
    ]


def test_too_little_noise_must_be_confirmed():
    for options in ({"noise_multiplier": 1e-3}, {"noise_multiplier": 1.0, "sampling_rate": 1, "steps": 1000}):
        with pytest.raises(Refused, match="noise_multiplier is so small that epsilon is above 20") as caught:
            run(**options, allow_large_epsilon=False)
        assert "larger noise_multiplier" in caught.value.fix
        run(**options, allow_large_epsilon=True)
    run(noise_multiplier=2.0, allow_large_epsilon=False)
    with pytest.raises(InvalidInput, match="neither True nor False"):
        run(allow_large_epsilon=1)


def test_adaptive_clipping_is_charged():
    trainer = run(clipping_norm=AdaptiveClipping(1.0, count_noise_stddev=5), noise_multiplier=2.0)
    assert (
        trainer.privacy_loss
        == PrivacyLoss.gaussian_from_mu_squared(Fraction(1, 4) + Fraction(1, 100)).poisson_subsampled(RATE)
        * STEPS
    )
    assert (
        run(noise_multiplier=None, clipping_norm=AdaptiveClipping(1.0), budget=Budget(1, 1e-5)).epsilon() <= 1
    )
    with pytest.raises(InvalidInput, match="counts of adaptive clipping"):
        run(
            noise_multiplier=None,
            clipping_norm=AdaptiveClipping(1.0, count_noise_stddev=0.1),
            budget=Budget(0.1, 1e-9),
        )


def test_shuffled_lots_have_their_own_accounting():
    trainer = run(sampling_rate=ShuffledSampling(300, 30), steps=20, noise_multiplier=4.0)
    assert trainer.privacy_loss == PrivacyLoss.gaussian_from_mu_squared(2 * 4 * Fraction(1, 16))
    assert str(trainer.unit) == "one row, substitute"
    assert len([0 for _ in trainer]) == 20


# What it does


class Counted:
    """An account that remembers, and sees how often the data had been read by then."""

    def __init__(self, reads):
        self.reads, self.charged = reads, []

    def charge(self, what, loss, *, unit=None):
        self.charged.append((what, loss, len(self.reads)))


class Watched(Dataset):
    def __init__(self, count=40):
        self.reads = []
        self.x, self.y = rows(count)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, place):
        self.reads.append(place)
        return self.x[place], self.y[place]


def test_the_whole_run_is_charged_before_a_row_is_read():
    data = Watched()
    trainer = run(
        data=data, padding_example=(torch.zeros(4), torch.tensor(0)), account=(account := Counted(data.reads))
    )
    assert data.reads == []
    assert account.charged == []
    steps = iter(trainer)
    next(steps)
    assert account.charged == [(f"training, {STEPS} steps", trainer.privacy_loss, 0)]
    list(steps)
    assert len(account.charged) == 1
    assert trainer.step == STEPS


def test_a_budget_too_small_stops_it_before_anything_happens():
    model = net()
    before = [p.clone() for p in model.parameters()]
    account = InMemoryAccount(Budget(0.1, 1e-6))
    with pytest.raises(BudgetExceeded):
        next(iter(run(model, account=account)))
    assert account.receipts == []
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_training_and_queries_spend_from_one_account():
    account = InMemoryAccount(Budget(5, 1e-5))
    account.charge("a count", PrivacyLoss.pure(1))
    run(account=account, noise_multiplier=None, budget=Budget(2, 1e-6)).run(progress=False)
    assert [receipt.what for receipt in account.receipts] == ["a count", f"training, {STEPS} steps"]
    assert 1 < account.epsilon(1e-5) <= 5


def test_a_run_that_is_charged_before_other_questions_costs_its_own_epsilon():
    budget = Budget(1, 1e-5)
    account = InMemoryAccount(budget)
    trainer = run(account=account, noise_multiplier=None, budget=Budget(Fraction(97, 100), 1e-5))
    trainer.charge()
    trainer.charge()
    assert "charged, not started" in repr(trainer)
    for _ in range(20):
        account.charge("a count", PrivacyLoss.gaussian(0.01))
    trainer.run(progress=False)
    assert [receipt.what for receipt in account.receipts] == [f"training, {STEPS} steps", *["a count"] * 20]
    assert account.spent().epsilon <= 1
    # After as many questions, the same run does not fit.
    late = InMemoryAccount(budget)
    for _ in range(20):
        late.charge("a count", PrivacyLoss.gaussian(0.01))
    with pytest.raises(BudgetExceeded):
        late.charge("a run", trainer.privacy_loss)


def test_public_attributes_of_a_trainer_are_read_only():
    """Else what was charged could differ from what runs, from what a checkpoint says and from the release."""
    account = InMemoryAccount(Budget(50, 1e-5, allow_large_epsilon=True))
    adaptive = AdaptiveClipping(initial_norm=1, target_quantile=0.5)
    trainer = run(account=account, clipping_norm=adaptive, ema_decay=0.9)
    other = run(noise_multiplier=0.5, clipping_norm=adaptive, ema_decay=0.9)
    trainer.charge()
    public = {name for name in dir(trainer) if not name.startswith("_")}
    assert {"charge_key", "clipping_norms", "is_paid", "repeated_loss", "schedule", "step", "unit"} < public
    for name in [*sorted(public), "a_new_one"]:
        with pytest.raises(InvalidInput, match=f"{name} of a trainer cannot be set"):
            setattr(trainer, name, getattr(other, name, None))
    with pytest.raises(TypeError):
        trainer.clipping_norms[0] = 100.0
    with pytest.raises(TypeError):
        trainer.ema_weights["0.weight"] = torch.zeros(8, 4)
    assert trainer.privacy_loss == run(clipping_norm=adaptive).privacy_loss


def test_charging_beforehand_needs_an_account_and_a_run_of_ones_own(tmp_path):
    with pytest.raises(InvalidInput, match="no account"):
        run(account=None).charge()
    first = run(account=InMemoryAccount(Budget(50, 1e-5, allow_large_epsilon=True)))
    next(iter(first))
    first.save(tmp_path / "run.checkpoint")
    second = run(account=InMemoryAccount(Budget(50, 1e-5, allow_large_epsilon=True)))
    second.charge()
    with pytest.raises(InvalidInput, match="charged"):
        second.resume(tmp_path / "run.checkpoint")


def test_noise_is_noise_multiplier_times_clipping_norm():
    """No data: what is left is noise. False alarm: below 1e-9, by the normal law's 6.2 deviations."""
    model = nn.Linear(50, 40)
    empty = (torch.zeros(0, 50), torch.zeros(0, dtype=torch.long))
    trainer = run(
        model,
        data=empty,
        clipping_norm=0.5,
        noise_multiplier=3.0,
        lot_size=10,
        optimizer=torch.optim.SGD(model.parameters(), lr=0),
    )
    draws = [torch.cat([p.grad.flatten() for p in model.parameters()]) for _ in trainer]
    noise = torch.stack(draws) * 10 / (3 * 0.5)
    count = noise.numel()
    assert abs(noise.mean()) < 6.2 / math.sqrt(count)
    assert abs(noise.square().mean() - 1) < 6.2 * math.sqrt(2 / count)
    assert abs((noise[1:] * noise[:-1]).mean()) < 6.2 / math.sqrt(count - noise.shape[1])


def test_the_noise_is_the_exact_rounded_gaussian_and_torch_cannot_seed_it():
    model = net()
    empty = (torch.zeros(0, 4), torch.zeros(0, dtype=torch.long))
    trainer = run(model, data=empty, optimizer=torch.optim.SGD(model.parameters(), lr=0))
    with inject_bits(stream()):
        next(iter(trainer))
    sums = trainer._sums[0]
    with inject_bits(stream()):
        random_bytes(8)  # the seed of random layers
        expected = rounded_gaussian(sums.threshold.noise_steps, size=sums.group.size)
    result = torch.cat([p.grad.flatten() for p in model.parameters()])
    assert torch.equal(result, torch.from_numpy(expected * (sums.threshold.grid_step / 30)).float())
    torch.manual_seed(3)
    next(iter(trainer))
    first = model[0].weight.grad.clone()
    torch.manual_seed(3)
    next(iter(trainer))
    assert not torch.equal(first, model[0].weight.grad)


def test_each_layer_gets_its_own_noise():
    model = nn.Sequential(nn.Linear(60, 50), nn.Linear(50, 60))
    empty = (torch.zeros(0, 60), torch.zeros(0, dtype=torch.long))
    trainer = run(
        model,
        data=empty,
        clipping_norm={"0": 1.0, "1": 10.0},
        noise_multiplier={"0": lambda step: 1 + step, "1": 2.0},
        lot_size=1,
    )
    for step in trainer:
        for layer, expected in ((model[0], step), (model[1], 20)):
            noise = torch.cat([p.grad.flatten() for p in layer.parameters()])
            # 6.2 deviations of a mean of 3000 squares.
            assert abs(noise.square().mean() / expected**2 - 1) < 6.2 * math.sqrt(2 / noise.numel())


def test_training_reduces_the_loss():
    model = net()
    x, y = rows(3000)
    make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=2.0),
        (x, y),
        loss=F.cross_entropy,
        clipping_norm=1.0,
        sampling_rate=0.1,
        steps=60,
        budget=Budget(8, 1e-5),
        lot_size=300,
        account=None,
    ).run(progress=False)
    assert (model(x).argmax(1) == y).float().mean() > 0.9


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "data",
    [
        rows(60),
        tuple(part.numpy() for part in rows(60)),
        TensorDataset(*rows(60)),
        Watched(60),
    ],
    ids=["tensors", "arrays", "TensorDataset", "Dataset"],
)
def test_data_may_have_any_form(data):
    looks = (torch.zeros(4), torch.tensor(0)) if isinstance(data, Watched) else None
    assert run(data=data, padding_example=looks).run(progress=False).value.keys() == net().state_dict().keys()


@pytest.mark.parametrize(
    "loss", [F.cross_entropy, nn.CrossEntropyLoss(), nn.CrossEntropyLoss(label_smoothing=0.1)]
)
def test_torch_losses_are_computed_per_example(loss):
    assert "layer rules" in run(loss=loss).gradient_method


def test_custom_objective_is_accepted():
    model = nn.Linear(4, 4)
    trainer = run(
        model,
        data=rows(50)[0],
        loss=None,
        objective=lambda model, x: (model(x) - x).square().sum(1),
        sampling_rate=0.5,
    )
    trainer.run(progress=False)


def test_a_training_loop_needs_three_changed_lines():
    model, (x, y) = net(), rows()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    for _ in run(model, (x, y), optimizer):
        schedule.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1 * 0.9**STEPS)


def test_progress_bars_learn_how_many_steps_are_left():
    trainer = run()
    assert [len(trainer), *(len(trainer) for _ in trainer)] == [*range(STEPS, -1, -1)]
    assert trainer


def test_frozen_parameters_stay_and_are_not_charged_for():
    model = net()
    model[0].requires_grad_(False)
    before = model[0].weight.clone()
    model[0].weight.grad = torch.ones_like(model[0].weight)
    trainer = run(model)
    assert trainer._sums[0].group.size == 8 * 2 + 2
    trainer.run(progress=False)
    assert torch.equal(model[0].weight, before)


def test_several_optimizers_and_parameter_groups_work():
    model = net()
    optimizers = [
        torch.optim.SGD(model[0].parameters(), lr=0.1, momentum=0.9),
        torch.optim.Adam([{"params": model[2].weight, "lr": 0.1}, {"params": model[2].bias}]),
    ]
    before = [p.clone() for p in model.parameters()]
    run(model, optimizer=optimizers).run(progress=False)
    assert not any(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


def test_moving_average_is_released():
    model = net()
    trainer = run(model, ema_decay=0.9)
    release = trainer.run(progress=False)
    assert torch.equal(release.value["0.weight"], trainer.ema_weights["0.weight"])
    assert not torch.equal(release.value["0.weight"], model[0].weight)


def test_adaptive_clipping_norm_approaches_the_quantile():
    model = net()
    trainer = run(
        model,
        rows(3000),
        clipping_norm=AdaptiveClipping(50.0, target_quantile=0.5, learning_rate=0.5),
        steps=30,
        lot_size=300,
        noise_multiplier=1.0,
    )
    trainer.run(progress=False)
    assert trainer.clipping_norms[0] < 5


# What comes out


def test_a_release_says_what_it_cost_and_how_it_was_made():
    trainer = run()
    with pytest.raises(Halted, match="not started"):
        trainer.release()
    release = trainer.run(progress=False)
    assert release.loss == trainer.privacy_loss
    facts = json.loads(release.source.to_json())
    assert facts["mechanism"] == "dp-sgd"
    assert facts["steps"] == facts["steps_done"] == STEPS
    assert release.map(len).value == 4
    with pytest.raises(InvalidInput):
        release.error()
    with pytest.raises(InvalidInput):
        release.source.error()


def test_nothing_that_is_shown_depends_on_how_much_data_there_is():
    def display(count):
        trainer = run(data=rows(count))
        before = repr(trainer)
        release = trainer.run(progress=False)
        return before, repr(trainer), trainer.summary(), release.label(), str(trainer.privacy_loss)

    assert display(300) == display(17)


def test_the_bar_shows_steps_epsilon_and_time_and_nothing_else(capsys):
    run().run()
    out = capsys.readouterr().out
    assert "ε = " in out
    assert f"{STEPS}/{STEPS}" in out
    assert "loss" not in out


def test_an_example_that_is_no_number_does_not_harm_the_weights():
    x, y = rows()
    x[5:50] = math.nan
    model = net()
    run(model, (x, y)).run(progress=False)
    assert all(torch.isfinite(p).all() for p in model.parameters())


def test_unreadable_examples_become_padding():
    class Broken(Watched):
        def __getitem__(self, place):
            if place == 3:
                raise OSError("row 3 is secret")
            if place == 4:
                return torch.zeros(9), self.y[place]
            return super().__getitem__(place)

    run(data=Broken(), sampling_rate=1, padding_example=(torch.zeros(4), torch.tensor(0))).run(progress=False)


class Named(Watched):
    """Items by name, in other types than the example's."""

    def __getitem__(self, place):
        x, y = super().__getitem__(place)
        return {"y": int(y), "x": x.double().numpy(), "what": None}


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_items_follow_the_names_and_types_of_the_padding_example(kind):
    data = Named()
    plain, other = net().to(kind), net().to(kind)
    other.load_state_dict(plain.state_dict())
    settings = {"sampling_rate": 1, "steps": 1, "lot_size": 40, "noise_multiplier": 1e-6}
    run(plain, (data.x.to(kind), data.y), **settings).run(progress=False)
    example = {"x": torch.zeros(4, dtype=kind), "y": torch.tensor(0)}
    run(other, data, padding_example=example, **settings).run(progress=False)
    assert torch.allclose(plain[0].weight.grad, other[0].weight.grad, atol=1e-4)
    assert plain[0].weight.grad.norm() > 0.01


def test_numpy_doubles_become_the_dtype_of_the_model():
    x, y = rows(40)
    trainer = run(
        None, (x.double().numpy(), y.numpy()), sampling_rate=1, steps=1, padding_example=(np.zeros(4), 0)
    )
    assert all(p.isfinite().all() for p in trainer.run(progress=False).value.values())


def test_losses_with_targets_in_0_to_1_are_supported():
    x, y = rows(40)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1), nn.Sigmoid())
    trainer = run(model, (x, y[:, None].float()), loss=F.binary_cross_entropy, sampling_rate=1, steps=1)
    assert "layer rules" in trainer.gradient_method
    trainer.run(progress=False)

    class Mixed(nn.Module):
        def forward(self, x):
            return (x - x.mean(0)).sigmoid()

    with pytest.raises(Refused, match="another example"):
        run(nn.Sequential(model[0], Mixed()), (x, torch.rand(40, 8)), loss=F.binary_cross_entropy)

    class Beyond(nn.Module):
        """Mixes neighbours where they are beyond 1."""

        def forward(self, x):
            far = F.relu(x - 1).T[None]
            return x + F.conv1d(far, torch.ones(4, 1, 3), padding=1, groups=4)[0].T

    with pytest.raises(Refused, match="another example"):
        run(nn.Sequential(Beyond(), *model), (x, y[:, None].float()), loss=F.binary_cross_entropy)

    class Pixels(nn.Module):
        def forward(self, x):
            assert (x >= 0).all()
            assert (x <= 1).all()
            return x

    pixels = run(nn.Sequential(Pixels(), *net()), (x.sigmoid(), y))
    assert "layer rules" not in pixels.gradient_method  # elsewhere it was not tried


def test_account_reading_lies_between_charge_and_budget():
    account = InMemoryAccount(Budget(1.2, 1e-5))
    run(noise_multiplier=None, budget=Budget(1, 1e-5), sampling_rate=0.05, steps=100, account=account).run(
        progress=False
    )
    assert 1 < account.epsilon(1e-5) <= 1.2 + 1e-9
    assert account.epsilon(1e-6) > 1.2  # of so small a δ the budget says nothing
    account = InMemoryAccount(Budget(1, 1e-5))
    account.charge("a selection", PrivacyLoss.approximate(0.5, 1e-6))
    assert account.epsilon(0) == account.epsilon(1e-7) == math.inf
    assert account.epsilon(1e-6) == 0.5


@pytest.mark.parametrize("rate", [RATE, 0.01])
def test_run_calibrated_to_a_budget_fits_an_account_with_that_budget(rate):
    account = InMemoryAccount(Budget(1, 1e-5))
    trainer = run(noise_multiplier=None, budget=Budget(1, 1e-5), sampling_rate=rate, account=account)
    trainer.run(progress=False)
    assert account.epsilon(1e-5) <= 1


def test_account_of_another_type_is_refused():
    with pytest.raises(InvalidInput, match="account is of type"):
        run(account=Budget(1, 1e-5))


def test_errors_of_torch_are_reported_in_its_own_words():
    x, y = rows(40)
    with pytest.raises(InvalidInput, match=r"target dtype|scalar type"):
        run(None, (x, y.int()))


def test_repr_shows_sampling_rate_and_lot_size():
    assert "rate 0.1, lot size 30" in repr(run())
    assert "rate 0.1 to 0.2" in repr(run(sampling_rate=lambda step: 0.1 if step < 5 else 0.2))


def test_units_can_be_users():
    trainer = run(units=np.arange(300) // 3, examples_per_unit=2, unit="patient")
    assert str(trainer.unit) == "one patient, add/remove"
    trainer.run(progress=False)
    assert trainer._examples._unit_count == 100


def test_failed_step_is_counted():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    optimizer.register_step_pre_hook(lambda *_: 1 / 0)
    trainer = run(model, optimizer=optimizer)
    for done in (1, 2):
        with pytest.raises(ZeroDivisionError):
            next(iter(trainer))
        assert trainer.step == done
    with pytest.raises(InvalidInput, match="step of a trainer cannot be set"):
        trainer.step = 0
    with pytest.raises(InvalidInput, match="copied"):
        copy.deepcopy(trainer)


def test_only_tensors_are_released():
    class Extra(nn.Linear):
        def get_extra_state(self):
            return {"anything": 1}

        def set_extra_state(self, state):
            pass

    assert set(run(Extra(4, 2)).run(progress=False).value) == {"weight", "bias"}


def test_account_of_one_unit_pays_for_no_other():
    account = InMemoryAccount(Budget(9, 1e-5))
    run(account=account, units=np.arange(300) // 3, unit="patient").run(progress=False)
    assert str(account.unit) == "one patient, add/remove"
    with pytest.raises(Refused, match="patient"):
        next(iter(run(account=account)))
    assert len(account.receipts) == 1


def test_augmentation_may_not_mix_and_its_errors_are_contained():
    with pytest.raises(Refused, match="another example"):
        run(augment=lambda x, y: (x - x.mean(0), y))

    def fails(x, y):
        if (x == 77).any():
            raise ValueError("77 is a secret")
        return x * 1.0, y

    x, y = rows(20)
    x[3] = 77
    run(data=(x, y), augment=fails, sampling_rate=1, steps=2).run(progress=False)


def test_model_that_fails_on_zeros_needs_a_padding_example():
    class Inverse(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)

        def forward(self, x):
            return self.layer(torch.linalg.inv(x.view(-1, 2, 2)).flatten(1))

    with pytest.raises(InvalidInput, match="all zero"):
        run(Inverse())
    nobody = (torch.eye(2).flatten(), torch.tensor(0))
    run(Inverse(), rows(17), sampling_rate=1, microbatch_size=16, padding_example=nobody).run(progress=False)
    with pytest.raises(InvalidInput, match="shapes and types"):
        run(padding_example=(torch.zeros(3), torch.tensor(0)))


def test_key_of_one_unit_does_not_change_other_units():
    def units(keys):
        return run(data=rows(4), units=keys, examples_per_unit=2)._examples._unit_count

    assert units([2**53, 2**53 + 1, 2**53, 0.5]) == 3
    assert units(["a", "b", "a", None]) == 2
    assert units(np.array([1.0, math.nan, 2.0, math.nan])) == 2
    assert units([1, "1", (1,), [1]]) == 3


# What is refused


class Mixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x - x.mean(0))


class Remembering(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        self.seen += x.detach().sum(0)
        return self.layer(x)


def hooked():
    model = net()
    model[0].register_full_backward_hook(lambda *_: None)
    return model


def sampled():
    model = net()
    model[0].weight.grad_sample = None
    return model


@pytest.mark.parametrize(
    ("model", "kind", "words"),
    [
        (lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), Refused, "GroupNorm"),
        (Mixing, Refused, "depends on another example"),
        (Remembering, Refused, "buffers"),
        (hooked, InvalidInput, "hooks"),
        (sampled, InvalidInput, "grad_sample"),
        (
            lambda: nn.Sequential(nn.Linear(4, 2), nn.InstanceNorm1d(2, track_running_stats=True)),
            Refused,
            "statistics",
        ),
        (lambda: nn.Sequential(nn.Embedding(3, 2, max_norm=1.0)), Refused, "max_norm"),
    ],
)
def test_models_that_mix_examples_are_refused(model, kind, words):
    account = InMemoryAccount(Budget(9, 1e-5))
    with pytest.raises(kind, match=words):
        run(model(), account=account)
    assert account.receipts == []


@pytest.mark.sweep(7)
@pytest.mark.parametrize(
    "options",
    [
        {"clipping_norm": 0},
        {"clipping_norm": -1.0},
        {"clipping_norm": math.nan},
        {"clipping_norm": {"0": 1.0}},
        {"clipping_norm": {"0": 1.0, "2": 1.0, "7": 1.0}},
        {"clipping_norm": {"0": 1.0, "2": 1.0}, "noise_multiplier": {"0": 1.0}},
        {"sampling_rate": 1.5},
        {"sampling_rate": 0},
        {"steps": 0},
        {"steps": 2.5},
        {"noise_multiplier": math.nan},
        {"noise_multiplier": 0},
        {"noise_multiplier": None},
        {"noise_multiplier": [1.0, 2.0]},
        {"noise_multiplier": None, "budget": Budget(1)},
        {"lot_size": 0},
        {"microbatch_size": 1000},
        {"ema_decay": 1.5},
        {"examples_per_unit": 2},
        {"units": [1, 2, 3]},
        {"loss": None},
        {"objective": F.cross_entropy},
        {"loss": lambda out, y: F.cross_entropy(out, y).mean()},
        {"data": (torch.zeros(3, 4), torch.zeros(4))},
        {"data": torch.zeros(3, 4)},
        {"sampling_rate": ShuffledSampling(10, 20)},
        {"data": Watched()},
        {"model": net().double().append(nn.Linear(2, 2))},
        {"model": net().half()},
        {"sampling_rate": ShuffledSampling(299, 20)},
        {"noise_multiplier": 1e13},
        {"noise_multiplier": 1e-12},
        {"clipping_norm": [1.0] * 11 + [1e9]},
        {"data": (torch.zeros(3, 4, device="meta"), torch.zeros(3))},
        {"loss": lambda out, y: F.cross_entropy(out, y - 1, reduction="none")},
        {"noise_multiplier": None, "budget": (1, 1e-5)},
        {"unit": "patient"},
        {"unit": Unit("patient")},
        {"unit": Unit.row(), "units": range(300)},
        {"padding_example": (torch.zeros(4), torch.tensor(0), torch.tensor(0))},
        {"unit": Unit("patient", Neighbours.SUBSTITUTE), "units": range(300)},
        {"loss": None, "objective": lambda model, x, y: x.sum(1)},
        {"data": Watched(), "padding_example": {"x": "text"}},
    ],
    ids=", ".join,
)
def test_invalid_arguments_are_refused_before_any_charge(options):
    account = InMemoryAccount(Budget(100, 1e-3, allow_large_epsilon=True))
    with pytest.raises(InvalidInput):
        run(account=account, **options)
    assert account.receipts == []


def test_optimizers_that_do_not_fit_are_refused():
    with pytest.raises(InvalidInput, match="no parameter"):
        run(net().requires_grad_(False))
    with pytest.raises(InvalidInput, match="not the model's"):
        run(net(), optimizer=torch.optim.SGD(net().parameters(), lr=0.1))
    with pytest.raises(InvalidInput, match="not a torch optimizer"):
        run(net(), optimizer=0.1)
    model = net()
    with pytest.raises(Unsupported):
        run(model, optimizer=torch.optim.LBFGS(model.parameters()))


def test_data_that_cannot_be_sampled_are_refused():
    class Stream(IterableDataset):
        def __iter__(self):
            yield from ()

    for data in (Stream(), {"x": torch.zeros(3, 4), "y": torch.zeros(3)}):
        with pytest.raises(Unsupported):
            run(data=data)


def test_errors_contain_no_data():
    with pytest.raises(HubbubError) as caught:
        run(data=([1.5], "secret"))
    assert "secret" not in str(caught.value)
    assert "1.5" not in str(caught.value)


def test_training_is_imported_without_torch():
    code = (
        "import sys, hubbub; hubbub.training; hubbub.training.PoissonSampler; dir(hubbub.training);"
        "print(sorted({'torch', 'scipy'} & set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"
    assert hubbub.training.make_private is make_private
    with pytest.raises(AttributeError):
        hubbub.training.nonsense  # noqa: B018 - the question is the test


def test_large_epsilon_is_confirmed_for_a_given_noise_multiplier():
    with pytest.raises(Refused, match="above 20"):
        run(noise_multiplier=0.05, sampling_rate=1, allow_large_epsilon=False)
    with pytest.raises(InvalidInput, match="allow_large_epsilon"):
        run(allow_large_epsilon="yes")
    assert next(iter(run(noise_multiplier=0.05, sampling_rate=1))) == 1
    target = Budget(30, 1e-5, allow_large_epsilon=True)  # confirmed there
    whole = {"noise_multiplier": None, "sampling_rate": 1, "budget": target}
    assert next(iter(run(**whole, allow_large_epsilon=False))) == 1


@pytest.mark.filterwarnings("ignore")  # torch's own, of what is old
@pytest.mark.parametrize("norm", [nn.utils.spectral_norm, nn.utils.parametrizations.spectral_norm])
def test_spectral_norm_is_refused_for_what_it_does(norm):
    """It writes how many calls there were, not who was in them, and nothing else listens."""
    model = net()
    norm(model[0])
    with pytest.raises(Refused, match=r"spectral_norm.*how many calls"):
        run(model)


def test_spectral_norm_with_a_fixed_estimate_is_trained():
    model = net()
    nn.utils.parametrizations.spectral_norm(model[0]).parametrizations.eval()
    before = model[0].parametrizations.weight[0]._u.clone()
    run(model, steps=2).run(progress=False)
    assert torch.equal(model[0].parametrizations.weight[0]._u, before)


@pytest.mark.filterwarnings("ignore")
def test_weights_that_a_hook_of_torch_computes_are_refused_for_that():
    model = net()
    nn.utils.weight_norm(model[0])
    with pytest.raises(InvalidInput, match=r"computes its weight in a hook.*parametrizations"):
        run(model)
    model = net()
    nn.utils.parametrizations.weight_norm(model[0])
    run(model, steps=2).run(progress=False)
