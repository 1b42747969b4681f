"""One service layer for all doors: sign in, describe, plan, ask, history, budget, label.

A door identifies somebody by `auth` (a password, a token, SCRAM, a session), which gives a `Principal`, and
passes it to every call. Each call checks anew what she may do: no door decides that.

All methods but `ask` and `call` block, and are safe to call from any thread; a door that is asynchronous runs
them in worker threads:

    report = await service.call(service.plan, principal, "visits", Question("SELECT …", epsilon="0.1"))
    answer = await service.ask(principal, "visits", Question("SELECT …", epsilon="0.1"))

`plan` is free and reads no row. Only `ask` charges; the same question again is free. Every error is a
`HubbubError` that holds no data; `descriptions.status_of` names its HTTP status and its code.
"""

import asyncio
import json
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from hubbub.config import read_config
from hubbub.errors import (
    AccessDenied,
    BudgetExceeded,
    HubbubError,
    InvalidInput,
    LedgerFailed,
    Refused,
    Unavailable,
)
from hubbub.ledger import LedgerAccount
from hubbub.ledger.account import Charge
from hubbub.ledger.entries import ERROR_PREFIX, OWNER, Entry, EntryKind, read_loss
from hubbub.ledger.stored_outcomes import load_outcome
from hubbub.numbers import format_down, format_up
from hubbub.release import Release
from hubbub.report.history import History
from hubbub.report.label import label
from hubbub.server.administration import Administration
from hubbub.server.auth import Auth
from hubbub.server.descriptions import describe_table, result_columns, with_text, without_text
from hubbub.server.hosted_dataset import HostedDataset, Run, choose_deadline
from hubbub.server.request_keys import RequestKeys
from hubbub.server.saved_questions import Library
from hubbub.server.service_types import (
    Answer,
    BudgetReport,
    DatasetDescription,
    DatasetSummary,
    HistoryItem,
    PlanReport,
    Principal,
    Question,
    ResultColumnDescription,
    Role,
)
from hubbub.server.settings import ServerSettings, read_settings
from hubbub.server.state import State, append_audit
from hubbub.sql.composite_plan import AnyPlan, CompositePlan, load_tables
from hubbub.sql.explain import with_estimated_cuts
from hubbub.sql.function_list import FunctionEntry, list_entries
from hubbub.sql.parser import without_options
from hubbub.sql.result import Result

__all__ = ["Service"]

_P = ParamSpec("_P")
_T = TypeVar("_T")
_MAX_SQL = 100_000
_REFUSALS = (AccessDenied, BudgetExceeded, Unavailable)
"""Errors of a question that is not charged, and may be accepted when it is asked again."""


class Service:
    """Datasets, people and budgets behind all doors.

    Args:
        datasets: what is served.
        state: the server's own file.
        settings: of the process.
    """

    def __init__(self, datasets: Sequence[HostedDataset], state: State, settings: ServerSettings) -> None:
        self.settings = settings
        self.state = state
        self.auth = Auth(state, scrypt_cost=settings.scrypt_cost)
        self.administration = Administration(self)
        self.library = Library(self)
        self._keys = RequestKeys(state)
        self._hosted = {each.name: each for each in datasets}
        self._quick = ThreadPoolExecutor(16, thread_name_prefix="hubbub-service")
        self._asking = ThreadPoolExecutor(settings.queue + 64, thread_name_prefix="hubbub-ask")
        self._buckets: dict[str, tuple[float, float]] = {}
        self._bucket_lock = threading.Lock()
        if len(self._hosted) != len(datasets):
            raise InvalidInput(
                "two datasets have one name", why="questions could not tell them apart",
                fix="give one another name, as name in [server]",
            )  # fmt: skip

    @classmethod
    def open(cls, *files: str | Path) -> "Service":
        """Make the service of one or more hubbub.toml; settings of the process come from the first."""
        configs = [read_config(file) for file in files]
        settings = [read_settings(config) for config in configs]
        hosted = [HostedDataset.declared(*pair, settings[0]) for pair in zip(configs, settings, strict=True)]
        return cls(hosted, State(settings[0].state), settings[0])

    async def call(self, method: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run a blocking method of the service in a worker thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._quick, lambda: method(*args, **kwargs))

    def close(self) -> None:
        """Stop what runs, and close engines, ledgers and the server's file."""
        for each in self._hosted.values():
            each.stop()
        # Outcomes are stored before the ledger is closed.
        self._asking.shutdown(wait=True, cancel_futures=True)
        self._quick.shutdown(wait=True, cancel_futures=True)
        for each in self._hosted.values():
            each.close()
        self.state.close()

    # Who may do what

    def find(self, dataset: str) -> HostedDataset:
        """Return a dataset by name; for the service's own parts, which check who asks."""
        hosted = self._hosted.get(dataset)
        if hosted is None:
            raise _missing_error()
        return hosted

    def names(self) -> list[str]:
        """Return the names of all datasets."""
        return list(self._hosted)

    def authorize(self, principal: Principal, dataset: str, role: Role) -> tuple[HostedDataset, Role]:
        """Return the dataset and what somebody may do with it now; refuse less than `role`.

        Guarantee: a dataset in which she has no role is refused as one that does not exist.
        """
        current = self._require_role(principal, dataset, role)
        self.limit_rate(principal)
        return self._hosted[dataset], current

    def _require_role(self, principal: Principal, dataset: str, role: Role) -> Role:
        current = self.auth.roles(principal).get(dataset)
        if current is None or dataset not in self._hosted:
            raise _missing_error()
        if current.rank < role.rank:
            raise AccessDenied(
                f"only an {role} may do this", why="roles protect the budget and other people's questions",
                fix="ask the owner of the dataset",
            )  # fmt: skip
        return current

    def payer(self, principal: Principal, dataset: str) -> str:
        """Return the analyst who pays for a user, by name; empty for an owner, also through a token."""
        own = self.auth.roles(Principal(principal.user)).get(dataset)
        return OWNER if own is Role.OWNER else principal.user

    def limit_rate(self, principal: Principal) -> None:
        """Refuse too many requests of one user, or of all who have not signed in; in this process only."""
        most = self.settings.requests_per_minute
        with self._bucket_lock:
            level, when = self._buckets.get(principal.user, (float(most), time.monotonic()))
            level = min(float(most), level + (time.monotonic() - when) * most / 60)
            if level < 1:
                raise Unavailable(
                    "there were too many requests",
                    why="each user has a limit",
                    fix="wait a minute",
                    parameter="requests_per_minute",
                )
            self._buckets[principal.user] = (level - 1, time.monotonic())

    # Reading what is declared

    def datasets(self, principal: Principal) -> list[DatasetSummary]:
        """Return the datasets in which somebody has a role."""
        self.limit_rate(principal)
        out = []
        for name, role in self.auth.roles(principal).items():
            if name in self._hosted:
                sources = self._hosted[name].sources
                tables = tuple(sources.engine.tables)
                paused = self.administration.is_paused(name, principal.user)
                out.append(DatasetSummary(name, role, str(sources.unit), tables, paused))
        return out

    def describe(self, principal: Principal, dataset: str) -> DatasetDescription:
        """Return what is declared of a dataset: tables, columns, unit, bounds, keys. Never rows."""
        hosted, role = self.authorize(principal, dataset, Role.READER)
        sources = hosted.sources
        return DatasetDescription(
            dataset,
            role,
            str(sources.unit),
            sources.unit.key,
            sources.unit.neighbours.value,
            tuple(describe_table(table) for table in sources.engine.tables.values()),
            sources.arguments.rows_per_unit,
            sources.arguments.groups_per_unit,
            sources.population,
            sources.version,
            hosted.about,
            hosted.deadlines,
            self.administration.is_paused(dataset, principal.user),
        )

    def functions(self) -> Sequence[FunctionEntry]:
        """Return the SQL functions that are accepted, with their kinds; the same for every dataset."""
        return list(list_entries())

    # Planning and asking

    def plan(self, principal: Principal, dataset: str, question: Question) -> PlanReport:
        """Plan a question: its cost, its expected error and the columns of its answer. Free; reads no row."""
        hosted, _ = self.authorize(principal, dataset, Role.ANALYST)
        payer = self.payer(principal, dataset)
        question = self._with_defaults(question)
        plan = _make_plan(hosted, payer, question)
        seconds = choose_deadline(plan, hosted.deadlines, question.deadline)
        account = hosted.account_of(payer)
        return PlanReport(
            dataset,
            question,
            format_up(plan.epsilon),
            format_up(plan.delta),
            plan.loss,
            result_columns(plan),
            {output.name: error for output, error in plan.errors},
            tuple(note.strip() for note in plan.notes()),
            str(plan),
            plan.explain(),
            plan.label(),
            seconds,
            account.count_more(plan.loss),
            hosted.find_outcome(payer, plan)[0] is not None,  # not what others asked
            plan.query.is_keyed,
            plan.query.is_top,
        )

    def columns(
        self, principal: Principal, dataset: str, question: Question
    ) -> tuple[ResultColumnDescription, ...]:
        """Return the columns of the answer to a question, as `plan` does, without figures and words."""
        hosted, _ = self.authorize(principal, dataset, Role.ANALYST)
        payer = self.payer(principal, dataset)
        return result_columns(_make_plan(hosted, payer, self._with_defaults(question)))

    async def ask(
        self,
        principal: Principal,
        dataset: str,
        question: Question,
        *,
        again: bool = False,
        idempotency_key: str | None = None,
    ) -> Answer:
        """Charge and run a question, and return its stored answer at its public deadline.

        The same question again is free, for everybody who paid for it. A client that goes away does not stop
        it: its outcome is stored, and asking again returns it. An error after the charge is the stored
        outcome of that charge, and leaves at the same moment as an answer.

        Args:
            principal: who asks.
            dataset: the name of the dataset.
            question: the query and its price.
            again: if the stored outcome is a failure, charge the question again and run it.
            idempotency_key: one's own name for this request: a repetition is never `again`, and another
                request under the same key is refused. What was refused without a charge does not count.

        Guarantee: the charge stands before the engine sees the query, and the outcome before anybody sees it;
            one outcome per charge; the moment at which it leaves does not depend on rows.
        Proof: docs/proofs/ledger.md, "One outcome per charge"; docs/proofs/deadlines.md
        """
        loop = asyncio.get_running_loop()
        run = await self.call(self._prepare, principal, dataset, question, again, idempotency_key)
        if isinstance(run, Answer):
            return run
        state, work = run
        loop.run_in_executor(self._asking, work)
        # Shielded: who goes away does not stop a question that is charged.
        future = asyncio.shield(asyncio.wrap_future(state.outcome))
        try:
            release = await future
        finally:
            if state.leaves is not None:
                await asyncio.sleep(max(0.0, state.leaves - time.monotonic()))
        await self.call(self._require_role, principal, dataset, Role.ANALYST)
        return await self.call(self._make_answer, dataset, question, release)

    def _prepare(
        self,
        principal: Principal,
        dataset: str,
        question: Question,
        again: bool,  # noqa: FBT001 - passed on by `call`
        key: str | None,
    ) -> Answer | tuple[Run, Callable[[], None]]:
        """Check everything that can be checked before the charge; return what remains, or a stored answer."""
        hosted, _ = self.authorize(principal, dataset, Role.ANALYST)
        self.administration.refuse_paused(dataset, principal.user)
        payer = self.payer(principal, dataset)
        question = self._with_defaults(question)
        plan = _make_plan(hosted, payer, question)
        run = Run(choose_deadline(plan, hosted.deadlines, question.deadline))
        request = [dataset, question.to_dict(), again]
        since = None if key is None else self._keys.remember(principal.user, key, request)
        is_repetition = key is not None and since is None
        again = again and not is_repetition
        paid, stored = hosted.find_outcome(payer, plan)
        # Who has not paid for a failure pays for seeing it, and no more; what runs is waited for.
        again = again and stored is not None
        if paid is not None and stored is not None and not again:
            return self._load(hosted, (paid, stored), question, plan, payer)

        def check() -> None:
            self._require_role(principal, dataset, Role.ANALYST)
            self.administration.refuse_paused(dataset, principal.user)
            if self.payer(principal, dataset) != payer:
                raise _missing_error()

        def settle_key(outcome: Future[Release[Result]]) -> None:
            is_refused = run.charge is None and isinstance(outcome.exception(), _REFUSALS)
            with suppress(HubbubError):
                if key is not None and since is not None and is_refused:
                    self._keys.forget(principal.user, key, since)
                elif key is not None and is_repetition and not is_refused:
                    self._keys.confirm(principal.user, key, request)

        def record(charge: Charge) -> None:
            if key is not None and is_repetition:  # the first one may be refused meanwhile
                self._keys.confirm(principal.user, key, request)
            self._record_question(principal, dataset, charge.number, question)

        def work() -> None:
            try:
                self.auth.reserve(principal, plan.epsilon)
            except HubbubError as error:
                run.finish(None, error)
                return
            hosted.start(run, payer, plan, again=again, check=check, on_charge=record)
            seen = None if paid is not None or payer == OWNER else hosted.find_outcome(payer, plan)[0]
            pays_for_view = seen is not None and seen.analyst != payer
            if run.charge is None and not pays_for_view:
                self.auth.reserve(principal, -plan.epsilon)

        run.outcome.add_done_callback(settle_key)  # the first callback, so before anybody sees the outcome
        return run, work

    def _with_defaults(self, question: Question) -> Question:
        if len(question.sql) > _MAX_SQL:
            raise InvalidInput(
                "the text is too long", why="queries are short", fix=f"use at most {_MAX_SQL:,} characters",
                parameter="sql",
            )  # fmt: skip
        if question.epsilon is not None or question.error is not None:
            return question
        try:
            _, options, _ = without_options(question.sql)
        except HubbubError:
            return question  # the planner says what is wrong with them
        # GoogleSQL's OPTIONS in the text win over the server's default.
        return question if options.epsilon is not None else replace(question, epsilon=self.settings.epsilon)

    def _record_question(self, principal: Principal, dataset: str, entry: int, question: Question) -> None:
        def work(connection: sqlite3.Connection) -> None:
            body = json.dumps(question.to_dict(), ensure_ascii=True)
            connection.execute("INSERT OR REPLACE INTO asked VALUES (?, ?, ?)", [dataset, entry, body])
            append_audit(connection, principal.user, "ask", dataset, entry=entry, token=principal.token_id)

        self.state.write(work)

    def _make_answer(self, dataset: str, question: Question, release: Release[Result]) -> Answer:
        facts = release.value.facts
        is_new = not facts["asked before"]
        result = release.value if is_new else with_text(release.value, question.sql)
        entry, when = int(facts["entry"]), str(facts["as of"])
        return Answer(dataset, question.sql, entry, when, is_new, result, release.loss, question)

    # What was asked

    def history(
        self,
        principal: Principal,
        dataset: str,
        *,
        before: int | None = None,
        limit: int = 100,
        containing: str = "",
    ) -> list[HistoryItem]:
        """Return charged questions, the latest first: one's own, and all for the owner.

        Args:
            principal: who looks.
            dataset: the name of the dataset.
            before: only entries with smaller numbers, for the next page.
            limit: the most items to return.
            containing: only questions that contain this text, in capitals or not.
        """
        hosted, role = self.authorize(principal, dataset, Role.ANALYST)
        payer = self.payer(principal, dataset)
        account = hosted.account_of(payer)
        published = self.library.published_entries(dataset)
        outcomes, viewed = set[int](), set[int]()
        charges: list[Entry] = []
        for entry in account.entries():
            if entry.kind == EntryKind.RELEASE:
                outcomes.add(int(entry.body["charge"]))
            elif entry.kind == EntryKind.CHARGE and (role is Role.OWNER or entry.analyst == payer):
                charges.append(entry)
            elif entry.kind == EntryKind.VIEW and entry.analyst == payer:
                # She paid for what somebody else had asked: to her it is a question of her own.
                seen = without_text(account.entry(int(entry.body["charge"])))
                charges.append(replace(seen, analyst=payer, timestamp=entry.timestamp))
                viewed.add(seen.number)
                outcomes.add(seen.number)
        charges.sort(key=lambda each: each.number)
        words = containing.lower()
        matching = (
            each
            for each in reversed(charges)
            if (before is None or each.number < before) and words in str(each.body["description"]).lower()
        )
        chosen = list(islice(matching, limit))
        questions = self.library.find_questions(dataset, [each.number for each in chosen])
        return [
            HistoryItem(
                dataset,
                entry.number,
                entry.analyst,
                entry.timestamp,
                str(entry.body["description"]),
                str(read_loss(entry.body["loss"])),
                _outcome_word(account, entry.number) if entry.number in outcomes else "none",
                None if entry.number in viewed else questions.get(entry.number),
                entry.number in published,
            )
            for entry in chosen
        ]

    def stored_answer(self, principal: Principal, dataset: str, entry: int) -> Answer:
        """Return a stored answer again, or raise the stored error; free. One's own, or any for the owner."""
        hosted, role = self.authorize(principal, dataset, Role.ANALYST)
        payer = self.payer(principal, dataset)
        account = hosted.account_of(payer)
        try:
            charge = account.entry(entry)
        except (LedgerFailed, Refused):  # there is none of this number, or it is another analyst's
            raise _missing_entry() from None
        is_own = role is Role.OWNER or charge.analyst == payer or payer != OWNER
        if charge.kind != EntryKind.CHARGE or charge.account != account.name or not is_own:
            raise _missing_entry()
        return self.load_answer(hosted, account, charge)

    def load_answer(self, hosted: HostedDataset, account: LedgerAccount, entry: Entry) -> Answer:
        """Read the stored outcome of a charge, which the caller may see, without charging anything."""
        stored = account.get_release(entry.number)
        if stored is None:
            raise InvalidInput(
                "the question has no outcome yet", why="it is running, or its outcome was lost in a crash",
                fix="look again later, or ask it again: then it is charged again", parameter="entry",
            )  # fmt: skip
        question = self.library.find_questions(hosted.name, [entry.number]).get(entry.number)
        if account.analyst not in {OWNER, entry.analyst}:
            question, entry = None, without_text(entry)
        plan = _plan_again(hosted, entry, question)
        return self._load(hosted, (entry, stored), question, plan, account.analyst)

    def _load(
        self,
        hosted: HostedDataset,
        outcome: tuple[Entry, str],
        question: Question | None,
        plan: AnyPlan | None,
        reader: str,
    ) -> Answer:
        entry, stored = outcome
        sql = str(entry.body["description"]) if question is None else question.sql
        result = _evaluate(plan, load_outcome(stored))
        if reader not in {OWNER, entry.analyst}:
            result = with_text(result, sql)
        when = {"as of": entry.timestamp, "version": hosted.sources.version, "asked before": True}
        facts = {**result.facts, "entry": entry.number, **when}
        if hosted.sources.unit.window is not None:
            facts["lifetime"] = hosted.account.lifetime_loss().describe()
        loss = read_loss(entry.body["loss"])
        answer = replace(result, facts=facts)
        return Answer(
            hosted.name, sql, entry.number, entry.timestamp, is_new=False, result=answer, loss=loss,
            question=question,
        )  # fmt: skip

    def budget(self, principal: Principal, dataset: str) -> BudgetReport:
        """Return what a budget was, what is spent and what is left: one's own, or the account's."""
        hosted, role = self.authorize(principal, dataset, Role.ANALYST)
        payer = self.payer(principal, dataset)
        account = hosted.account_of(payer)
        history = History.of(account)
        total, left = history.total, account.remaining()
        spent = total.spent()
        analysts = {
            name: (format_up(each.epsilon), format_up(each.spent().epsilon), format_up(each.delta))
            for name, each in (account.analysts() if role is Role.OWNER else {}).items()
        }
        return BudgetReport(
            dataset,
            payer,
            format_up(total.epsilon),
            format_up(total.delta),
            format_up(spent.epsilon),
            format_up(spent.delta),
            format_down(left.epsilon),
            format_down(left.delta),
            history.count,
            history.more_like_the_last(account),
            analysts,
            self.administration.is_paused(dataset, principal.user),
        )

    def label(self, principal: Principal, dataset: str) -> Mapping[str, Any]:
        """Return the privacy label; who is no owner sees neither analysts nor their questions.

        On a public dataset everybody may see it, also without signing in.
        """
        self.limit_rate(principal)
        role = self.auth.roles(principal).get(dataset) if principal.user else None
        hosted = self._hosted.get(dataset)
        if hosted is None or (role is None and not hosted.is_public):
            raise _missing_error()
        facts = label(hosted.account, hosted.about)
        if role is not Role.OWNER:
            # The head changes when an outcome is stored; questions and budgets of analysts are theirs.
            private = {"releases", "restores", "analysts", "head", "entries", "burn-down"}
            facts = {name: value for name, value in facts.items() if name not in private}
        return facts


def _make_plan(hosted: HostedDataset, payer: str, question: Question) -> AnyPlan:
    return hosted.plan(payer, question.sql, **question.arguments())


def _plan_again(hosted: HostedDataset, entry: Entry, question: Question | None) -> AnyPlan | None:
    """The plan of a question that was charged; None if it is not known, or the declaration has changed."""
    if question is None:
        return None
    try:
        plan = _make_plan(hosted, entry.analyst, question)
    except HubbubError:
        return None
    return plan if hosted.question_key(plan) == entry.body.get("key") else None


def _evaluate(plan: AnyPlan | None, text: str) -> Result:
    """The answer of a stored text: with the SQL over what was released, where the plan is known."""
    if plan is None:
        stored = json.loads(text)
        return Result.from_json(json.dumps(stored["tables"][0]) if "tables" in stored else text)
    parts = plan.parts if isinstance(plan, CompositePlan) else (plan,)
    tables = [
        replace(table, facts=with_estimated_cuts(table.facts, part))
        for part, table in zip(parts, load_tables(plan, text), strict=True)
    ]
    return plan.evaluate(tables) if isinstance(plan, CompositePlan) else tables[0]


def _outcome_word(account: LedgerAccount, number: int) -> str:
    stored = account.get_release(number) or ""
    return "error" if stored.startswith(ERROR_PREFIX) else "answer"


def _missing_error() -> AccessDenied:
    return AccessDenied(
        "there is no such dataset, or you have no role in it", why="names cannot be guessed",
        fix="see the list of your datasets, or ask its owner", parameter="dataset",
    )  # fmt: skip


def _missing_entry() -> AccessDenied:
    return AccessDenied(
        "there is no such question, or it is not yours", why="numbers cannot be guessed",
        fix="see your history for the numbers of entries", parameter="entry",
    )  # fmt: skip
