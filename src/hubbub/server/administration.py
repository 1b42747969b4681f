"""Actions of owners: people and roles, grants to analysts, pauses, larger budgets, the audit log."""

import sqlite3
from fractions import Fraction
from typing import TYPE_CHECKING

from hubbub.accounting import Budget
from hubbub.errors import AccessDenied, InvalidInput, Unavailable
from hubbub.ledger.entries import Entry
from hubbub.ledger.verify import VerificationReport
from hubbub.noise.entropy import random_bytes
from hubbub.numbers import Number
from hubbub.server.service_types import AuditRecord, Principal, RaiseRequest, Role, Token
from hubbub.server.state import append_audit, moment, now

if TYPE_CHECKING:
    from hubbub.server.service import Service

__all__ = ["Administration"]


class Administration:
    """Calls for owners; each checks that its caller is one."""

    def __init__(self, service: "Service") -> None:
        self._service = service

    # People

    def people(self, principal: Principal, dataset: str) -> dict[str, Role]:
        """Return who has a role in a dataset."""
        self._service.authorize(principal, dataset, Role.OWNER)
        users = self._service.auth.users()
        return {name: roles[dataset] for name, roles in users.items() if dataset in roles}

    def set_role(self, principal: Principal, dataset: str, user: str, role: Role | None) -> None:
        """Give a user a role, or take it away; nobody changes a role of her own."""
        self._service.authorize(principal, dataset, Role.OWNER)
        if user == principal.user:
            raise AccessDenied(
                "this would change your own role", why="a dataset must not lose its last owner",
                fix="ask another owner", parameter="user",
            )  # fmt: skip
        self._service.auth.set_role(user, dataset, role, by=principal.user)

    def tokens(self, principal: Principal, dataset: str) -> list[Token]:
        """Return the tokens that can be used in a dataset, of all who have a role in it."""
        people = self.people(principal, dataset)
        every = self._service.auth.tokens()
        return [
            each
            for each in every
            if each.is_active and each.user in people and (each.datasets is None or dataset in each.datasets)
        ]

    def revoke_token(self, principal: Principal, dataset: str, token_id: str) -> None:
        """Revoke one of `tokens`."""
        if token_id not in {each.token_id for each in self.tokens(principal, dataset)}:
            raise InvalidInput(
                "there is no such token", why="it is for another dataset, or was revoked",
                fix="see the list of tokens", parameter="token_id",
            )  # fmt: skip
        self._service.auth.revoke_token(token_id, by=principal.user, user=None)

    # Budgets

    def grant(
        self, principal: Principal, dataset: str, analyst: str, epsilon: Number, delta: Number | None = None
    ) -> RaiseRequest | None:
        """Give an analyst a budget within the account's; what she has spent stays spent.

        The first grant takes one owner. A larger one takes a second owner's approval: then what is returned
        waits for `approve`. The account's own budget was fixed when it was opened, and is never raised.
        Without a δ, she has the one that she had; at first 0.
        """
        hosted, _ = self._service.authorize(principal, dataset, Role.OWNER)
        current = hosted.account.analysts().get(analyst)
        if delta is None:
            delta = 0 if current is None else current.delta
        new = Budget(epsilon, delta, population=hosted.sources.population)
        if self._service.auth.users().get(analyst, {}).get(dataset) is None:
            raise InvalidInput(
                "this user has no role in the dataset", why="only analysts have budgets",
                fix="make the user an analyst first", parameter="analyst",
            )  # fmt: skip
        is_larger = current is not None and (new.epsilon > current.epsilon or new.delta > current.delta)
        if is_larger and self._service.settings.second_approver:
            return self._request_raise(principal, dataset, analyst, new)
        self._grant(principal, dataset, analyst, new)
        return None

    def _grant(self, principal: Principal, dataset: str, analyst: str, budget: Budget) -> None:
        self._service.find(dataset).account.grant(analyst, budget)
        detail = {"analyst": analyst, "epsilon": str(budget.epsilon), "delta": str(budget.delta)}
        self._service.state.audit(principal.user, "grant", dataset, **detail)

    def _request_raise(
        self, principal: Principal, dataset: str, analyst: str, budget: Budget
    ) -> RaiseRequest:
        request_id, when = random_bytes(8).hex(), now()
        epsilon, delta = str(budget.epsilon), str(budget.delta)

        def work(connection: sqlite3.Connection) -> None:
            row = [request_id, dataset, analyst, epsilon, delta, principal.user, when]
            connection.execute("INSERT INTO raises VALUES (?, ?, ?, ?, ?, ?, ?)", row)
            append_audit(
                connection, principal.user, "request raise", dataset, analyst=analyst, epsilon=epsilon
            )

        self._service.state.write(work)
        return RaiseRequest(request_id, dataset, analyst, epsilon, delta, principal.user, moment(when))

    def raise_requests(self, principal: Principal, dataset: str) -> list[RaiseRequest]:
        """Return the larger budgets that wait for approval."""
        self._service.authorize(principal, dataset, Role.OWNER)
        rows = self._service.state.read(
            lambda connection: connection.execute(
                "SELECT * FROM raises WHERE dataset = ? ORDER BY created", [dataset]
            ).fetchall()
        )
        return [
            RaiseRequest(request_id, name, analyst, epsilon, delta, requester, moment(when))
            for request_id, name, analyst, epsilon, delta, requester, when in rows
        ]

    def approve(self, principal: Principal, dataset: str, request_id: str) -> None:
        """Approve a larger budget that another owner asked for; it holds from now on.

        Guarantee: no one owner raises a budget alone; a request is used once.
        """
        self._service.authorize(principal, dataset, Role.OWNER)
        if principal.token_id is not None:
            raise AccessDenied(
                "a token cannot approve", why="a person must approve this", fix="sign in with a password"
            )

        def work(connection: sqlite3.Connection) -> tuple[str, str, str]:
            row = connection.execute(
                "SELECT analyst, epsilon, delta, requester FROM raises WHERE id = ? AND dataset = ?",
                [request_id, dataset],
            ).fetchone()
            if row is None:
                raise InvalidInput(
                    "there is no such request", why="it was approved or refused",
                    fix="see the list of requests", parameter="request_id",
                )  # fmt: skip
            if row[3] == principal.user:
                raise AccessDenied(
                    "you asked for this yourself", why="a second person must approve it",
                    fix="ask another owner",
                )  # fmt: skip
            connection.execute("DELETE FROM raises WHERE id = ?", [request_id])
            append_audit(connection, principal.user, "approve raise", dataset, analyst=row[0], epsilon=row[1])
            return row[0], row[1], row[2]

        analyst, epsilon, delta = self._service.state.write(work)
        people = self._service.find(dataset).sources.population
        budget = Budget(
            Fraction(epsilon), Fraction(delta), population=people, allow_large_epsilon=True
        )  # fmt: skip
        self._grant(principal, dataset, analyst, budget)

    def refuse(self, principal: Principal, dataset: str, request_id: str) -> None:
        """Refuse a larger budget that somebody asked for."""
        self._service.authorize(principal, dataset, Role.OWNER)

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM raises WHERE id = ? AND dataset = ?", [request_id, dataset])
            append_audit(connection, principal.user, "refuse raise", dataset, request=request_id)

        self._service.state.write(work)

    # Pauses

    def pause(self, principal: Principal, dataset: str, user: str = "", *, is_paused: bool = True) -> None:
        """Let nobody ask, or one user, until the pause ends; plans and stored answers stay available."""
        self._service.authorize(principal, dataset, Role.OWNER)

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM pauses WHERE dataset = ? AND user = ?", [dataset, user])
            if is_paused:
                connection.execute("INSERT INTO pauses VALUES (?, ?)", [dataset, user])
            append_audit(connection, principal.user, "pause" if is_paused else "resume", dataset, user=user)

        self._service.state.write(work)

    def is_paused(self, dataset: str, user: str) -> bool:
        """Return whether a user may not ask at the moment."""

        def work(connection: sqlite3.Connection) -> bool:
            question = "SELECT 1 FROM pauses WHERE dataset = ? AND user IN ('', ?)"
            return connection.execute(question, [dataset, user]).fetchone() is not None

        return self._service.state.read(work)

    def paused_users(self, principal: Principal, dataset: str) -> set[str]:
        """Return the users who may not ask at the moment; an empty name stands for all."""
        self._service.authorize(principal, dataset, Role.OWNER)
        rows = self._service.state.read(
            lambda connection: connection.execute(
                "SELECT user FROM pauses WHERE dataset = ?", [dataset]
            ).fetchall()
        )
        return {user for (user,) in rows}

    def refuse_paused(self, dataset: str, user: str) -> None:
        """Refuse a question during a pause."""
        if self.is_paused(dataset, user):
            raise Unavailable(
                "the dataset is paused", why="its owner paused it",
                fix="ask later; plans and earlier answers are available",
            )  # fmt: skip

    # Records

    def audit(self, principal: Principal, dataset: str, *, limit: int = 1000) -> list[AuditRecord]:
        """Return the audit log, the latest first: what concerns the dataset, and what concerns all."""
        self._service.authorize(principal, dataset, Role.OWNER)
        return self._service.state.latest_audit_records(dataset, limit)

    def verify_audit(self, principal: Principal, dataset: str) -> list[str]:
        """Return what is wrong with the audit log; nothing, if it is as it was written."""
        self._service.authorize(principal, dataset, Role.OWNER)
        return self._service.state.verify_audit()

    def ledger_entries(self, principal: Principal, dataset: str, *, after: int = 0) -> list[Entry]:
        """Return the entries of the account, in order."""
        hosted, _ = self._service.authorize(principal, dataset, Role.OWNER)
        return list(hosted.account.entries(after))

    def verify_ledger(self, principal: Principal, dataset: str) -> VerificationReport:
        """Verify every entry, total and release of the ledger."""
        hosted, _ = self._service.authorize(principal, dataset, Role.OWNER)
        return hosted.verify()
