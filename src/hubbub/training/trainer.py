"""A private training run: charge it, take its steps, save and resume it, release the weights.

A step draws a lot, sums the lot's clipped per-example gradients, adds Gaussian noise, and lets the optimizers
apply the result (DP-SGD, Abadi et al. 2016). `make_private` makes trainers.

Proof: docs/proofs/dpsgd.md
"""

import json
import math
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from hubbub.accounting import Account, PrivacyLoss
from hubbub.errors import Halted, InvalidInput, Refused
from hubbub.noise.entropy import random_bits, random_bytes
from hubbub.numbers import Number, format_down, format_up, parse_below_one
from hubbub.release import Release
from hubbub.training.checkpoint import (
    check_checkpoint_path,
    invalidate,
    is_checkpoint,
    is_ledger,
    remember_checkpoint,
    resume,
    save,
)
from hubbub.training.clipping import ClippedSum, ClippingThreshold, sum_clipped_gradients
from hubbub.training.clipping_schedule import AdaptiveClipping, Schedule
from hubbub.training.examples import Examples
from hubbub.training.model_checks import has_global_hooks, has_hooks
from hubbub.training.per_example_gradients import GradientMethod
from hubbub.training.state_isolation import (
    check_matmul_precision,
    kernel_settings,
    read_isolated,
    seed_generators,
)
from hubbub.unit import Unit

__all__ = ["Trainer", "TrainingRecord"]


def _model_state(model: nn.Module) -> list[tuple[Any, ...]]:
    """Everything that the model checks depend on: modules, modes, hooks, parameters and kernel settings."""
    state: list[tuple[Any, ...]] = []
    for part in model.modules():
        attributes = vars(part)
        state.append((id(part), type(part), part.training, "forward" in attributes, has_hooks(part)))
        state += [(name, id(inner)) for name, inner in attributes["_modules"].items()]
        state += [(name, id(p), _parameter_settings(p)) for name, p in attributes["_parameters"].items()]
        state.append(tuple(attributes["_buffers"]))
    return [*state, kernel_settings(), (has_global_hooks(),)]


def _parameter_settings(parameter: nn.Parameter | None) -> tuple[Any, ...]:
    return () if parameter is None else (parameter.requires_grad, parameter.dtype, parameter.shape)


@dataclass(frozen=True)
class TrainingRecord:
    """The source of a trained model's release: a public summary of the run."""

    summary: Mapping[str, Any]
    is_charged: bool = True
    """True if the run was charged to an account."""

    @property
    def error_kind(self) -> str:
        """Weights have no error bound."""
        return "none"

    def error(self, confidence: Number = 0.95, *, coordinates: int = 1) -> NoReturn:
        """Refuses: weights have no error bound."""
        raise InvalidInput(
            f"trained weights have no error at confidence {confidence} in {coordinates} coordinates",
            why="there is no exact answer to compare them with",
            fix="evaluate the model on public data, or pay for a private evaluation",
        )

    def to_json(self) -> str:
        """The record, as it is stored."""
        return json.dumps({"mechanism": "dp-sgd", "version": 1, **self.summary})


class Trainer:
    """A private training run: each iteration is one private step of the optimizers.

    Guarantee: all steps together are (ε, δ)-private with the ε of `epsilon`, charged before the first step.
    Assumes: what `make_private` assumes of the model and its examples.
    Proof: docs/proofs/dpsgd.md
    """

    def __init__(
        self,
        model: nn.Module,
        optimizers: Sequence[torch.optim.Optimizer],
        schedule: Schedule,
        examples: Examples,
        *,
        method: GradientMethod,
        account: Account | None,
        unit: Unit,
        microbatch_size: int,
        microbatch_multiple: int,
        is_batch_invariant: bool,
        ema_decay: float | None,
        delta: Fraction | None,
    ) -> None:
        self._model = model
        self._schedule = schedule
        self._unit = unit
        self._microbatch_size = microbatch_size
        self._is_batch_invariant = is_batch_invariant
        self._step = 0
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._model_state = _model_state(method.objective)
        self._microbatch_multiple = microbatch_multiple
        self._optimizers = tuple(optimizers)
        self._examples = examples
        self._method = method
        self._account = account
        self._is_started = False
        self._is_paid = False
        self._charge_key: str | None = None
        self._checkpoint: tuple[Path, str] | None = None
        self._repeated_loss: PrivacyLoss | None = None
        self._delta = delta
        self._ema_decay = ema_decay
        self._clipping_norms = [
            float(norm.initial_norm) if isinstance(norm, AdaptiveClipping) else None
            for norm in schedule.clipping_norms
        ]
        for place in range(len(schedule.groups)):
            for step in range(schedule.sampler.steps if schedule.varies else 1):
                self._threshold(place, step)  # refuses impossible thresholds now
        with torch.inference_mode(mode=False):
            self._sums = [
                ClippedSum(group, self._threshold(place, 0), microbatch_size)
                for place, group in enumerate(schedule.groups)
            ]
        self._ema_weights = (
            {} if ema_decay is None else {n: p.detach().clone() for n, p in self._trained().items()}
        )

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse to set public attributes: what runs and is released must be what was charged."""
        if not name.startswith("_"):
            raise InvalidInput(
                f"{name} of a trainer cannot be set",
                why="what is charged, what runs and what the release says would differ",
                fix="make a new trainer with make_private(…)",
            )
        super().__setattr__(name, value)

    # Known before the run

    @property
    def model(self) -> nn.Module:
        """The model that is trained."""
        return self._model

    @property
    def optimizers(self) -> tuple[torch.optim.Optimizer, ...]:
        """The optimizers, each of which takes every step."""
        return self._optimizers

    @property
    def unit(self) -> Unit:
        """The privacy unit that is protected."""
        return self._unit

    @property
    def microbatch_size(self) -> int:
        """The number of units that are computed at a time."""
        return self._microbatch_size

    @property
    def is_batch_invariant(self) -> bool:
        """True if this machine's kernels computed every example independently, bit for bit, when checked."""
        return self._is_batch_invariant

    @property
    def schedule(self) -> Schedule:
        """The plan of the run, which is what is charged: another one needs a new trainer."""
        return self._schedule

    @property
    def is_paid(self) -> bool:
        """True if an account was charged."""
        return self._is_paid

    @property
    def charge_key(self) -> str | None:
        """The key of the charge in a ledger."""
        return self._charge_key

    @property
    def privacy_loss(self) -> PrivacyLoss:
        """The privacy loss of the whole run for one unit, repeated steps included."""
        whole_run = self.schedule.sampler.privacy_loss
        return whole_run if self.repeated_loss is None else whole_run + self.repeated_loss

    @property
    def repeated_loss(self) -> PrivacyLoss | None:
        """The privacy loss of steps that were repeated, after a run that died."""
        return self._repeated_loss

    @property
    def steps(self) -> int:
        """The number of steps of the whole run."""
        return self.schedule.sampler.steps

    @property
    def step(self) -> int:
        """The number of steps done or begun; a step that was begun is never repeated."""
        return self._step

    @property
    def clipping_norms(self) -> tuple[float | None, ...]:
        """The current clipping norms of groups with adaptive clipping, which are private releases."""
        return tuple(self._clipping_norms)

    @property
    def ema_weights(self) -> Mapping[str, Tensor]:
        """The moving average of the weights, if one is kept."""
        return MappingProxyType(self._ema_weights)

    @property
    def gradient_method(self) -> str:
        """The method of computing per-example gradients, and the reason if it is not the fastest one."""
        return self._method.name

    def epsilon(self, delta: Number | None = None) -> float:
        """The ε of the whole run at δ (by default the budget's δ), rounded up."""
        return self.privacy_loss.epsilon(self._delta_or_default(delta))

    def noise_multiplier(self, step: int = 0) -> float:
        """σ of a step: the noise's standard deviation in units of the clipping norm, over all groups."""
        return self.schedule.noise_multiplier(step)

    def __repr__(self) -> str:
        waiting = "charged, not started" if self.is_paid else "not started"
        state = f"{self.step} done" if self._is_started else waiting
        return (
            f"Trainer({self.steps} steps ({state}), {self.schedule.sampler}, "
            f"lot size {self.schedule.lot_size}, noise multiplier {format_down(self.noise_multiplier(), 4)}, "
            f"protects {self.unit}; {self.gradient_method})"
        )

    def _repr_html_(self) -> str:
        delta = self._delta_or_default(None)
        rows = {
            "steps": f"{self.step} of {self.steps}",
            "privacy": f"ε = {format_up(self.epsilon(delta), 4)} at δ = {format_up(delta)} for the whole run",
            "protects": str(self.unit),
            "sampling": str(self.schedule.sampler),
            "lot size": str(self.schedule.lot_size),
            "noise multiplier": f"{format_down(self.noise_multiplier(), 4)}",
            "gradient method": self.gradient_method,
        }
        body = "".join(f"<tr><th>{name}</th><td>{escape(text)}</td></tr>" for name, text in rows.items())
        return f"<table>{body}</table>"

    # The run

    def __iter__(self) -> Iterator[int]:
        """Charge the run unless `charge()` did, then take its steps; yields the number of steps done."""
        self._refuse_forks()
        with self._lock:
            self._start()
        while True:
            self._refuse_forks()
            with self._lock:
                if self._step >= self.steps:
                    return
                self._refuse_changes()
                self._invalidate_checkpoint()
                # Counted before the lot is drawn: a step that fails may have shown its noise.
                self._step += 1
                self._take_step(self._step - 1)
            yield self._step

    def charge(self) -> None:
        """Charge the account for the whole run now; its steps may follow later, after other questions.

        A run that an account is charged for first needs exactly its own ε (docs/budgets.md). There is no
        checkpoint before the first step: if the process ends earlier, the charge is lost.
        """
        self._refuse_forks()
        if self._account is None:
            raise InvalidInput(
                "the trainer has no account",
                why="there is nothing to charge",
                fix="make the trainer with the account of the other questions: account=",
            )
        with self._lock:
            self._pay()

    def __len__(self) -> int:
        """Return how many steps are left: what progress bars such as tqdm ask before they begin."""
        return self.steps - self.step

    def __bool__(self) -> bool:
        """A finished trainer is one, too."""
        return True

    def run(self, *, progress: bool = True) -> Release[dict[str, Tensor]]:
        """Take all steps, with a progress bar of steps, ε and time, and return the release."""
        if not progress:
            for _ in self:
                pass
            return self.release()
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

        text = TextColumn("{task.description}")
        with Progress(text, BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()) as bar:
            task = bar.add_task(self._progress_text(), total=self.steps, completed=self.step)
            for done in self:
                bar.update(task, completed=done)
        return self.release()

    def _progress_text(self) -> str:
        delta = self._delta_or_default(None)
        return f"ε = {format_up(self.epsilon(delta), 4)} at δ = {format_up(delta)} for the whole run"

    def release(self) -> Release[dict[str, Tensor]]:
        """The current weights as a release; they were paid for when the run started."""
        self._refuse_forks()
        self._check_started()
        state = self.model.state_dict().items()
        weights = {name: value.detach().clone() for name, value in state if isinstance(value, Tensor)}
        weights.update({name: value.clone() for name, value in self.ema_weights.items()})
        coordinates = sum(value.numel() for value in weights.values())
        source = TrainingRecord(self.summary(), is_charged=self.is_paid or self._account is not None)
        return Release(
            weights,
            self.privacy_loss,
            source,
            self.unit,
            user_asserted=False,
            coordinates=coordinates,
            post_processed=True,
        )

    def summary(self) -> dict[str, Any]:
        """Public facts about the run: none depends on the data except through the mechanism."""
        return {
            "steps": self.steps,
            "steps_done": self.step,
            "sampling": str(self.schedule.sampler),
            "lot_size": self.schedule.lot_size,
            "noise_multiplier": self.noise_multiplier(0),
            "layers": [group.name for group in self.schedule.groups],
            "gradient_method": self.gradient_method,
            "has_repeated_steps": self.repeated_loss is not None,
            "assumptions": "kernels compute examples of a batch independently; arithmetic as IEEE 754 says",
            "batch_invariance": "exact" if self.is_batch_invariant else "up to last bits",
        }

    def save(self, path: str | Path) -> None:
        """Write a checkpoint of a started run. The file is private, unlike the release.

        If this run continues, the checkpoint becomes invalid: its steps would be shown twice.
        """
        self._refuse_forks()
        self._check_started()
        with self._lock:
            file = check_checkpoint_path(path)
            self._invalidate_checkpoint()
            # Remembered before it is written: an interrupted run must not continue beside its checkpoint.
            checkpoint_id = random_bytes(16).hex()
            self._checkpoint = file, checkpoint_id
            remember_checkpoint(self._account, checkpoint_id)
            try:
                save(self, file, checkpoint_id)
            except BaseException:
                self._checkpoint = self._checkpoint if is_checkpoint(file, checkpoint_id) else None
                raise

    def resume(self, path: str | Path, *, again: bool = False) -> None:
        """Continue a run from its checkpoint; the account that paid for it is not charged again.

        At most one run continues from a checkpoint or a copy of it: the ledger records that. Without a ledger
        only the process that saved the checkpoint knows; elsewhere an account pays for the whole run again.

        Args:
            path: The checkpoint of a run with the same settings.
            again: Repeat the steps after the checkpoint of a run that died, and pay for them once more: they
                may have been seen.
        """
        self._refuse_forks()
        with self._lock:
            if self._is_started or self.is_paid:
                raise InvalidInput(
                    "this run has begun, or was charged",
                    why="its steps would be repeated, or another run's be taken for its charge",
                    fix="make a new trainer with make_private(…), and resume that",
                )
            self._refuse_changes()
            self._is_paid = resume(self, Path(path).resolve(), again=again)
            # An account that did not pay for the run pays for all of it when it starts.
            self._is_started = self.is_paid or self._account is None

    def _set_progress(
        self,
        step: int,
        repeated_loss: PrivacyLoss | None,
        ema_weights: Mapping[str, Tensor],
        clipping_norms: Sequence[float | None],
    ) -> None:
        """Take over a checkpoint's progress, or return to one's own."""
        self._step, self._repeated_loss = step, repeated_loss
        self._ema_weights, self._clipping_norms = dict(ema_weights), list(clipping_norms)

    def _check_started(self) -> None:
        if not self._is_started:
            raise Halted(
                "the run has not started",
                why="nothing has been learned yet",
                fix="iterate over the trainer, or call run()",
            )

    def _invalidate_checkpoint(self) -> None:
        if self._checkpoint is not None:
            invalidate(self, *self._checkpoint)
            self._checkpoint = None

    def _start(self) -> None:
        if not self._is_started:
            if self._account is not None:
                self._pay()
            self._refuse_changes()
            self._is_started = True

    def _pay(self) -> None:
        if not self.is_paid:
            self._refuse_changes()
            self._charge_key = f"training {random_bytes(16).hex()}" if is_ledger(self._account) else None
            self._charge(self._charge_text, self.privacy_loss, self.charge_key)
            self._is_paid = True

    @property
    def _charge_text(self) -> str:
        return f"training, {self.steps} steps"

    def _charge(self, what: str, loss: PrivacyLoss, key: str | None = None) -> bool:
        """Charge the account, a ledger at most once per key; returns whether it was charged now."""
        if self._account is None:
            raise InvalidInput(
                "the trainer has no account",
                why="an account paid for this run, and must pay for repeated steps",
                fix="make the trainer with the same account=",
            )
        if key is not None:
            ledger: Any = self._account
            return bool(ledger.record_charge(what, loss, unit=self.unit, key=key).is_new)
        self._account.charge(what, loss, unit=self.unit)
        return True

    # One step

    def _take_step(self, step: int) -> None:
        torch.clear_autocast_cache()  # autocast around the whole run would keep the first weights
        lot = self.schedule.sampler.draw(step, self._examples._unit_count)  # noqa: SLF001 - only the sampler may know
        for place, total in enumerate(self._sums):
            moves = self.schedule.varies or self._clipping_norms[place] is not None
            total.start_lot(self._threshold(place, step) if moves else total.threshold)
        microbatches = self._examples.microbatches(lot, self.microbatch_size, self._microbatch_multiple)
        if self._examples.is_user_code:
            microbatches = read_isolated(microbatches, self._method.objective)
        with seed_generators(random_bits(64) >> 1):
            sum_clipped_gradients(self._sums, self._method, microbatches)
        for place, total in enumerate(self._sums):
            self._set_gradients(total)
            self._adapt_clipping_norm(place, total)
        ours = {id(p) for group in self.schedule.groups for p in group.parameters}
        for optimizer in self.optimizers:
            for parameter in (p for group in optimizer.param_groups for p in group["params"]):
                if id(parameter) not in ours:
                    parameter.grad = None  # a gradient left there by other code is not private
            optimizer.step()
        self._update_ema()

    def _threshold(self, place: int, step: int) -> ClippingThreshold:
        norm = self.schedule.clipping_norms[place]
        now = self._clipping_norms[place] if isinstance(norm, AdaptiveClipping) else float(norm(step))
        assert now is not None
        noise_multiplier = self.schedule.noise_multipliers[place](step)
        return ClippingThreshold.of(now, noise_multiplier, self.schedule.groups[place].size)

    def _set_gradients(self, total: ClippedSum) -> None:
        """Release a group's sum, and give each parameter its gradient."""
        correcting = [optimizer for optimizer in self.optimizers if hasattr(optimizer, "noise")]
        for parameter, gradient in total.release_gradients(self.unit, self.schedule.lot_size):
            parameter.grad = gradient
            for optimizer in correcting:
                threshold = total.threshold
                stddev = float(threshold.noise_multiplier) * threshold.norm / self.schedule.lot_size
                optimizer.noise[parameter] = stddev

    def _adapt_clipping_norm(self, place: int, total: ClippedSum) -> None:
        """Move a clipping norm towards its quantile, by a noisy count."""
        rule, lot_size = self.schedule.clipping_norms[place], self.schedule.lot_size
        if not isinstance(rule, AdaptiveClipping):
            return
        share = total.release_share_within_norm(self.unit, lot_size, rule.noise_stddev(lot_size))
        now = self._clipping_norms[place]
        assert now is not None
        excess = min(1.0, max(0.0, share)) - float(rule.target_quantile)
        self._clipping_norms[place] = min(1e7, max(1e-7, now * math.exp(-float(rule.learning_rate) * excess)))

    def _update_ema(self) -> None:
        if self._ema_decay is None:
            return
        # Early on the average forgets faster, so that the initial weights do not stay in it.
        decay = min(self._ema_decay, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            for name, parameter in self._trained().items():
                self._ema_weights[name].lerp_(parameter, 1 - decay)

    # Refusals

    def _refuse_forks(self) -> None:
        """A run continues only in the process that made it: a fork would be a second run."""
        if os.getpid() != self._process:
            raise Refused(
                "the run was made in another process, and this one is a fork of it",
                why="both would continue from here, and show two answers for one charge",
                fix="train in the process that made the trainer; workers that only load examples may fork",
            )

    def _refuse_changes(self) -> None:
        """The model, and the settings that kernels depend on, must be those that were checked."""
        check_matmul_precision()
        if _model_state(self._method.objective) != self._model_state:
            raise InvalidInput(
                "the model, or how it is computed, was changed after the trainer was made",
                why="its examples were found independent in another mode, or with other parameters",
                fix="restore modes, hooks, requires_grad, autocast and threads, or make a new trainer",
            )

    def __reduce__(self) -> NoReturn:
        raise InvalidInput(
            "a trainer cannot be copied",
            why="the copy would show other answers for the same charge",
            fix="save it, and resume from the file",
        )

    def _trained(self) -> dict[str, nn.Parameter]:
        trained = {id(p) for group in self.schedule.groups for p in group.parameters}
        return {name: p for name, p in self.model.named_parameters() if id(p) in trained}

    def _delta_or_default(self, delta: Number | None) -> Fraction:
        if delta is not None:
            return parse_below_one(delta, "delta")
        return self._delta if self._delta is not None else Fraction(1, 10**5)
