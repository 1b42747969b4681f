"""What people do with models: fine-tuning, tied weights, GANs, averages, copies, half precision, compiling.

With a lot of everything, hardly any noise and a threshold that nobody reaches, a private step is a plain one:
that is what most of these compare.
"""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hubbub.accounting import Budget
from hubbub.errors import InvalidInput
from hubbub.training import make_private

ROWS = 24
QUIET = {
    "clipping_norm": 1e3,
    "sampling_rate": 1,
    "steps": 1,
    "noise_multiplier": 1e-8,
    "lot_size": ROWS,
    "account": None,
}
QUIET |= {"allow_large_epsilon": True}
CLOSE = 2e-4
"""Rounding to the grid, and 1e-5 of noise, are far below."""


def rows(features=6, classes=3):
    return torch.randn(ROWS, features), torch.randint(classes, (ROWS,))


def trained(model):
    return [p for p in model.parameters() if p.requires_grad]


def private_step(model, data, **options):
    optimizer = torch.optim.SGD(trained(model), lr=1.0)
    trainer = make_private(model, optimizer, data, **{**QUIET, **options})
    trainer.run(progress=False)
    return trainer


def plain_step(model, loss):
    model = copy.deepcopy(model)
    optimizer = torch.optim.SGD(trained(model), lr=1.0)
    loss(model).backward()
    optimizer.step()
    return model


def apart(one, other):
    """The largest difference between two models' weights."""
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return max((a - b).abs().max().item() for a, b in pairs)


class Layers(nn.Module):
    """LoRA by two small layers."""

    def __init__(self, frozen):
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = nn.Linear(frozen.in_features, 2, bias=False)
        self.up = nn.Linear(2, frozen.out_features, bias=False)

    def forward(self, x):
        return self.frozen(x) + self.up(self.down(x))


class Matrices(nn.Module):
    """LoRA by two bare parameters."""

    def __init__(self, frozen):
        super().__init__()
        self.frozen = frozen.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(2, frozen.in_features))
        self.up = nn.Parameter(torch.randn(frozen.out_features, 2))

    def forward(self, x):
        return self.frozen(x) + x @ self.down.T @ self.up.T


@pytest.mark.parametrize(("kind", "how"), [(Layers, "layer rules"), (Matrices, "torch.func")])
def test_small_layers_are_tuned_and_the_frozen_ones_stay(kind, how):
    x, y = rows()
    x = x.double()  # in single precision the last bits of some weights' gradients are more than is let pass
    model = nn.Sequential(kind(nn.Linear(6, 8)), nn.Tanh(), kind(nn.Linear(8, 3))).double()
    frozen = [layer.frozen.weight.clone() for layer in (model[0], model[2])]
    expected = plain_step(model, lambda model: F.cross_entropy(model(x), y))
    trainer = private_step(model, (x, y), loss=F.cross_entropy)
    assert how in trainer.gradient_method
    assert trainer.schedule.groups[0].size == 2 * (6 + 8) + 2 * (8 + 3)
    assert apart(model, expected) < CLOSE
    assert torch.equal(model[0].frozen.weight, frozen[0])
    assert torch.equal(model[2].frozen.weight, frozen[1])


class Predicting(nn.Module):
    """The next token, by weights that are used to read and to write."""

    def __init__(self):
        super().__init__()
        self.look = nn.Embedding(11, 8)
        self.think = nn.Linear(8, 8)
        self.say = nn.Linear(8, 11, bias=False)
        self.say.weight = self.look.weight

    def forward(self, tokens):
        return self.say(self.think(self.look(tokens)).tanh())


def test_tied_weights_are_one_parameter():
    tokens = torch.randint(11, (ROWS, 7))
    model = Predicting()

    def losses(model, tokens):
        logits = model(tokens[:, :-1]).transpose(1, 2)
        return F.cross_entropy(logits, tokens[:, 1:], reduction="none").mean(1)

    expected = plain_step(model, lambda model: losses(model, tokens).mean())
    trainer = private_step(model, tokens, objective=losses)
    assert trainer.schedule.groups[0].size == 11 * 8 + 8 * 8 + 8
    assert apart(model, expected) < CLOSE
    assert model.say.weight is model.look.weight


def test_a_gan_pays_for_its_discriminator_only():
    """Who sees private examples is trained privately; the generator learns from what was released."""
    real, seeds = torch.randn(200, 2) * 0.1 + 3, torch.randn(200, 2)
    generator = nn.Linear(2, 2)
    judge = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 1))

    def losses(judge, real, seed):
        with torch.no_grad():
            images = generator(seed)
        return F.softplus(-judge(real)).squeeze(1) + F.softplus(judge(images)).squeeze(1)

    judging = torch.optim.Adam(judge.parameters(), lr=0.02)
    making = torch.optim.Adam(generator.parameters(), lr=0.05)
    trainer = make_private(
        judge,
        judging,
        (real, seeds),
        objective=losses,
        clipping_norm=1.0,
        sampling_rate=0.5,
        steps=80,
        lot_size=100,
        budget=Budget(8, 1e-5),
        account=None,
    )
    assert "layer rules" in trainer.gradient_method
    before = generator.bias.detach().clone()
    for _ in trainer:
        making.zero_grad()
        F.softplus(-judge(generator(torch.randn(64, 2)))).mean().backward()
        making.step()
    # Nearer to (3, 3), from about (0, 0). With other noise this is so by far: 80 steps of about 0.05.
    assert (generator.bias > before + 0.5).all()
    assert trainer.epsilon() <= 8


def test_the_average_is_that_of_the_weights_after_each_step():
    x, y = rows()
    model = nn.Linear(6, 3)
    trainer = make_private(
        model,
        torch.optim.SGD(model.parameters(), lr=1.0),
        (x, y),
        loss=F.cross_entropy,
        **{**QUIET, "steps": 40, "noise_multiplier": 1.0},
        ema_decay=0.7,
    )
    ours, mean = torch.optim.swa_utils.AveragedModel(model), model.weight.detach().clone()
    for step in trainer:
        decay = min(0.7, (1 + step) / (10 + step))
        mean = decay * mean + (1 - decay) * model.weight.detach()
        ours.update_parameters(model)  # torch's own is post-processing, too
    assert torch.allclose(trainer.release().value["weight"], mean, atol=1e-4, rtol=1e-4)
    assert ours.n_averaged == 40


def test_an_example_and_its_copies_have_one_gradient():
    """Each copy's sign is drawn by itself: the mean of four is a multiple of one half."""
    x, y = torch.eye(ROWS), torch.zeros(ROWS)
    model = nn.Linear(ROWS, 1)
    start = model.weight.detach().clone()

    def flipped(x, y):
        return x * torch.where(torch.rand(len(x), 1) < 0.5, -1.0, 1.0), y

    private_step(model, (x, y), loss=lambda out, _: out.squeeze(1), augment=flipped, augmentations=4)
    means = (start - model.weight.detach())[0] * ROWS
    assert ((2 * means).round() - 2 * means).abs().max() < 1e-2
    assert means.abs().max() < 1.01
    assert (means.abs() < 0.6).any()  # all alike in every example: once in 8^24


def test_half_precision_model_trains_like_plain_training():
    x, y = rows()
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))

    def losses(model, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.cross_entropy(model(x).float(), y, reduction="none")

    expected = plain_step(model, lambda model: losses(model, x, y).mean())
    start = copy.deepcopy(model)
    private_step(model, (x, y), objective=losses)
    assert all(p.dtype == torch.float32 for p in model.parameters())
    # A bfloat16 has eight bits; the plain step rounds by whole batches, the private one by examples.
    assert apart(model, expected) < 0.02 * apart(start, expected)


def test_compiled_model_predicts_with_the_learned_weights():
    """What is trained is the model itself; a compiled one that shares its weights follows."""
    x, y = rows()
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    compiled = torch.compile(model, backend="eager")
    before = compiled(x).detach().clone()
    private_step(model, (x, y), loss=F.cross_entropy)
    assert torch.equal(compiled(x), model(x))
    assert not torch.allclose(compiled(x), before)
    with pytest.raises(InvalidInput, match="the model is compiled"):
        private_step(compiled, (x, y), loss=F.cross_entropy)
