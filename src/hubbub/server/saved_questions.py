"""Saved questions, and releases that the owner published."""

import json
import sqlite3
from collections.abc import Sequence
from typing import TYPE_CHECKING

from hubbub.errors import AccessDenied, HubbubError, InvalidInput
from hubbub.noise.entropy import random_bytes
from hubbub.server.service_types import Principal, Publication, Question, Role, SavedQuestion
from hubbub.server.state import append_audit, moment, now

if TYPE_CHECKING:
    from hubbub.server.service import Service

__all__ = ["Library"]

_COLUMNS = "id, dataset, user, name, body, is_shared, updated"


class Library:
    """Saved questions and publications of a service."""

    def __init__(self, service: "Service") -> None:
        self._service = service

    # Saved questions

    def save(
        self, principal: Principal, dataset: str, name: str, question: Question, *, is_shared: bool = False
    ) -> SavedQuestion:
        """Save a question under a name, in place of one's own of that name. It never runs by itself."""
        self._service.authorize(principal, dataset, Role.ANALYST)
        if not name.strip() or len(name) > 100 or not name.isprintable():
            raise InvalidInput(
                "the name is empty, too long or not printable", why="people find the question by it",
                fix="use up to 100 characters", parameter="name",
            )  # fmt: skip
        body = json.dumps(question.to_dict(), ensure_ascii=True)
        row = [random_bytes(8).hex(), principal.user, dataset, name, body, int(is_shared), now()]

        def work(connection: sqlite3.Connection) -> str:
            connection.execute(
                "INSERT INTO questions VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (user, dataset, name) "
                "DO UPDATE SET body = excluded.body, is_shared = excluded.is_shared, "
                "updated = excluded.updated",
                row,
            )
            own = "SELECT id FROM questions WHERE user = ? AND dataset = ? AND name = ?"
            return str(connection.execute(own, [principal.user, dataset, name]).fetchone()[0])

        return self.saved_question(principal, dataset, self._service.state.write(work))

    def saved_questions(self, principal: Principal, dataset: str) -> list[SavedQuestion]:
        """Return one's own questions, and those that others share; the latest first."""
        self._service.authorize(principal, dataset, Role.ANALYST)
        rows = self._service.state.read(
            lambda connection: connection.execute(
                f"SELECT {_COLUMNS} FROM questions WHERE dataset = ? AND (user = ? OR is_shared) "  # noqa: S608 - our own names
                "ORDER BY updated DESC",
                [dataset, principal.user],
            ).fetchall()
        )
        return [_read_question(row) for row in rows]

    def saved_question(self, principal: Principal, dataset: str, question_id: str) -> SavedQuestion:
        """Return one of `saved_questions`."""
        every = self.saved_questions(principal, dataset)
        match = next((each for each in every if each.question_id == question_id), None)
        if match is None:
            raise _missing_question()
        return match

    def delete(self, principal: Principal, dataset: str, question_id: str) -> None:
        """Delete a saved question of one's own."""
        self._service.authorize(principal, dataset, Role.ANALYST)
        deleted = self._service.state.write(
            lambda connection: (
                connection.execute(
                    "DELETE FROM questions WHERE id = ? AND user = ? AND dataset = ?",
                    [question_id, principal.user, dataset],
                ).rowcount
            )
        )
        if not deleted:
            raise _missing_question()

    def find_questions(self, dataset: str, entries: Sequence[int]) -> dict[int, Question]:
        """Return the questions of charges, with their settings, where this server was asked."""
        out: dict[int, Question] = {}

        def work(connection: sqlite3.Connection) -> None:
            for entry in entries:
                row = connection.execute(
                    "SELECT body FROM asked WHERE dataset = ? AND entry = ?", [dataset, entry]
                ).fetchone()
                if row is not None:
                    out[entry] = Question.from_dict(json.loads(row[0]))

        self._service.state.read(work)
        return out

    # Publications

    def publish(self, principal: Principal, dataset: str, entry: int, title: str) -> None:
        """Show a stored answer to readers; on a public dataset, to everybody."""
        self._service.authorize(principal, dataset, Role.OWNER)
        self._service.stored_answer(principal, dataset, entry)  # only an answer can be published
        if not title.strip() or len(title) > 200 or not title.isprintable():
            raise InvalidInput(
                "the title is empty, too long or not printable", why="readers find the release by it",
                fix="use up to 200 characters", parameter="title",
            )  # fmt: skip

        def work(connection: sqlite3.Connection) -> None:
            row = [dataset, entry, title, now()]
            connection.execute("INSERT OR REPLACE INTO publications VALUES (?, ?, ?, ?)", row)
            append_audit(connection, principal.user, "publish", dataset, entry=entry)

        self._service.state.write(work)

    def withdraw(self, principal: Principal, dataset: str, entry: int) -> None:
        """Show a release no longer; whoever saw it has seen it."""
        self._service.authorize(principal, dataset, Role.OWNER)

        def work(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM publications WHERE dataset = ? AND entry = ?", [dataset, entry])
            append_audit(connection, principal.user, "withdraw", dataset, entry=entry)

        self._service.state.write(work)

    def published_entries(self, dataset: str) -> set[int]:
        """Return the entries of which answers are published."""
        rows = self._service.state.read(
            lambda connection: connection.execute(
                "SELECT entry FROM publications WHERE dataset = ?", [dataset]
            ).fetchall()
        )
        return {int(entry) for (entry,) in rows}

    def publications(self, dataset: str) -> list[Publication]:
        """Return what is published of a dataset; for the service's own parts, which check who asks."""
        rows = self._service.state.read(
            lambda connection: connection.execute(
                "SELECT entry, title, published FROM publications WHERE dataset = ? ORDER BY published DESC",
                [dataset],
            ).fetchall()
        )
        hosted = self._service.find(dataset)
        out = []
        for entry, title, when in rows:
            try:
                answer = self._service.load_answer(hosted, hosted.account, hosted.account.entry(entry))
            except HubbubError:
                continue  # the ledger was restored from before it, or its key is gone
            out.append(Publication(dataset, entry, title, answer.sql, moment(when), answer.result))
        return out

    def read(self, principal: Principal, dataset: str) -> list[Publication]:
        """Return what is published of a dataset, to readers; of a public one, to everybody."""
        hosted = self._service.find(dataset) if dataset in self._service.names() else None
        if hosted is None or not hosted.is_public:
            self._service.authorize(principal, dataset, Role.READER)
        else:
            self._service.limit_rate(principal)
        return self.publications(dataset)

    def read_one(self, principal: Principal, dataset: str, entry: int) -> Publication:
        """Return one of `read`."""
        match = next((each for each in self.read(principal, dataset) if each.entry == entry), None)
        if match is None:
            raise AccessDenied(
                "there is no such publication", why="it was not published, or was withdrawn",
                fix="see the list of publications", parameter="entry",
            )  # fmt: skip
        return match

    def public_datasets(self) -> list[str]:
        """Return the names of datasets of which everybody may see the publications."""
        return [name for name in self._service.names() if self._service.find(name).is_public]


def _read_question(row: tuple[str, str, str, str, str, int, float]) -> SavedQuestion:
    question_id, dataset, user, name, body, is_shared, updated = row
    question = Question.from_dict(json.loads(body))
    return SavedQuestion(question_id, dataset, user, name, question, bool(is_shared), moment(updated))


def _missing_question() -> InvalidInput:
    return InvalidInput(
        "there is no such saved question", why="it is not yours, or was deleted",
        fix="see the list of saved questions", parameter="question_id",
    )  # fmt: skip
