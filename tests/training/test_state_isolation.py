"""What is computed from examples leaves nothing behind, and nothing is told of it."""

import random
import threading
import warnings
from collections import deque

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from hubbub.errors import InvalidInput, Refused
from hubbub.training import AdaptiveClipping
from training.test_trainer import STEPS, Watched, net, rows, run


def test_torch_generator_does_not_reveal_lot_sizes():
    def state(count):
        data = rows(count)
        torch.manual_seed(9)
        model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 2))
        run(model, data, microbatch_size=16).run(progress=False)
        return torch.random.get_rng_state()

    assert torch.equal(state(300), state(10))


def test_model_changed_after_its_check_is_refused():
    model = net()
    trainer = run(model)
    steps = iter(trainer)
    next(steps)
    model.eval()
    with pytest.raises(InvalidInput, match="changed"):
        next(steps)
    model.train()
    model[0].requires_grad_(False)
    with pytest.raises(InvalidInput, match="changed"):
        next(iter(trainer))
    model[0].requires_grad_(True)
    assert trainer.step == 1  # what is refused is not taken
    assert sum(1 for _ in trainer) == STEPS - 1


def test_hooks_added_later_are_detected_before_the_next_step():
    class Mixed(nn.Tanh):
        def forward(self, x):
            return x - x.mean(0)

    def listen(model):
        model[0].register_forward_hook(lambda module, inputs, output: output - output.mean(0))

    def stand_in(model):
        model[1].forward = lambda x: x - x.mean(0)

    def become(model):
        model[1].__class__ = Mixed

    def keep(model):
        model.register_buffer("seen", torch.zeros(2))

    def widen(model):
        model.double()

    for change in (listen, stand_in, become, keep, widen):
        model = net()
        steps = iter(run(model))
        next(steps)
        change(model)
        with pytest.raises(InvalidInput, match="changed"):
            next(steps)


def test_leftover_gradients_are_not_used():
    model, (x, _) = net(), rows()
    optimizer = torch.optim.SGD(model[2].parameters(), lr=0.5)
    steps = iter(run(model, optimizer=optimizer))
    next(steps)
    optimizer.add_param_group({"params": list(model[0].parameters())})
    model(x).sum().backward()
    before = model[0].weight.clone()
    next(steps)
    assert torch.equal(model[0].weight, before)


def test_runs_in_several_threads_leave_the_generators_as_they_were():
    trainers = [run(data=rows(), microbatch_size=16) for _ in range(3)]
    before = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    threads = [threading.Thread(target=trainer.run, kwargs={"progress": False}) for trainer in trainers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [trainer.step for trainer in trainers] == [STEPS] * 3
    after = torch.random.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_other_generators_reveal_nothing_even_with_known_seeds():
    def turn(x, y):
        signs = np.random.choice([-1.0, 1.0], len(x)) * [random.choice([-1.0, 1.0]) for _ in x]
        return x * torch.from_numpy(signs).float()[:, None], y

    def after(count):
        trainer = run(data=rows(count), augment=turn, sampling_rate=1, steps=2, noise_multiplier=1e-6)
        np.random.seed(9)
        random.seed(9)
        trainer.run(progress=False)
        return np.random.rand(), random.random()

    assert after(20) == after(3)
    # One unit, twice the same seeds: what it is turned by differs all the same. Alike by chance: 2^-60.
    sums = []
    for _ in range(2):
        np.random.seed(9)
        random.seed(9)
        model = nn.Linear(4, 2)
        one = run(model, rows(1), augment=turn, sampling_rate=1, steps=60, noise_multiplier=1e-6, lot_size=1)
        sums.append(torch.stack([model.weight.grad.sign().flatten().clone() for _ in one]))
    assert not torch.equal(*sums)


def test_private_generator_of_a_model_is_refused():
    generator = np.random.default_rng(1)
    with pytest.raises(Refused, match="its own random generator"):
        run(augment=lambda x, y: (x * float(generator.normal()), y))


def test_autocast_and_low_precision_around_a_run_are_refused():
    trainer = run()
    with torch.autocast("cpu"), pytest.raises(InvalidInput, match="autocast"):
        next(iter(trainer))
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(InvalidInput, match="less than single"):
            next(iter(trainer))
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode])
def test_gradients_are_computed_under_any_torch_mode(around):
    model, data = net(), rows()
    with around():
        next(iter(run(model, data, sampling_rate=1, noise_multiplier=1e-6, lot_size=300)))
    assert model[0].weight.grad.norm() > 1e-3


def test_a_buffer_that_an_example_replaces_is_put_back():
    class Rare(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)
            self.register_buffer("top", torch.tensor([1000.0]))

        def forward(self, x):
            highest = x.detach().nan_to_num().flatten(1).amax(1)
            self.top = torch.cat([self.top, highest]).amax(0, keepdim=True)
            return self.layer(x)

    x, y = rows(40)
    x[3] = 12345.0
    assert run(Rare(), (x, y), sampling_rate=1).run(progress=False).value["top"].item() == 1000


class Keeping(nn.Module):
    """Counts its calls, and keeps what it saw, in all places but buffers."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 2)
        self.calls, self.seen, self.by_name = 0, [], {}
        self.sums, self.array, self.lately = torch.zeros(4), np.zeros(4), deque(maxlen=3)
        self.pair, self.others = (torch.zeros(4), [torch.zeros(4)]), [nn.Linear(4, 2)]
        self.cells = np.array([torch.zeros(4), None], dtype=object)

    def forward(self, x):
        self.calls += 1
        self.seen.append(x.detach())
        self.lately.append(x.detach())
        self.by_name[self.calls] = x.detach()
        self.sums += x.detach().sum(0)
        self.array += self.calls
        self.more = x.detach()
        for tensor in (self.pair[0], self.pair[1][0], self.cells[0]):
            tensor.copy_(x[0].detach())
        self.others[0].last = x.detach()
        return self.layer(x) * (1 + 0.01 * self.calls)


def test_state_of_model_and_loss_is_restored():
    """How often a model is asked follows how large lots are; what it keeps would be examples."""

    class Loss(nn.Module):
        calls = 0

        def forward(self, out, y):
            self.calls += 1
            return F.cross_entropy(out, y, reduction="none") * self.calls

    model, loss = Keeping(), Loss()
    trainer = run(model, rows(40), loss=loss, sampling_rate=1, microbatch_size=16)
    trainer.run(progress=False)
    assert (model.calls, model.seen, model.by_name, len(model.lately)) == (0, [], {}, 0)
    assert not model.sums.any()
    assert not model.array.any()
    assert "more" not in vars(model)
    assert "last" not in vars(model.others[0])
    assert not any(tensor.any() for tensor in (model.pair[0], model.pair[1][0], model.cells[0]))
    assert loss.calls == 0


def test_writes_into_frozen_parameters_are_undone():
    class Codes(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)
            self.codes = nn.Parameter(torch.zeros(4), requires_grad=False)

        def forward(self, x):
            rare = (x.detach().abs() > 50).any(1, keepdim=True)
            self.codes.data.add_(torch.where(rare, x.detach(), 0.0).sum(0))
            return self.layer(x)

    x, y = rows(40)
    x[3] = 99
    assert not run(Codes(), (x, y), sampling_rate=1).run(progress=False).value["codes"].any()

    class Always(Codes):
        def forward(self, x):
            self.codes.data.add_(x.detach().sum(0))
            return self.layer(x)

    with pytest.raises(Refused, match="parameters"):
        run(Always())


def test_multiplied_and_nan_buffers_are_accepted():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 2)
            self.register_buffer("scale", torch.tensor([1.0, 2.0]))
            self.register_buffer("unknown", torch.tensor(float("nan")))

        def forward(self, x):
            return self.layer(x) * self.scale

    assert "layer rules" in run(Scaled()).gradient_method


def test_gradient_hooks_may_replace_gradients():
    class Normed(torch.optim.SGD):
        def step(self, closure=None):
            for p in self.param_groups[0]["params"]:
                seen.append(p.grad.clone())
                p.grad.data = p.grad.data / p.grad.data.norm()
            return super().step(closure)

    model, seen = net(), []
    run(model, optimizer=Normed(model.parameters(), lr=0.1)).run(progress=False)
    once, again = ([one for one in seen if one.shape == model[0].weight.shape][n] for n in (0, 1))
    assert not torch.equal(once, again)


def test_autocast_around_a_whole_run_does_not_keep_the_first_weights():
    model = nn.Linear(4, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        trainer = run(
            model, sampling_rate=1, steps=2, noise_multiplier=1e-6, lot_size=300, clipping_norm=10.0
        )
        seen = [model.weight.grad.clone() for _ in trainer]
    # With the weights of before, the second gradient would be the first again, but for a hair of noise.
    assert (seen[1] - seen[0]).norm() > 0.01 * seen[0].norm()


def test_empty_parameter_is_accepted():
    class Empty(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.none = nn.Linear(4, 2), nn.Parameter(torch.empty(0))

        def forward(self, x):
            return self.layer(x) + self.none.sum()

    class Drawing(Empty):
        def forward(self, x):
            np.random.random()  # so that it goes one by one
            return super().forward(x)

    for model in (Empty(), Drawing()):
        run(model, sampling_rate=1, steps=1).run(progress=False)


@pytest.mark.parametrize("draw", [random.random, np.random.rand])
def test_a_draw_that_all_examples_of_a_batch_would_share_is_made_for_each(draw):
    class Skipping(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Linear(4, 4), nn.Linear(4, 2)

        def forward(self, x):
            return self.last(x if self.training and draw() < 0.01 else self.first(x))

    assert "loop" in run(Skipping()).gradient_method


def test_norms_are_counted_only_where_they_are_the_same_to_the_bit():
    """One bit of somebody else's norm, in another place, could move a count twice as far as one unit may."""

    class Placed(nn.Module):
        def forward(self, x):
            return x * (1 + 8e-9 * torch.arange(len(x))[:, None])

    model = nn.Sequential(Placed(), nn.Linear(4, 2))
    assert not run(model, microbatch_size=16).is_batch_invariant
    adapting = run(model, microbatch_size=16, clipping_norm=AdaptiveClipping(1.0))
    assert adapting.is_batch_invariant
    assert "loop" in adapting.gradient_method


def test_library_panic_on_one_example_is_contained():
    class Panic(BaseException):
        """As Rust's libraries raise."""

    class Broken(Watched):
        def __getitem__(self, place):
            if place == 3:
                raise Panic("row 3 is secret")
            return super().__getitem__(place)

    def panics(x, y):
        if (x == 77).any():
            raise Panic("77 is secret")
        return x, y

    data = Broken()
    data.x[5] = 77
    looks = (torch.zeros(4), torch.tensor(0))
    run(data=data, augment=panics, sampling_rate=1, steps=2, padding_example=looks).run(progress=False)


def test_examples_that_cannot_be_stacked_become_padding_without_a_message():
    class Odd(Watched):
        def __getitem__(self, place):
            if place == 3:
                warnings.warn("row 3 is secret", stacklevel=1)
            x, y = super().__getitem__(place)
            return {4: x.to("meta"), 5: x.to_sparse(), 6: x.clone().requires_grad_()}.get(place, x), y

    looks = (torch.zeros(4), torch.tensor(0))
    run(data=Odd(), sampling_rate=1, steps=2, padding_example=looks).run(progress=False)


def test_failing_example_is_found_without_recomputing_all():
    calls = []

    def raises(x, y):
        calls.append(len(x))
        if bool((x == 77).any()):
            raise ValueError
        return x * 1.0, y

    x, y = rows(64)
    x[3] = 77
    trainer = run(data=(x, y), augment=raises, sampling_rate=1, steps=1, microbatch_size=64)
    assert "loop" in trainer.gradient_method
    calls.clear()
    trainer.run(progress=False)
    assert len(calls) <= 3 * 64
