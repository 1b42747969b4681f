"""DP-SGD: a model, an optimizer and data as everybody has them, and a loop that is private.

    trainer = private(model, optimizer, data, loss=F.cross_entropy, clip=1.0, rate=0.01, steps=1000,
                      target=Budget(3, 1e-5))
    for step in trainer:
        scheduler.step()
    release = trainer.release()

Proof: docs/proofs/dpsgd.md
"""

import json
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from hubbub.accounting import Account, Budget, PrivacyLoss
from hubbub.accounting.in_memory_account import UNSPECIFIED, Unspecified, resolve_account
from hubbub.errors import Halted, InvalidInput, Refused
from hubbub.noise import rounded_gaussian
from hubbub.noise.entropy import random_bits, random_bytes
from hubbub.numbers import Number, parse_below_one, parse_integer, parse_probability
from hubbub.release import Release
from hubbub.sensitivity import unwrap
from hubbub.training.arguments import (
    losses_of,
    optimizers_of,
    refuse_little_noise,
    refuse_mistaken,
    trained_by,
    unit_of,
)
from hubbub.training.batch_sampling import FixedSizeSampling, Scheduled
from hubbub.training.checkpoint import give_up, is_ledger, is_there, note, refuse_place, resume, save
from hubbub.training.clipping import GRAIN, MOST_CHUNK, ClippedSums, ClippingThreshold, sum_clipped_gradients
from hubbub.training.examples import Examples
from hubbub.training.isolation import reading, refuse_rough_products, starting_from, surroundings
from hubbub.training.model_checks import (
    CheckedMethod,
    are_all_hooked,
    check_batch_invariance,
    check_model,
    choose_gradient_method,
    compare_methods,
    is_hooked,
    refuse_failing_blanks,
)
from hubbub.training.per_example_gradients import Augment, GradientMethod, Loop, Objective
from hubbub.training.schedule import AdaptiveClipping, Schedule
from hubbub.unit import Unit

__all__ = ["Trainer", "Training", "make_private"]

_HELD = 1 << 20
"""Numbers that the layers of a chunk may keep: a few megabytes."""

Optimizers = torch.optim.Optimizer | Sequence[torch.optim.Optimizer]


def make_private(
    model: nn.Module,
    optimizer: Optimizers,
    data: Any,
    *,
    loss: Callable[..., Tensor] | None = None,
    objective: Callable[..., Tensor] | None = None,
    clip: Scheduled | AdaptiveClipping | Mapping[str, Scheduled | AdaptiveClipping],
    rate: Scheduled | FixedSizeSampling,
    steps: int,
    target: Budget | None = None,
    sigma: Scheduled | Mapping[str, Scheduled] | None = None,
    lot: int | None = None,
    account: Account | Unspecified | None = UNSPECIFIED,
    units: Any = None,
    unit: str | Unit | None = None,
    per_unit: int = 1,
    copies: int = 1,
    augment: Augment | None = None,
    average: Number | None = None,
    chunk: int | None = None,
    example: Sequence[Any] | Mapping[str, Any] | None = None,
    allow_large_epsilon: bool = False,
) -> "Trainer":
    """A private training run, planned and checked; nothing is read or charged until it starts.

    Args:
        model: Any torch module that treats every example by itself.
        optimizer: One torch optimizer or several; what they hold is trained, all else is frozen.
        data: Tensors, arrays or a Dataset: inputs and targets.
        loss: Of (outputs, targets), as torch's are.
        objective: Instead of `loss`: of (model, *example tensors), one number for each example.
        clip: The threshold C; a table or function of the step; `AdaptiveClipping`; or any of them by layer.
        rate: The chance of a unit to be in a lot, or a table or function of the step; or `FixedSizeSampling`
        lots.
        steps: How many lots.
        target: The privacy that the run must keep; the noise follows.
        sigma: The noise in units of C, by step, by layer; with a target, its shape only.
        lot: The public expected size of a lot, by which sums are divided. If it is not given, it is rate
            times the target's public population, or else 1/rate, as for a lot of √N out of N.
        account: Where the run is charged when it starts; None, which must be said, where nobody keeps count.
        units: A key for each example: whose it is. Without it every example is a unit of its own.
        unit: The name of that key, where `units` are given.
        per_unit: The most examples of one unit in a lot.
        copies: How many augmented copies of an example are averaged before clipping.
        augment: A function of a batch of examples that changes each by itself, at random.
        average: Keep a moving average of the weights, of this decay.
        chunk: Units at a time; the model sees batches of just this size.
        example: What an example looks like, where the data cannot tell: tensors, or a dictionary of them if
            items are. It stands where no example is, and must be nobody's.
        allow_large_epsilon: Confirms noise so small that ε is above 20, where no target is given.

    >>> model = nn.Linear(2, 2)
    >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    >>> x, y = torch.randn(500, 2), torch.randint(2, (500,))
    >>> trainer = make_private(model, optimizer, (x, y), loss=nn.functional.cross_entropy, clip=1.0, rate=0.1,
    ...                   steps=20, target=Budget(2, 1e-5), account=None)
    >>> trainer.epsilon(1e-5) <= 2
    True
    >>> for step in trainer:
    ...     pass
    >>> trainer.release().label()["unit"]
    'one row, add/remove'

    Guarantee: everything that comes out of the run (weights after every step, optimizer states, averages)
        has together no more than `trainer.loss`.
    Assumes: the model starts from public weights, and treats every example by itself; the arithmetic is as
        docs/proofs/dpsgd.md says; the time a step takes is not watched.
    Proof: docs/proofs/dpsgd.md
    """
    refuse_mistaken(target, account)
    who = unit_of(unit, units, rate)
    optimizers = optimizers_of(optimizer)
    named = trained_by(model, optimizers)
    check_model(model, list(named.values()))
    schedule = Schedule.of(named, clip=clip, rate=rate, steps=steps, sigma=sigma, target=target, lot=lot)
    if target is None:
        refuse_little_noise(schedule.lots.loss, allow=allow_large_epsilon)
    kind = next((p.dtype for p in named.values()), torch.float32)
    examples = Examples(data, units=units, per_unit=per_unit, copies=copies, example=example, kind=kind)
    whole_objective = Objective(model, losses_of(loss, objective, len(examples.blank)), augment)
    shape = examples.blank, examples.width
    way = choose_gradient_method(whole_objective, list(named.values()), *shape)
    size = _chunk(chunk, schedule.lot, getattr(way, "held", _HELD // 64))
    counts = any(isinstance(one, AdaptiveClipping) for one in schedule.clips)
    way, steady, grain = check_batch_invariance(way, *shape, size, to_the_bit=counts)
    refuse_failing_blanks(way, *shape, size)

    def again() -> GradientMethod:
        """What the model does now, at what its chunks are now."""
        found = choose_gradient_method(whole_objective, list(named.values()), *shape)
        found, is_steady, parts = check_batch_invariance(found, *shape, size, to_the_bit=counts or steady)
        if not is_steady or grain % parts:
            return Loop(whole_objective, list(named.values()))
        return compare_methods(found, *shape, size)

    if isinstance(rate, FixedSizeSampling) and rate.population != examples._units:  # noqa: SLF001 - here it is public
        raise InvalidInput(
            "population is not the number of units there are",
            why="shuffled lots are about a public number of units",
            fix="pass the population, or use Poisson lots",
        )
    decay = None if average is None else float(parse_probability(average, "average"))
    return Trainer(
        model,
        optimizers,
        schedule,
        examples,
        way=CheckedMethod(compare_methods(way, *shape, size), again),
        account=resolve_account(account),
        unit=who,
        chunk=size,
        steady=steady,
        grain=grain,
        decay=decay,
        delta=target.delta if target is not None else None,
    )


def _chunk(given: int | None, lot: int, held: int) -> int:
    """Units at a time: few enough to stay near the processor, many enough to be quick; at most a lot."""
    if given is None:
        most = math.ceil((lot + 4 * math.sqrt(lot)) / GRAIN) * GRAIN
        return min(most, MOST_CHUNK, max(GRAIN, _HELD // max(1, held) // GRAIN * GRAIN))
    size = parse_integer(given, "chunk")
    if size > MOST_CHUNK:
        raise InvalidInput(
            f"chunk is above {MOST_CHUNK}",
            why="the rounding of longer sums is not allowed for",
            fix=f"pass at most {MOST_CHUNK}; lots are as large as you like",
        )
    return size


def _modes(model: nn.Module) -> list[tuple[Any, ...]]:
    modes: list[tuple[Any, ...]] = []
    for part in model.modules():
        held = vars(part)
        modes.append((id(part), type(part), part.training, "forward" in held, is_hooked(part)))
        modes += [(name, id(inner)) for name, inner in held["_modules"].items()]
        modes += [(name, id(p), _looks(p)) for name, p in held["_parameters"].items()]
        modes.append(tuple(held["_buffers"]))
    return [*modes, surroundings(), (are_all_hooked(),)]


def _looks(parameter: nn.Parameter | None) -> tuple[Any, ...]:
    return () if parameter is None else (parameter.requires_grad, parameter.dtype, parameter.shape)


@dataclass(frozen=True)
class Training:
    """What a release knows of the run that made it."""

    facts: Mapping[str, Any]
    is_charged: bool = True
    """Whether an account paid for it."""

    @property
    def error_kind(self) -> str:
        """Weights have no error that could be promised."""
        return "none"

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> NoReturn:
        """None is promised."""
        raise InvalidInput(
            f"trained weights have no error at confidence {confidence} in {coordinates} coordinates",
            why="there is no exact answer that they were made from",
            fix="measure the model on public data, or pay for a private measurement",
        )

    def to_json(self) -> str:
        """The run, as it is stored."""
        return json.dumps({"mechanism": "dp-sgd", "version": 1, **self.facts})


class Trainer:
    """A run: iterate over it, and every step is one private step of the optimizers."""

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        schedule: Schedule,
        examples: Examples,
        *,
        way: GradientMethod,
        account: Account | None,
        unit: Unit,
        chunk: int,
        steady: bool,
        grain: int,
        decay: float | None,
        delta: Fraction | None,
    ) -> None:
        self.model = model
        self.schedule = schedule
        self.unit = unit
        self.chunk = chunk
        self.steady = steady
        """Whether this machine's kernels were found to treat every example by itself, bit for bit."""
        self._step = 0
        self._process = os.getpid()
        self._busy = threading.Lock()
        self._modes = _modes(way.objective)
        self._grain = grain
        self.optimizers = list(optimizers)
        self._examples = examples
        self._way = way
        self._account = account
        self._charged = False
        self.is_paid = False
        """Whether an account was charged."""
        self.key: str | None = None
        """Under which a ledger was."""
        self._saved: tuple[Path, str] | None = None
        self.more: PrivacyLoss | None = None
        """What steps cost that were taken again, after a run that died."""
        self._delta = delta
        self._decay = decay
        self.clips = [float(c.start) if isinstance(c, AdaptiveClipping) else None for c in schedule.clips]
        """Where thresholds adapt: the present ones, which are private releases."""
        for place in range(len(schedule.groups)):
            for step in range(schedule.lots.steps if schedule.varies else 1):
                self._threshold(place, step)  # what cannot be is said now
        with torch.inference_mode(mode=False):
            self._sums = [
                ClippedSums(group, self._threshold(place, 0), chunk)
                for place, group in enumerate(schedule.groups)
            ]
        self.averaged = {} if decay is None else {n: p.detach().clone() for n, p in self._named().items()}
        """The moving average of the weights, if one is kept."""

    # What is known before it runs

    @property
    def loss(self) -> PrivacyLoss:
        """What the whole run costs one unit, steps that were taken again included."""
        whole_run = self.schedule.lots.loss
        return whole_run if self.more is None else whole_run + self.more

    @property
    def steps(self) -> int:
        """How many steps there are."""
        return self.schedule.lots.steps

    @property
    def step(self) -> int:
        """How many steps are done, or were begun: what was begun is not done again."""
        return self._step

    @property
    def how(self) -> str:
        """How every example's gradient is found, and if it is not the fastest way, why."""
        return self._way.name

    def epsilon(self, delta: Number | None = None) -> float:
        """The ε of the whole run at δ (that of the target if none is given), rounded up."""
        return self.loss.epsilon(self._at(delta))

    def sigma(self, step: int = 0) -> float:
        """The noise of a step in units of C, all layers together."""
        return self.schedule.sigma(step)

    def __repr__(self) -> str:
        lots = f"{self.schedule.lots}, divided by {self.schedule.lot}"
        said = f"{self.steps} steps of {lots}, σ = {self.sigma():.4g}"
        state = f"{self.step} done" if self._charged else "nothing spent yet"
        return f"Trainer({said}, of {self.unit}; {self.how}; {state})"

    # The run

    def __iter__(self) -> Iterator[int]:
        """Charge, then take one step after another; gives the number of steps done."""
        self._refuse_copies()
        with self._busy:
            self._start()
        while True:
            self._refuse_copies()
            with self._busy:
                if self._step >= self.steps:
                    return
                self._refuse_changes()
                self._give_up_saved()
                # Counted before it is drawn: a step that fails may have shown its noise.
                self._step += 1
                self._take(self._step - 1)
            yield self._step

    def run(self, *, progress: bool = True) -> Release:
        """All steps, with a bar that shows steps, ε and time; then the release."""
        if not progress:
            for _ in self:
                pass
            return self.release()
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        words = TextColumn("{task.description}")
        with Progress(words, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()) as bar:
            task = bar.add_task(self._bar_text(), total=self.steps, completed=self.step)
            for done in self:
                bar.update(task, completed=done)
        return self.release()

    def _bar_text(self) -> str:
        delta = self._at(None)
        return f"ε = {self.epsilon(delta):.4g} at δ = {float(delta):.1g} for the whole run"

    def release(self) -> Release:
        """The weights as they are now, to be shown to anyone; their cost was charged at the start."""
        self._refuse_copies()
        self._started()
        held = self.model.state_dict().items()
        weights = {name: value.detach().clone() for name, value in held if isinstance(value, Tensor)}
        if self.averaged:
            weights.update({name: value.clone() for name, value in self.averaged.items()})
        coordinates = sum(value.numel() for value in weights.values())
        return Release(
            weights,
            self.loss,
            self._source(),
            self.unit,
            user_asserted=False,
            coordinates=coordinates,
            post_processed=True,
        )

    def _started(self) -> None:
        if not self._charged:
            raise Halted(
                "the run has not started",
                why="there is nothing that was learned",
                fix="iterate over the trainer, or call run()",
            )

    def _source(self) -> Training:
        return Training(self.facts(), is_charged=self.is_paid or self._account is not None)

    def facts(self) -> dict[str, Any]:
        """What may be said of the run: nothing of it depends on the data but through the mechanism."""
        return {
            "steps": self.steps,
            "done": self.step,
            "lots": str(self.schedule.lots),
            "lot": self.schedule.lot,
            "sigma": self.sigma(0),
            "layers": [group.name for group in self.schedule.groups],
            "gradients": self.how,
            "steps taken again": self.more is not None,
            "assumes": "kernels compute each example of a batch by itself; single precision as IEEE 754",
            "kernels": "found so, bit for bit" if self.steady else "found so but for last bits",
        }

    def save(self, path: str | Path) -> None:
        """Put a started run aside; the file is private, unlike the release.

        If this run goes on, the file is of no more use: its steps would be shown twice.
        """
        self._refuse_copies()
        self._started()
        with self._busy:
            where = refuse_place(path)
            self._give_up_saved()
            # Known before it is written: who is interrupted then does not go on beside it.
            mark = random_bytes(16).hex()
            self._saved = where, mark
            note(self._account, mark)
            try:
                save(self, where, mark)
            except BaseException:
                self._saved = self._saved if is_there(where, mark) else None
                raise

    def resume(self, path: str | Path, *, again: bool = False) -> None:
        """Take up a run of the same settings where it was saved; what this account paid is not charged again.

        Once: a ledger knows whether anybody went on from this checkpoint, or from a copy of it. Where none
        paid, only the process that saved it does: in another one an account pays for the whole run anew.

        A run that died after it was saved had gone on: with `again` its steps from there on, which may have
        been seen, are taken once more, and charged once more.
        """
        self._refuse_copies()
        with self._busy:
            if self._charged:
                raise InvalidInput(
                    "this run has begun",
                    why="its steps would be taken again",
                    fix="make a new one with private(…), and resume that",
                )
            self._refuse_changes()
            self.is_paid = resume(self, Path(path).resolve(), again=again)
            # An account that did not pay for it pays for the whole, when it starts.
            self._charged = self.is_paid or self._account is None

    def _give_up_saved(self) -> None:
        if self._saved is not None:
            give_up(self, *self._saved)
            self._saved = None

    # One step

    def _start(self) -> None:
        if not self._charged:
            self._refuse_changes()
            if self._account is not None:
                self.key = f"training {random_bytes(16).hex()}" if is_ledger(self._account) else None
                self._pay(self._what, self.loss, self.key)
                self.is_paid = True
            self._charged = True

    @property
    def _what(self) -> str:
        return f"training, {self.steps} steps"

    def _pay(self, what: str, loss: PrivacyLoss, key: str | None = None) -> bool:
        """Charge the account, a ledger once for each key; whether it was charged now."""
        if self._account is None:
            raise InvalidInput(
                "the trainer has no account",
                why="an account paid for this run, and must pay for steps that are taken again",
                fix="make the trainer with the same account=",
            )
        if key is not None:
            begun: Any = self._account
            return bool(begun.begin(what, loss, unit=self.unit, key=key).is_new)
        self._account.charge(what, loss, unit=self.unit)
        return True

    def _take(self, step: int) -> None:
        torch.clear_autocast_cache()  # around a whole run it would keep the first weights
        lot = self.schedule.lots.draw(step, self._examples._units)  # noqa: SLF001 - only the sampler asks
        for place, sums in enumerate(self._sums):
            moves = self.schedule.varies or self.clips[place] is not None
            sums.start(self._threshold(place, step) if moves else sums.threshold)
        chunks = self._examples.chunks(lot, self.chunk, self._grain)
        if self._examples.is_code:
            chunks = reading(chunks, self._way.objective)
        with starting_from(random_bits(64) >> 1):
            sum_clipped_gradients(self._sums, self._way, chunks)
        for place, sums in enumerate(self._sums):
            self._descend(sums)
            self._adapt(place, sums)
        ours = {id(p) for group in self.schedule.groups for p in group.parameters}
        for optimizer in self.optimizers:
            for parameter in (p for group in optimizer.param_groups for p in group["params"]):
                if id(parameter) not in ours:
                    parameter.grad = None  # what was left there by others is not private
            optimizer.step()
        self._average()

    def _refuse_copies(self) -> None:
        """A run goes on in the process that it was made in: a fork of it would be a second run."""
        if os.getpid() != self._process:
            raise Refused(
                "the run was made in another process, of which this one is a copy",
                why="both would go on from here, and show two answers for one charge",
                fix="train in the process that made the run; workers that only load examples may be forked",
            )

    def _refuse_changes(self) -> None:
        """The model must be as it was looked at, and what it runs on."""
        refuse_rough_products()
        if _modes(self._way.objective) != self._modes:
            raise InvalidInput(
                "the model, or how it is computed, was changed after the run was made",
                why="whether it keeps examples apart was looked at in another mode, or with other parameters",
                fix="set modes, hooks, requires_grad, autocast and threads as they were, or make a new run",
            )

    def __reduce__(self) -> NoReturn:
        raise InvalidInput(
            "a run cannot be copied",
            why="the copy would show other answers for the same charge",
            fix="save it, and resume from the file",
        )

    def _threshold(self, place: int, step: int) -> ClippingThreshold:
        clip = self.schedule.clips[place]
        now = self.clips[place] if isinstance(clip, AdaptiveClipping) else float(clip(step))
        assert now is not None
        return ClippingThreshold.of(now, self.schedule.sigmas[place](step), self.schedule.groups[place].size)

    def _descend(self, sums: ClippedSums) -> None:
        """Give each parameter its part of the gradient."""
        correcting = [optimizer for optimizer in self.optimizers if hasattr(optimizer, "noise")]
        for parameter, gradient in sums.noisy(self.schedule.lot):
            parameter.grad = gradient
            for optimizer in correcting:
                noise = float(sums.threshold.sigma) * sums.threshold.clip / self.schedule.lot
                optimizer.noise[parameter] = noise

    def _adapt(self, place: int, sums: ClippedSums) -> None:
        """Move a threshold towards its quantile, by a count with noise."""
        rule = self.schedule.clips[place]
        if not isinstance(rule, AdaptiveClipping):
            return
        # Counted in halves: one unit moves it by one of them; 2^16 steps to each.
        exact = unwrap(sums.below(self.unit))
        assert isinstance(exact, int)
        fine = 1 << 16
        noisy = exact * fine + rounded_gaussian(2 * rule.noise(self.schedule.lot) * fine)
        share = noisy / fine / 2 / self.schedule.lot + 0.5
        now = self.clips[place]
        assert now is not None
        moved = now * math.exp(-float(rule.pace) * (min(1.0, max(0.0, share)) - float(rule.quantile)))
        self.clips[place] = min(1e7, max(1e-7, moved))

    def _average(self) -> None:
        if self._decay is None:
            return
        # Early on the average forgets faster, so that the first weights do not stay in it.
        decay = min(self._decay, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            for name, parameter in self._named().items():
                self.averaged[name].lerp_(parameter, 1 - decay)

    def _named(self) -> dict[str, nn.Parameter]:
        held = {id(p) for group in self.schedule.groups for p in group.parameters}
        return {name: p for name, p in self.model.named_parameters() if id(p) in held}

    def _at(self, delta: Number | None) -> Fraction:
        if delta is not None:
            return parse_below_one(delta, "delta")
        return self._delta if self._delta is not None else Fraction(1, 10**5)
