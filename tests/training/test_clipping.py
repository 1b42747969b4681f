"""One unit moves a lot's integers by no more than its threshold says, whatever it holds."""

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hubbub.errors import EngineFailed, InvalidInput
from hubbub.sensitivity import unwrap
from hubbub.training.batch_invariance import check_batch_invariance
from hubbub.training.clipping import (
    MICROBATCH_MULTIPLE,
    ClippedSum,
    ClippingThreshold,
    ParameterGroup,
    sum_clipped_gradients,
)
from hubbub.training.examples import Examples
from hubbub.training.gradient_storage import DenseGradient, FactoredGradient
from hubbub.training.per_example_gradients import Functional, LayerRules, Loop, Objective
from hubbub.unit import Unit
from training.models import MODELS

CHUNK = 16


class Clipped:
    """A model's clipped sums of a lot, one for each group."""

    def __init__(
        self,
        model,
        x,
        y,
        *,
        clipping_norm=0.1,
        kind=LayerRules,
        groups=None,
        augment=None,
        microbatch_size=CHUNK,
        **options,
    ):
        self.microbatch_size = microbatch_size
        objective = Objective(
            model, lambda model, x, y: F.cross_entropy(model(x), y, reduction="none"), augment
        )
        self.parameters = list(model.parameters())
        self.method = kind(objective, self.parameters)
        self.examples = Examples((x, y), **options)
        self.sums = [
            ClippedSum(group, ClippingThreshold.of(clipping_norm, Fraction(1), group.size), microbatch_size)
            for group in groups or [ParameterGroup("all", tuple(self.parameters))]
        ]

    def __call__(self, lot):
        for sums in self.sums:
            sums.start_lot(sums.threshold)
        sum_clipped_gradients(
            self.sums,
            self.method,
            self.examples.microbatches(np.array(lot, dtype=np.int64), self.microbatch_size, CHUNK),
        )
        return [unwrap(sums.bounded(Unit.row())).copy() for sums in self.sums]


def moved(clipped, lot, place):
    """How far the sums move, each in its C, when one unit goes and the last takes its place."""
    rest = [*lot[:place], lot[-1], *lot[place + 1 : -1]] if place < len(lot) - 1 else lot[:-1]
    ratios = []
    for sums, a, b in zip(clipped.sums, clipped(lot), clipped(rest), strict=True):
        limit = sums.threshold.noise_steps / float(sums.threshold.noise_multiplier)
        ratios.append(math.sqrt(float(np.sum((a - b).astype(float) ** 2))) / limit)
    return ratios


def problem(name="Linear", rows=40):
    model, x = MODELS[name]()
    more = (
        torch.randn(rows, *x.shape[1:])
        if x.is_floating_point()
        else torch.randint(0, 11, (rows, *x.shape[1:]))
    )
    return model, more, torch.randint(0, 3, (rows,))


@pytest.mark.sweep(11)
@pytest.mark.parametrize("name", MODELS)
def test_one_unit_moves_the_sum_by_at_most_the_clipping_norm(name):
    model, x, y = problem(name)
    clipped = Clipped(model, x, y)
    for lot, place in ((list(range(37)), 3), (list(range(33)), 0), (list(range(5)), 4), ([7], 0)):
        (ratio,) = moved(clipped, lot, place)
        assert 0.9 < ratio <= 1  # what is clipped is clipped to nearly all of C


@pytest.mark.parametrize("kind", [LayerRules, Functional, Loop])
def test_all_gradient_methods_give_the_same_sum(kind):
    model, x, y = problem("Conv2d")
    reference, ours = Clipped(model, x, y, kind=Loop), Clipped(model, x, y, kind=kind)
    lot = list(range(37))
    (a,), (b,) = reference(lot), ours(lot)
    assert np.abs(a - b).max() * reference.sums[0].threshold.grid_step < 1e-5


STRANGE = [math.nan, math.inf, -math.inf, 1e30, 1e38, 1e19, 1e-40, 0.0]


@pytest.mark.sweep(7)
@pytest.mark.parametrize("value", STRANGE)
@pytest.mark.parametrize("name", ["Linear", "Linear, few positions", "Conv2d", "LSTM", "LayerNorm"])
def test_extreme_example_moves_the_sum_by_at_most_the_clipping_norm(name, value):
    model, x, y = problem(name)
    x[3] = value
    clipped = Clipped(model, x, y)
    assert moved(clipped, list(range(37)), 3)[0] <= 1
    assert moved(clipped, list(range(37)), 36)[0] <= 1


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_non_finite_gradients_contribute_nothing(value):
    model, x, y = problem("Conv2d")
    x[3] = value
    with_it, without = Clipped(model, x, y)([3, 4]), Clipped(model, x, y)([4])
    assert np.array_equal(with_it[0], without[0])


def test_failing_example_contributes_nothing_without_a_message():
    model, x, y = problem("Linear")
    y[3] = 99
    clipped = Clipped(model, x, y)
    (with_it,), (without,) = clipped(range(20)), clipped([0, 1, 2, 19, *range(4, 19)])
    assert np.abs(with_it - without).max() <= 4  # steps of the grid, by rounding
    assert moved(clipped, list(range(37)), 5)[0] <= 1


@pytest.mark.parametrize("kind", [LayerRules, Loop])
def test_writes_into_the_input_are_undone_if_another_example_raises(kind):
    """All others are then computed once more: on what they were, not on what was made of it."""

    class Writing(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(5, 3)

        def forward(self, x):
            return self.layer(x.mul_(-1.0))

    x, y = torch.randn(20, 5), torch.randint(0, 3, (20,))
    y[3] = 99
    assert moved(Clipped(Writing(), x, y, kind=kind), list(range(12)), 3)[0] <= 1


def test_storage_that_depends_on_microbatch_size_is_not_cut(monkeypatch):
    """Gradients of a whole chunk are kept as factors, those of a part of it are written out."""

    class Long(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(64, 64), nn.Linear(64, 3)

        def forward(self, x):
            return self.last(self.first(x).mean(1))

    x, y = torch.randn(2, 16, 64), torch.zeros(2, dtype=torch.long)
    clipped = Clipped(Long(), x, y)
    assert check_batch_invariance(clipped.method, [x[0], y[0]], 1, 64)[1:] == (True, MICROBATCH_MULTIPLE)
    monkeypatch.setattr("hubbub.training.gradient_storage.MAX_DENSE_NUMBERS", 64 * 64 * 40)
    assert check_batch_invariance(clipped.method, [x[0], y[0]], 1, 64)[2] == 64


def test_microbatches_leave_no_remainder_for_kernels():
    """A softplus of what is left over beside whole registers has other last bits than of all else."""
    blank = [torch.zeros(5), torch.zeros((), dtype=torch.long)]
    for size in (MICROBATCH_MULTIPLE, 5 * MICROBATCH_MULTIPLE):
        model = nn.Sequential(nn.Linear(5, 8), nn.Softplus(), nn.Linear(8, 1), nn.Softplus(), nn.Linear(1, 3))
        method = Clipped(model, torch.randn(2, 5), torch.zeros(2, dtype=torch.long)).method
        assert check_batch_invariance(method, blank, 1, size)[1:] == (True, MICROBATCH_MULTIPLE)


def test_a_model_that_fails_on_examples_together_says_so_without_them():
    class Fails(nn.Linear):
        def forward(self, x):
            if (x != 0).all(1).sum() > 1:
                raise RuntimeError("secret")
            return super().forward(x)

    with pytest.raises(EngineFailed) as caught:
        Clipped(Fails(5, 3), torch.randn(4, 5), torch.zeros(4, dtype=torch.long))([0, 1])
    assert "secret" not in str(caught.value)
    assert caught.value.__context__ is None


def test_positions_that_cancel_do_not_hide_the_norm():
    """Gram matrices in single precision lose the norm of large positions that cancel: the bound does not."""
    a, b = torch.randn(4, 3, 500) * 1e3, torch.randn(4, 3, 600)
    a[:, 1], b[:, 1] = a[:, 0], -b[:, 0] * (1 + 1e-6)
    a[:, 2] *= 1e-9
    piece = FactoredGradient(b, a)
    truth = torch.bmm(b.double().mT, a.double()).flatten(1).square().sum(1).numpy()
    assert (piece.squared_norms >= truth).all()
    assert (piece.squared_magnitudes >= piece.squared_norms).all()


def test_magnitudes_are_clipped_too():
    """Cancelling examples: each one's sum is small, but not what a product of matrices rounds."""

    class Opposite(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(300, 200, bias=False)

        def forward(self, x):
            sequence = torch.stack([x, -x * (1 + 1e-4)], dim=1)
            return (self.layer(sequence) * 1e4).sum(1)[:, :3]

    x, y = torch.randn(40, 300), torch.randint(0, 3, (40,))
    clipped = Clipped(Opposite(), x, y, clipping_norm=1.0)
    assert moved(clipped, list(range(37)), 3)[0] <= 1


def test_weight_of_a_unit_does_not_depend_on_the_number_of_others():
    """One more unit makes the last chunk longer: what rounding may come to must not change with it."""

    class Cancelling(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(600, 600, bias=False)

        def forward(self, x):
            signs = torch.ones(16)
            signs[1::2] = -0.9
            return (self.layer(x[:, None].expand(-1, 16, -1)).mean(2) * signs).sum(1)[:, None] * torch.tensor(
                [[1.0, 0.0, -1.0]]
            )

    x = torch.randn(600, generator=torch.Generator().manual_seed(0)).expand(33, 600).clone()
    clipped = Clipped(
        Cancelling(), x, torch.zeros(33, dtype=torch.long), clipping_norm=0.01, microbatch_size=64
    )
    for lot in (17, 33):
        (ratio,) = moved(clipped, list(range(lot)), lot - 1)
        assert 0.01 < ratio <= 1


@pytest.mark.parametrize("positions", [1, 3])
def test_factors_too_small_and_too_large_for_squares_do_not_hide_the_norm(positions):
    """2.6e-23 squared is nothing in single precision, but times 1e19 it is a gradient."""
    for small, large in ((2.6e-23, 1e14), (1e-30, 1e14), (1e14, 1e-40), (1e-3, 1e-3)):
        a, b = torch.full((2, positions, 300), small), torch.full((2, positions, 400), large)
        truth = torch.bmm(b.double().mT, a.double()).flatten(1).square().sum(1).numpy()
        assert (FactoredGradient(b, a).squared_norms >= truth * (1 - 1e-12)).all()
    huge = FactoredGradient(torch.full((1, positions, 4), 1e19), torch.ones(1, positions, 4))
    assert not np.isfinite(huge.squared_norms).any()  # such a unit adds nothing


def test_an_example_makes_numpy_neither_warn_nor_raise():
    class Loud(nn.Module):
        def forward(self, x):
            return x * 1e30

    model = nn.Sequential(nn.Linear(4, 3, bias=False), Loud())
    x, y = torch.randn(20, 4), torch.randint(0, 3, (20,))
    x[3] = 0.0  # nothing, times what is beyond all bounds
    with np.errstate(all="raise"):
        Clipped(model, x, y)(range(20))


def test_norms_and_sums_stay_in_single_precision_under_autocast():
    class Cancelling(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(400, 400, bias=False)

        def forward(self, x):
            signs = torch.tensor([1.0, -0.9, 1.0, -0.9])
            sequence = x[:, None] * torch.linspace(1, 1.01, 4)[:, None]
            return (self.layer(sequence).mean(2) * signs).sum(1)[:, None] * torch.tensor([[40.0, 0.0, -40.0]])

    x = torch.randn(60, 400, generator=torch.Generator().manual_seed(0))
    clipped = Clipped(Cancelling(), x, torch.zeros(60, dtype=torch.long), clipping_norm=0.01)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert max(moved(clipped, [place], 0)[0] for place in range(60)) <= 1


def test_padding_with_non_finite_gradients_is_harmless():
    class Normed(nn.Module):
        def forward(self, x):
            return x / x.norm(dim=1, keepdim=True)

    clipped = Clipped(
        nn.Sequential(Normed(), nn.Linear(5, 3)), torch.randn(40, 5), torch.zeros(40, dtype=torch.long)
    )
    assert 0.9 < moved(clipped, list(range(5)), 2)[0] <= 1
    assert np.isfinite(clipped(range(5))[0]).all()


def test_each_layer_has_its_own_clipping_norm():
    model, x, y = problem("Linear")
    first, rest = (
        ParameterGroup("0", tuple(model[0].parameters())),
        ParameterGroup("2", tuple(model[2].parameters())),
    )
    clipped = Clipped(model, x, y, clipping_norm=0.01, groups=[first, rest])
    assert all(0.9 < ratio <= 1 for ratio in moved(clipped, list(range(37)), 3))


def test_small_gradients_are_not_changed():
    model, x, y = problem("Linear", rows=16)
    clipped = Clipped(model, x, y, clipping_norm=1e4)
    (result,) = clipped(range(16))
    total = F.cross_entropy(model(x), y, reduction="sum")
    truth = torch.cat([g.flatten() for g in torch.autograd.grad(total, clipped.parameters)])
    step = clipped.sums[0].threshold.grid_step
    assert np.abs(result * step - truth.numpy()).max() <= CHUNK * step + 1e-5


def test_several_examples_of_a_unit_are_clipped_together():
    model, x, y = problem("Linear", rows=64)
    units = np.repeat(np.arange(8), 8)
    clipped = Clipped(model, x, y, units=units, examples_per_unit=8)
    assert 0.9 < moved(clipped, list(range(8)), 2)[0] <= 1
    fewer = Clipped(model, x, y, units=units, examples_per_unit=3)
    assert moved(fewer, [2], 0)[0] <= 1


def test_augmentations_are_averaged_before_clipping():
    model, x, y = problem("Linear", rows=8)
    once, thrice = (
        Clipped(model, x, y, clipping_norm=0.5),
        Clipped(model, x, y, clipping_norm=0.5, augmentations=3),
    )
    (a,), (b,) = once(range(8)), thrice(range(8))
    assert np.abs(a - b).max() * once.sums[0].threshold.grid_step < 1e-5
    louder = Clipped(model, x, y, augmentations=3, augment=lambda x, y: (x + torch.randn_like(x), y))
    assert 0.5 < moved(louder, [5], 0)[0] <= 1


def test_microbatches_have_one_shape_and_hold_each_unit_once():
    seen = []
    _, x, y = problem("Linear", rows=37)
    for microbatch in Examples((x, y)).microbatches(np.arange(37), CHUNK, CHUNK):
        assert [tuple(part.shape) for part in microbatch.batch] == [(CHUNK, 1, 5), (CHUNK, 1)]
        seen += microbatch.batch[0][microbatch.is_present, 0].tolist()
        assert not microbatch.weights[~microbatch.is_present].any()
    assert seen == x.tolist()


@pytest.mark.sweep(3)
@pytest.mark.parametrize("name", ["Linear", "Conv2d", "TransformerEncoder", "LSTM", "GroupNorm"])
def test_gradients_do_not_depend_on_position_or_other_examples(name):
    """The assumption that the proof makes of the kernels, bit by bit, on this machine."""
    model, x, y = problem(name, rows=CHUNK)
    clipped = Clipped(model, x, y)
    assert check_batch_invariance(clipped.method, [x[0], y[0]], 1, CHUNK)[1:] == (True, CHUNK)
    assert check_batch_invariance(clipped.method, [x[0], y[0]], 1, 4 * CHUNK)[1]


def test_position_dependent_kernels_are_detected():
    class Placed(nn.Linear):
        far = 1e-8

        def forward(self, x):
            return super().forward(x) * (1 + self.far * torch.arange(len(x))[:, None])

    clipped = Clipped(Placed(5, 3), torch.randn(40, 5), torch.zeros(40, dtype=torch.long), kind=Functional)
    clipped.method = WithPlaces(clipped.method.objective, clipped.parameters)
    blank = [torch.zeros(5), torch.zeros((), dtype=torch.long)]
    assert check_batch_invariance(clipped.method, blank, 1, CHUNK)[1:] == (False, CHUNK)
    clipped.method.objective.model.far = 1e-2
    assert isinstance(check_batch_invariance(clipped.method, blank, 1, CHUNK)[0], Loop)


class WithPlaces(Functional):
    def gradients(self, batch, weights):
        total = self.objective(*[x.flatten(0, 1) for x in batch])
        gradients_ = [torch.autograd.grad(one, self.parameters, retain_graph=True) for one in total]
        return {
            p: DenseGradient(torch.stack(values))
            for p, values in zip(self.parameters, zip(*gradients_, strict=True), strict=True)
        }


def test_last_microbatch_is_cut_if_kernels_allow():
    _, x, y = problem("Linear", rows=37)
    sizes = [
        microbatch.is_present.numel() for microbatch in Examples((x, y)).microbatches(np.arange(37), 32, 16)
    ]
    assert sizes == [32, 16]
    (empty,) = Examples((x, y)).microbatches(np.arange(0), 32, 16)
    assert empty.is_present.tolist() == [False] * 16


def test_grid_is_fine_enough_and_noise_is_exactly_sigma():
    for size, sigma in ((1, Fraction(1, 100)), (10**6, Fraction(50)), (71010, Fraction("1.1"))):
        threshold = ClippingThreshold.of(0.5, sigma, size)
        assert threshold.grid_step * math.sqrt(size) <= 0.5 / 1024
        assert threshold.noise_steps * threshold.grid_step == pytest.approx(0.5 * float(sigma), rel=1e-12)
        assert threshold.noise_steps**2 / threshold.mechanism.sensitivity.l2_squared == sigma**2


@pytest.mark.parametrize("clip", [0.0, 1e-9, 1e9, math.nan])
def test_clipping_norms_beyond_single_precision_are_refused(clip):
    with pytest.raises(InvalidInput):
        ClippingThreshold.of(clip, Fraction(1), 10)
