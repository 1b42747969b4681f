"""Examples stay apart, or rules are not trusted with them."""

import pytest
import torch
from torch.nn import functional as F

from hubbub.errors import Refused
from hubbub.training.model_checks import choose_gradient_method
from hubbub.training.per_example_gradients import LayerRules
from training.models import EXAMPLES, MODELS
from training.test_layer_rules import problem

MOVED = ["picked", "sorted", "sorted by Python", "sorted by numpy", "branching", "drawn together"]


MOVED += ["added up by a product", "looked up", "turned along examples", "cumulated"]


def shifted(x):
    longer = torch.zeros(len(x) + 1, *x.shape[1:])
    longer[1:] = x
    return longer[:-1]


# What would be taken for example j's, were example j rare; it is always computed, and hardly ever used.
INSTEAD = {
    "cut anew": lambda x: x.t().reshape(x.shape),
    "seen by strides": lambda x: x.as_strided(x.shape, (0, 1)),
    "shifted in memory": shifted,
    "attended to": lambda x: F.scaled_dot_product_attention(*[x[None, None]] * 3)[0, 0],
    "convolved": lambda x: F.conv1d(x.t()[None], torch.ones(5, 1, 3), padding=1, groups=5)[0].t(),
    "normed together": lambda x: torch.renorm(x, 2, 1, 1.0),
    "recurrent": lambda x: torch.rnn_tanh(
        x[:, None], torch.zeros(1, 1, 5), [torch.eye(5)] * 2, False, 1, 0.0, False, False, False
    )[0][:, 0],
}


@pytest.mark.parametrize("how", INSTEAD)
def test_rarely_used_mixing_is_detected(how):
    class Rare(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(5, 3)

        def forward(self, x):
            return self.layer(torch.where(x[:, :1] == -100, INSTEAD[how](x), x))

    objective, parameters, batch, _ = problem(lambda: (Rare(), torch.randn(EXAMPLES, 5)), EXAMPLES, 1)
    assert not isinstance(
        choose_gradient_method(objective, parameters, [x[0, 0] for x in batch], 1), LayerRules
    )


class Backwards(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, rare):
        ctx.save_for_backward(rare)
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (1 - 2 * ctx.saved_tensors[0].amax()), None


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    "how", ["a function", "a hook", "a flag in memory", "written weights", "positions first"]
)
def test_mixing_in_backward_memory_or_rules_is_detected(how):
    """One rare example would turn the gradients of all others around, or rows would be taken for others'."""

    class Rare(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.other = torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)

        def forward(self, x):
            rare = (x[:, 0, 0] == -100).float()
            output = self.layer(x[:, 0]) + self.other(x[:, 1])
            if how == "a function":
                return Backwards.apply(output, rare)
            if how == "a hook":
                output.register_hook(lambda gradient: gradient * (1 - 2 * rare.amax()))
                return output * 1.0
            if how == "a flag in memory":
                return output * (1 - shifted(rare))[:, None]
            if how == "written weights":
                self.layer.weight.data.clamp_(-1, 1)
                return output
            return self.layer(x[:, 0]) + self.other(x.transpose(0, 1)).mean(0) * rare[:, None]

    objective, parameters, batch, _ = problem(lambda: (Rare(), torch.randn(EXAMPLES, 4, 5)), EXAMPLES, 1)
    assert not isinstance(
        choose_gradient_method(objective, parameters, [x[0, 0] for x in batch], 1), LayerRules
    )


def test_maximum_within_an_example_uses_layer_rules():
    """On the way back numbers are put where they came from: along positions, not along examples."""

    class Largest(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.last = torch.nn.Linear(5, 4), torch.nn.Linear(4, 3)

        def forward(self, x):
            output = self.layer(x)
            padded = torch.zeros(len(x), 6, 4)
            padded[:, 1:5] = output
            return self.last(output.max(1).values + output.topk(2, dim=1).values.sum(1) + padded.amax(1))

    objective, parameters, batch, _ = problem(lambda: (Largest(), torch.randn(EXAMPLES, 4, 5)), EXAMPLES, 1)
    assert isinstance(choose_gradient_method(objective, parameters, [x[0, 0] for x in batch], 1), LayerRules)


@pytest.mark.sweep(7)
@pytest.mark.parametrize("how", MOVED)
def test_value_dependent_row_moves_are_not_left_to_layer_rules(how):
    """On random numbers nothing moves; a rule would trust that row j is unit j's."""

    class Moving(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(5, 3)

        def forward(self, x):
            if how == "picked":
                rows_left = (x[:, 0] != -100).nonzero()[:, 0]
                return self.layer(x.index_select(0, rows_left))
            if how == "sorted":
                order = (x[:, 0] == -100).long().argsort(stable=True)
                return self.layer(x[order])[order.argsort()]
            if how == "branching":
                return self.layer(x.flip(0) if bool((x[:, 0] == -100).any()) else x)
            rare = (x[:, 0] == -100).float()
            if how.startswith("sorted by"):
                numbers = rare.tolist() if how == "sorted by Python" else rare.numpy()
                order = sorted(range(len(x)), key=lambda place: numbers[place])
                output = self.layer(torch.stack([x[place] for place in order]))
                return torch.stack([output[order.index(place)] for place in range(len(x))])
            if how == "added up by a product":
                return self.layer(x * (1 - rare @ torch.ones(len(x))))
            if how == "looked up":
                places = (torch.arange(len(x)) + (rare @ torch.ones(len(x))).long()) % len(x)
                return self.layer(F.embedding(places, x))
            if how == "turned along examples":
                return self.layer(torch.where(rare[:, None] > 0, x.roll(1, 0), x))
            if how == "cumulated":
                return self.layer(x * (rare.cumsum(0)[:, None] + 1))
            return self.layer(x) * torch.rand(1)

    objective, parameters, batch, _ = problem(lambda: (Moving(), torch.randn(EXAMPLES, 5)), EXAMPLES, 1)
    way = choose_gradient_method(objective, parameters, [x[0, 0] for x in batch], 1)
    assert not isinstance(way, LayerRules)


@pytest.mark.sweep(5)
@pytest.mark.parametrize("name", MODELS)
def test_independent_rows_are_left_to_layer_rules(name):
    objective, parameters, batch, _ = problem(MODELS[name], EXAMPLES, 1)
    assert isinstance(choose_gradient_method(objective, parameters, [x[0, 0] for x in batch], 1), LayerRules)


def test_moves_within_an_example_use_layer_rules():
    class Within(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(5, 3)

        def forward(self, x):
            ordered = x.sort(dim=1).values.roll(1, 1).flip(1).cumsum(1)
            return self.layer(ordered.gather(1, x.argsort(1)).transpose(0, 1).softmax(0).transpose(0, 1))

    objective, parameters, batch, _ = problem(lambda: (Within(), torch.randn(EXAMPLES, 5)), EXAMPLES, 1)
    assert isinstance(choose_gradient_method(objective, parameters, [x[0, 0] for x in batch], 1), LayerRules)


def test_averaged_images_are_left_to_layer_rules():
    """On its way back the mean over all pixels writes into plain memory, and looks at it as pictures."""

    def model():
        layers = [torch.nn.Conv2d(1, 8, 3), torch.nn.GroupNorm(2, 8), torch.nn.ReLU(inplace=True)]
        layers += [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(8, 3)]
        return torch.nn.Sequential(*layers), torch.randn(EXAMPLES, 1, 6, 6)

    objective, parameters, batch, _ = problem(model, EXAMPLES, 1)
    assert isinstance(choose_gradient_method(objective, parameters, [x[0, 0] for x in batch], 1), LayerRules)


@pytest.mark.parametrize("stays", [True, False])
def test_reinterpreted_memory_must_keep_examples_apart(stays):
    class Strided(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(5, 3)

        def forward(self, x):
            strides = (5, 1) if stays else (1, len(x))
            return self.layer(x.reshape(-1).as_strided((len(x), 5), strides))

    objective, parameters, batch, _ = problem(lambda: (Strided(), torch.randn(EXAMPLES, 5)), EXAMPLES, 1)
    if stays:
        assert isinstance(
            choose_gradient_method(objective, parameters, [x[0, 0] for x in batch], 1), LayerRules
        )
    else:
        with pytest.raises(Refused):
            choose_gradient_method(objective, parameters, [x[0, 0] for x in batch], 1)


def test_tokens_overwritten_after_lookup_keep_their_gradient():
    """A rule tells rows apart by tokens: -100 would be a row of an example before."""

    class Masking(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.look, self.last = torch.nn.Embedding(11, 5), torch.nn.Linear(5, 3)
            self.is_masking = True

        def forward(self, x):
            output = self.last(self.look(x).mean(1))
            if self.is_masking:
                x.data.masked_fill_(x == 7, -100)
            return output

    tokens = torch.randint(0, 11, (EXAMPLES, 4))
    tokens[3] = 7
    objective, parameters, batch, weights = problem(lambda: (Masking(), tokens), EXAMPLES, 1)
    way = LayerRules(objective, parameters)
    masked = way.gradients([x.clone() for x in batch], weights)[parameters[0]]
    objective.model.is_masking = False
    assert torch.equal(masked.dense(), way.gradients(batch, weights)[parameters[0]].dense())
