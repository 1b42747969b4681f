"""Every layer's rule gives the gradients that each example has by itself."""

import pytest
import torch
from torch.nn import functional as F

from hubbub.errors import InvalidInput
from hubbub.training.batch_invariance import check_batch_invariance
from hubbub.training.layer_rules import RULES
from hubbub.training.model_checks import choose_gradient_method
from hubbub.training.per_example_gradients import Functional, LayerRules, Loop, Objective
from training.models import EXAMPLES, MODELS, UNLISTED

CLOSE = 1e-5


def problem(case, units, width):
    """An objective, its parameters, and a batch of units × width examples."""
    model, x = case()
    y = torch.randint(0, 3, (EXAMPLES,))
    objective = Objective(model, lambda model, x, y: F.cross_entropy(model(x), y, reduction="none"))
    batch = [x.unflatten(0, (units, width)), y.unflatten(0, (units, width))]
    return objective, list(model.parameters()), batch, torch.rand(units, width)


@pytest.mark.parametrize("width", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_layer_rules_match_each_unit_computed_alone(name, width):
    units = EXAMPLES // width
    objective, parameters, batch, weights = problem(MODELS[name], units, width)
    reference = Loop(objective, parameters).gradients(batch, weights)
    way = LayerRules(objective, parameters)
    assert way.layers_without_rule == []
    gradients = way.gradients(batch, weights)
    shares = torch.rand(units)
    for parameter in parameters:
        truth, piece = reference[parameter].values, gradients[parameter]
        assert (piece.dense() - truth).abs().max() <= CLOSE * max(1, truth.abs().max())
        squares = truth.double().flatten(1).square().sum(1).numpy()
        assert (piece.squared_norms >= squares * (1 - 1e-5) - 1e-12).all()
        assert (piece.squared_norms <= squares * 1.01 + 1e-9).all()
        out = torch.empty_like(parameter)
        piece.write_weighted_sum(shares, out)
        assert (out - torch.einsum("u,u...->...", shares, truth)).abs().max() <= CLOSE


@pytest.mark.parametrize("name", [name for name in MODELS if name not in {"GRU", "RNN"}])
def test_layer_rules_match_torch_func(name):
    objective, parameters, batch, weights = problem(MODELS[name], EXAMPLES, 1)
    gradients = LayerRules(objective, parameters).gradients(batch, weights)
    for parameter, piece in Functional(objective, parameters).gradients(batch, weights).items():
        assert (piece.values - gradients[parameter].dense()).abs().max() <= CLOSE


def test_every_rule_is_tried():
    there = {type(module) for case in MODELS.values() for module in case()[0].modules()}
    assert set(RULES) <= there


@pytest.mark.sweep(11)
@pytest.mark.parametrize("name", MODELS)
def test_layer_rules_are_chosen(name):
    objective, parameters, batch, _ = problem(MODELS[name], EXAMPLES, 1)
    assert isinstance(choose_gradient_method(objective, parameters, [x[0, 0] for x in batch], 1), LayerRules)


@pytest.mark.parametrize("name", UNLISTED)
def test_layers_without_rule_use_another_method_and_it_is_named(name):
    objective, parameters, batch, weights = problem(UNLISTED[name], EXAMPLES, 1)
    way = choose_gradient_method(objective, parameters, [x[0, 0] for x in batch], 1)
    assert "torch.func" in way.name
    assert f"no rule for {name}" in way.name
    reference, gradients = (
        Loop(objective, parameters).gradients(batch, weights),
        way.gradients(batch, weights),
    )
    for parameter in parameters:
        assert (gradients[parameter].dense() - reference[parameter].dense()).abs().max() <= CLOSE


def test_loop_is_used_where_torch_func_fails():
    class Branching(torch.nn.Linear):
        def forward(self, x):
            return super().forward(x) * (2.0 if x.sum().item() > 1e9 else 1.0)

    objective, parameters, batch, _ = problem(
        lambda: (Branching(5, 3), torch.randn(EXAMPLES, 5)), EXAMPLES, 1
    )
    way = choose_gradient_method(objective, parameters, [x[0, 0] for x in batch], 1)
    assert isinstance(way, Loop)
    assert "torch.func fails" in way.name


def test_batch_dimension_that_is_not_first_is_detected():
    """A rule would take positions for examples: the model is done the slow way instead."""

    class Turned(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(5, 3)

        def forward(self, x):
            return self.layer(x.transpose(0, 1)).mean(0)

    objective, parameters, batch, _ = problem(lambda: (Turned(), torch.randn(EXAMPLES, 4, 5)), EXAMPLES, 1)
    assert not isinstance(
        choose_gradient_method(objective, parameters, [x[0, 0] for x in batch], 1), LayerRules
    )


def test_dropout_draws_for_each_example_and_is_left_to_rules():
    case = lambda: (  # noqa: E731
        torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 3)),
        torch.randn(EXAMPLES, 5),
    )
    objective, parameters, batch, _ = problem(case, EXAMPLES, 1)
    blank = [x[0, 0] for x in batch]
    way = choose_gradient_method(objective, parameters, blank, 1)
    assert isinstance(way, LayerRules)
    assert check_batch_invariance(way, blank, 1, 32)[1]
    assert objective.model.training


def test_patched_forward_uses_no_layer_rule():
    model = torch.nn.Linear(5, 3)
    plain = model.forward
    model.forward = lambda x: 2 * plain(x)
    objective, parameters, batch, _ = problem(lambda: (model, torch.randn(EXAMPLES, 5)), EXAMPLES, 1)
    way = choose_gradient_method(objective, parameters, [x[0, 0] for x in batch], 1)
    assert not isinstance(way, LayerRules)
    assert "forward" in model.__dict__


def test_weight_used_outside_its_layer_is_detected():
    class Behind(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 3)

        def forward(self, x):
            return F.linear(self.layer(x), self.layer.weight)

    objective, parameters, batch, _ = problem(lambda: (Behind(), torch.randn(EXAMPLES, 3)), EXAMPLES, 1)
    assert not isinstance(
        choose_gradient_method(objective, parameters, [x[0, 0] for x in batch], 1), LayerRules
    )


def test_layer_input_may_not_be_overwritten():
    class Overwriting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 3)

        def forward(self, x):
            x = x * 1.0
            y = self.layer(x)
            x.zero_()
            return y

    objective, parameters, batch, weights = problem(
        lambda: (Overwriting(), torch.randn(EXAMPLES, 3)), EXAMPLES, 1
    )
    with pytest.raises(InvalidInput, match="in-place"):
        LayerRules(objective, parameters).gradients(batch, weights)


def test_layers_are_unchanged_after_training():
    objective, parameters, batch, weights = problem(MODELS["LSTM"], EXAMPLES, 1)
    LayerRules(objective, parameters).gradients(batch, weights)
    assert all("forward" not in module.__dict__ for module in objective.modules())
    assert all(parameter.grad is None for parameter in parameters)


def test_half_precision_gradients_are_converted():
    """Layers that compute in bfloat16 give pieces in single precision."""
    model, x = MODELS["Linear"]()
    y = torch.randint(0, 3, (EXAMPLES,))

    def losses(model, x, y):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return F.cross_entropy(model(x).float(), y, reduction="none")

    objective, parameters = Objective(model, losses), list(model.parameters())
    batch, weights = [x[:, None], y[:, None]], torch.ones(EXAMPLES, 1)
    gradients = LayerRules(objective, parameters).gradients(batch, weights)
    reference = Loop(objective, parameters).gradients(batch, weights)
    for parameter in parameters:
        assert gradients[parameter].dense().dtype == torch.float32
        assert (gradients[parameter].dense() - reference[parameter].dense()).abs().max() < 0.02
