"""A dataset as a server holds it: planned on one engine, run on others, answered at public times.

A query's time depends on rows. So nothing that anybody can observe may happen at a time that the query
decides: its outcome is stored and leaves at moments that are fixed before it starts. Each plan has a deadline
class; a query has a slot, with an engine of its own, for all of that time, whether it needs it or not. What
is not finished by then is stopped, and "not finished in time" is the outcome of its charge. Plans are made on
an engine on which no query of rows runs, so that nobody waits for another's query there either.

What remains: whether a query finishes in time is seen, and queries that run at once share processors.

Proof: docs/proofs/deadlines.md
"""

import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from typing import Any

from sqlglot import exp

from hubbub.config import Config
from hubbub.dataset import Dataset, make_dataset
from hubbub.engines.engine import Engine
from hubbub.errors import EngineFailed, HubbubError, InvalidInput, LedgerFailed, Unavailable
from hubbub.ledger import Charge, Ledger, LedgerAccount
from hubbub.ledger.entries import Entry, digest
from hubbub.ledger.stored_outcomes import error_text
from hubbub.ledger.verify import VerificationReport
from hubbub.release import Release
from hubbub.server.settings import ServerSettings
from hubbub.sources import OpenArguments, OpenedSources, open_sources
from hubbub.sql.composite_plan import AnyPlan, CompositePlan, fingerprint_plan
from hubbub.sql.result import Result

__all__ = ["HostedDataset", "Run", "choose_deadline"]

_MANY_CELLS = (100_000, 2_000_000)
_INTERRUPT_SECONDS = 0.05
_STORING_SHARE, _STORING_SECONDS = 0.25, 1.0
"""The part of a deadline that is left for storing the outcome, and the most of it."""


def choose_deadline(plan: AnyPlan, classes: tuple[float, ...], wish: float | None = None) -> float:
    """Return the seconds after which the answer to a plan leaves.

    A join, several parts and many groups each move it to the next class. The analyst may ask for a later one.
    Without classes it is 0: the owner trusts everybody who asks not to look at times.

    Guarantee: a function of the plan, the owner's classes and the wish: no row is consulted.
    """
    parts = plan.parts if isinstance(plan, CompositePlan) else (plan,)
    cells = sum(part.query.cells for part in parts if part.query.is_public)
    has_join = any(part.query.rows.find(exp.Join) is not None for part in parts)
    place = has_join + (len(parts) > 1) + sum(cells > many for many in _MANY_CELLS)
    if not classes:
        return 0.0
    own = classes[min(place, len(classes) - 1)]
    if wish is None or wish <= own:
        return own
    if wish > classes[-1]:
        raise InvalidInput(
            "the {deadline} is later than the owner allows",
            why="a query has its engine for all of that time",
            fix=f"pass at most {classes[-1]:g} seconds",
            parameter="deadline",
        )
    return next(each for each in classes if each >= wish)


class Run:
    """One question on its way: what comes out of it, and the moment at which that may leave."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        """The deadline; 0 for none."""
        self.leaves: float | None = None
        """On the monotonic clock; None if nothing was charged, so that it may leave at once."""
        self.charge: Charge | None = None
        """The new charge, if there is one."""
        self.outcome: Future[Release[Result]] = Future()
        self._lock = threading.Lock()

    def finish(self, value: Release[Result] | None, error: BaseException | None = None) -> None:
        """Say what came out, unless that was said."""
        with self._lock:
            if self.outcome.done():
                return
            if error is not None:
                self.outcome.set_exception(error)
            else:
                assert value is not None
                self.outcome.set_result(value)


@dataclass
class _Slot:
    sources: OpenedSources | None = None

    @property
    def engine(self) -> Engine:
        assert self.sources is not None
        return self.sources.engine


@dataclass
class HostedDataset:
    """A dataset that is opened when it is first used.

    Args:
        name: its name in addresses.
        arguments: as for `hubbub.open`; with a ledger, declared or passed.
        slots: how many queries run at once.
        queue: how many may wait for a slot.
        deadlines: the classes, in seconds.
        about: what the owner states for the label.
        is_public: whether published releases are shown to everybody.
    """

    name: str
    arguments: OpenArguments
    slots: int = 2
    queue: int = 256
    deadlines: tuple[float, ...] = (1.0, 10.0, 60.0, 600.0)
    about: dict[str, str] = field(default_factory=dict)
    is_public: bool = False

    def __post_init__(self) -> None:
        self._opening = threading.Lock()
        self._sources: OpenedSources | None = None
        self._datasets: dict[str, Dataset] = {}
        self._all_slots = [_Slot() for _ in range(self.slots)]
        self._free = list(self._all_slots)
        self._waiting: deque[SimpleQueue[_Slot | None]] = deque()
        self._stopping = threading.Event()

    # Opening

    @classmethod
    def declared(cls, config: Config, settings: ServerSettings, process: ServerSettings) -> "HostedDataset":
        """Return the dataset of a hubbub.toml with its settings; those of the process come from the first."""
        if config.ledger is None:
            raise InvalidInput(
                f"{config.file} declares no ledger", why="a server that restarts would forget what was spent",
                fix='add ledger = "visits.ledger" and a [budget]',
            )  # fmt: skip
        return cls(
            settings.name or str(config.payer),
            OpenArguments(config.file, window=settings.window),
            slots=process.slots,
            queue=process.queue,
            deadlines=process.deadlines,
            about=dict(config.about),
            is_public=settings.public,
        )

    @property
    def sources(self) -> OpenedSources:
        """The engine for plans, the unit and the owner's account; opened now if they were not."""
        with self._opening:
            if self._sources is None:
                sources = open_sources(self.arguments)
                if not isinstance(sources.account, LedgerAccount):
                    sources.engine.close()
                    raise InvalidInput(
                        f"the dataset {self.name} has no ledger",
                        why="a server that restarts would forget what was spent",
                        fix='declare ledger = "visits.ledger" and a [budget] in hubbub.toml',
                    )
                self._sources = sources
            return self._sources

    @property
    def account(self) -> LedgerAccount:
        """The owner's account."""
        account = self.sources.account
        assert isinstance(account, LedgerAccount)
        return account

    def account_of(self, analyst: str) -> LedgerAccount:
        """The account on behalf of an analyst; the owner's for an empty name."""
        return self.account.for_analyst(analyst) if analyst else self.account

    def dataset_of(self, analyst: str) -> Dataset:
        """The dataset on behalf of an analyst; it makes plans, and its own engine runs none."""
        sources = self.sources
        with self._opening:
            if analyst not in self._datasets:
                self._datasets[analyst] = make_dataset(sources, analyst or None)
            return self._datasets[analyst]

    def verify(self) -> VerificationReport:
        """Verify the ledger."""
        ledger = self.sources.ledger or self.arguments.ledger
        assert isinstance(ledger, Ledger)
        return ledger.verify()

    def stop(self) -> None:
        """Take no more questions; what was computed is stored at once, and what still runs is stopped."""
        with self._opening:
            self._stopping.set()
            while self._waiting:
                self._waiting.popleft().put(None)
        for slot in self._all_slots:
            if slot.sources is not None:
                slot.engine.interrupt()

    def close(self) -> None:
        """Close all engines and the ledger, once nothing runs."""
        for slot in self._all_slots:
            if slot.sources is not None:
                slot.engine.close()
        if self._sources is not None:
            self._sources.engine.close()
            if self._sources.ledger is not None:
                self._sources.ledger.close()

    # Planning

    def plan(self, analyst: str, sql: str, **arguments: Any) -> AnyPlan:
        """Plan a query; what cannot be measured is refused now, not after the charge."""
        plan = self.dataset_of(analyst).sql(sql, **arguments)
        str(plan)
        return plan

    def question_key(self, plan: AnyPlan) -> str:
        """The key under which the ledger knows the question."""
        return digest([fingerprint_plan(plan, self.sources.origin), self.sources.version])

    def find_outcome(self, analyst: str, plan: AnyPlan) -> tuple[Entry | None, str | None]:
        """Return the charge of a question and its stored outcome, if this analyst made or paid for it.

        Guarantee: a question that only others asked looks like one that nobody asked.
        """
        account = self.account_of(analyst)
        number = account.find_charge(self.question_key(plan))
        if number is None:
            return None, None
        try:
            return account.entry(number), account.get_release(number)
        except HubbubError:  # another analyst's, or not authentic: asking it costs something
            return None, None

    # Running

    def start(
        self,
        run: Run,
        analyst: str,
        plan: AnyPlan,
        *,
        again: bool = False,
        check: Callable[[], None] = lambda: None,
        on_charge: Callable[[Charge], None] = lambda _: None,
    ) -> None:
        """Charge, run and store a question; blocks until its slot is free again. `run` says what came out.

        Args:
            run: is told the outcome, and when it may leave.
            analyst: who asks; empty for the owner.
            plan: made by `plan` for the same analyst.
            again: charge anew a question that failed.
            check: is called when the question's turn has come, and refuses what is no longer allowed.
            on_charge: is told of a new charge before it runs; what it raises is ignored.

        Guarantee: with a new charge, the outcome is stored and may leave at moments that are fixed when the
            charge is made, whatever the rows are, and the slot is given back no earlier.
        Proof: docs/proofs/deadlines.md
        """
        slots: list[_Slot] = []

        def host(charge: Charge, compute: Callable[[Engine], str]) -> str:
            run.charge = charge
            with suppress(HubbubError):
                on_charge(charge)
            if not slots:  # an earlier charge of this question was lost
                try:
                    slots.append(self._take_slot())
                except Unavailable:
                    raise _failed_error() from None  # it is charged
            return self._hold(run, slots[0].engine, analyst, charge, compute)

        try:
            # A question that was asked before needs no engine.
            if again or self.account.find_charge(self.question_key(plan)) is None:
                slots.append(self._take_slot())
            check()
            run.finish(self.dataset_of(analyst).run(plan, again=again, host=host))
        except HubbubError as error:
            run.finish(None, error)
        except BaseException:  # noqa: BLE001 - nothing of a foreign exception may be seen
            run.finish(None, _failed_error())
        finally:
            if slots:
                if run.leaves is not None:
                    self._stopping.wait(max(0.0, run.leaves - time.monotonic()))
                self._give_slot(slots[0])

    def _take_slot(self) -> _Slot:
        """Wait for a slot, first come, first served; open its engine if this is its first use."""
        place: SimpleQueue[_Slot | None] = SimpleQueue()
        with self._opening:
            if len(self._waiting) >= self.queue or self._stopping.is_set():
                raise _busy_error()
            if self._free:
                place.put(self._free.pop())
            else:
                self._waiting.append(place)
        slot = place.get()
        if slot is None:
            raise _busy_error()
        try:
            if slot.sources is None:
                slot.sources = self._open_again()
        except BaseException:
            self._give_slot(slot)
            raise
        return slot

    def _give_slot(self, slot: _Slot) -> None:
        """Give a slot to whoever waits longest."""
        with self._opening:
            if self._waiting:
                self._waiting.popleft().put(slot)
            else:
                self._free.append(slot)

    def _open_again(self) -> OpenedSources:
        """Open the same rows once more, with the ledger that is open."""
        first = self.sources
        ledger = first.ledger if first.ledger is not None else self.arguments.ledger
        sources = open_sources(replace(self.arguments, ledger=ledger))
        if sources.origin != first.origin or sources.version != first.version:
            sources.engine.close()
            raise Unavailable(
                "the data is not what was opened first", why="one question would have two answers",
                fix="restart the server",
            )  # fmt: skip
        return sources

    def _hold(
        self,
        run: Run,
        engine: Engine,
        analyst: str,
        charge: Charge,
        compute: Callable[[Engine], str],
    ) -> str:
        """Compute, and return or raise what came out at a moment that is fixed now."""
        if not run.seconds:
            return compute(engine)
        started = time.monotonic()
        run.leaves = started + run.seconds
        cut = run.leaves - min(run.seconds * _STORING_SHARE, _STORING_SECONDS)
        done = threading.Event()

        def stop_late() -> None:
            if done.wait(max(0.0, cut - time.monotonic())) or self._stopping.is_set():
                return
            # The first outcome that is recorded is the only one.
            error: HubbubError = _late_error()
            text = error_text(error)
            try:
                if self.account_of(analyst).record_release(charge.number, text) != text:
                    return  # it was finished at the last moment, and that was stored first
            except HubbubError as problem:
                error = problem if isinstance(problem, LedgerFailed) else error
            run.finish(None, error)
            while not done.wait(_INTERRUPT_SECONDS):
                engine.interrupt()

        watcher = threading.Thread(target=stop_late, name="hubbub-deadline", daemon=True)
        watcher.start()
        try:
            return compute(engine)
        finally:
            done.set()
            self._stopping.wait(max(0.0, cut - time.monotonic()))


def _late_error() -> EngineFailed:
    return EngineFailed(
        "the query was not finished in time",
        why="answers leave at public times, so that the time of a query tells nothing about rows; what was "
        "charged stays charged",
        fix="ask again with a later {deadline} and {again=True}, for another charge; or ask for less",
        parameter="deadline",
    )


def _failed_error() -> EngineFailed:
    return EngineFailed(
        "the question could not be answered",
        why="the cause may disclose rows, so it is not shown",
        fix="ask again; a question that was charged is not charged twice",
    )


def _busy_error() -> Unavailable:
    return Unavailable(
        "too many questions are waiting", why="each has its engine for a public time",
        fix="ask again later; nothing was charged",
    )  # fmt: skip
