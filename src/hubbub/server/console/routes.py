"""The console's routes: who is there, what a form says, which call of the service it means."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from hubbub.errors import AccessDenied, EngineFailed, HubbubError, InvalidInput
from hubbub.report.label_pages import label_html
from hubbub.server.auth import Session
from hubbub.server.console import answer_pages, owner_pages, pages, question_pages, texts
from hubbub.server.console.dry_run import run_dry
from hubbub.server.console.forms import (
    FIELDS,
    check_origin,
    check_token,
    find_local_path,
    read_form,
    read_question,
)
from hubbub.server.console.layout import Frame, address
from hubbub.server.console.question_pages import Editor
from hubbub.server.cookies import clear_session, read_session, set_session
from hubbub.server.descriptions import status_of
from hubbub.server.rest import render_result
from hubbub.server.service import Service
from hubbub.server.service_types import Principal, Question, Role, parse_number

__all__ = ["make_console_routes"]

_T = TypeVar("_T")
_PAGE = 50
_FORMS = {"csv", "json", "parquet", "svg"}
_STATIC = {
    "style.css": "text/css; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "htmx.min.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}
_HEADERS = {"referrer-policy": "same-origin"}
"""With "no-referrer" browsers would send `Origin: null` from our own forms."""
_STYLED = {"content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; img-src data:"}
"""For documents with a style of their own, and nothing to run: the label, and charts."""


@dataclass(frozen=True)
class _Visit:
    """One request: by whom, and what its form says."""

    request: Request
    session: Session | None
    form: dict[str, str] = field(default_factory=dict)

    @property
    def principal(self) -> Principal:
        return Principal.anonymous() if self.session is None else self.session.principal

    @property
    def dataset(self) -> str:
        return str(self.request.path_params["dataset"])

    @property
    def entry(self) -> int:
        return int(self.request.path_params["entry"])

    @property
    def values(self) -> dict[str, str]:
        """The fields of the editor: from a form, or from a permalink."""
        source = self.form or dict(self.request.query_params)
        return {name: source[name][:100_001] for name in ("sql", *FIELDS) if name in source}

    def frame(self, tab: str = "") -> Frame:
        dataset = self.request.path_params.get("dataset") if tab else None
        role = None if dataset is None else self.principal.roles.get(dataset)
        return Frame(self.session, dataset, role, tab)


Handler = Callable[[_Visit], Awaitable[Response]]


def make_console_routes(service: Service) -> list[BaseRoute]:
    """Return the routes of the console."""
    door = _Console(service)
    dataset = "/datasets/{dataset}"
    answer = f"{dataset}/answers/{{entry:int}}"
    public = "/public/{dataset}"
    open_to_all: dict[str, dict[str, Handler]] = {
        "/": {"GET": door.start},
        "/sign-in": {"GET": door.show_sign_in, "POST": door.sign_in},
        "/public": {"GET": door.public},
        public: {"GET": door.public_dataset},
        f"{public}/label": {"GET": door.label},
        f"{public}/{{entry:int}}.{{form}}": {"GET": door.publication_file},
        f"{public}/{{entry:int}}": {"GET": door.publication},
    }
    for_users: dict[str, dict[str, Handler]] = {
        "/sign-out": {"POST": door.sign_out},
        "/datasets": {"GET": door.datasets},
        "/tokens": {"GET": door.tokens, "POST": door.make_token},
        "/tokens/{token_id}/revoke": {"POST": door.revoke_token},
        dataset: {"GET": door.editor, "POST": door.submit},
        f"{dataset}/plan": {"POST": door.plan},
        f"{answer}.{{form}}": {"GET": door.answer_file},
        answer: {"GET": door.answer},
        f"{answer}/publication": {"POST": door.publish},
        f"{dataset}/history": {"GET": door.history},
        f"{dataset}/saved": {"GET": door.saved, "POST": door.save},
        f"{dataset}/saved/{{question_id}}/delete": {"POST": door.delete},
        f"{dataset}/label": {"GET": door.label},
        f"{dataset}/manage": {"GET": door.manage, "POST": door.change},
    }
    routes: list[BaseRoute] = [Route("/static/{name}", _serve_file, methods=["GET"])]
    for table, needs_user in ((open_to_all, False), (for_users, True)):
        for path, handlers in table.items():
            endpoint = door.dispatch(handlers, needs_user=needs_user)
            routes.append(Route(path, endpoint, methods=list(handlers)))
    return routes


@cache
def _read_file(name: str) -> bytes:
    return files("hubbub.server.console").joinpath("static", name).read_bytes()


async def _serve_file(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _STATIC:
        raise HTTPException(404)
    headers = {"cache-control": "public, max-age=3600"}
    return Response(_read_file(name), media_type=_STATIC[name], headers=headers)


class _Console:
    def __init__(self, service: Service) -> None:
        self._service = service

    # All requests

    def dispatch(
        self, handlers: dict[str, Handler], *, needs_user: bool
    ) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that finds out who is there, checks forms, and shows errors as pages."""

        async def endpoint(request: Request) -> Response:
            visit = _Visit(request, None)
            try:
                visit = replace(visit, session=await read_session(request, self._service))
                if request.method == "POST":
                    check_origin(request)
                    visit = replace(visit, form=await read_form(request))
                if needs_user and visit.session is None:
                    response = self._ask_to_sign_in(visit)
                else:
                    if request.method == "POST" and visit.session is not None:
                        check_token(visit.session, visit.form)
                    handler = handlers["GET" if request.method == "HEAD" else request.method]
                    response = await handler(visit)
            except HubbubError as error:
                response = _show_error(visit, error)
            for name, value in _HEADERS.items():
                response.headers.setdefault(name, value)
            return response

        return endpoint

    async def _call(self, method: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
        return await self._service.call(method, *arguments, **options)

    async def _call_for(
        self, method: Callable[..., _T], visit: _Visit, *arguments: Any, **options: Any
    ) -> _T:
        return await self._call(method, visit.principal, visit.dataset, *arguments, **options)

    # Signing in

    async def start(self, visit: _Visit) -> Response:
        if visit.session is None:
            return self._show_sign_in("/")
        return await self.datasets(visit)

    async def show_sign_in(self, visit: _Visit) -> Response:
        target = find_local_path(visit.request.query_params.get("next", "/"))
        return self._show_sign_in(target)

    def _show_sign_in(self, target: str, error: HubbubError | None = None, user: str = "") -> Response:
        has_provider = self._service.settings.oidc is not None
        page = pages.render_sign_in(target, error, user, has_provider=has_provider)
        return HTMLResponse(page, 200 if error is None else status_of(error)[0])

    async def sign_in(self, visit: _Visit) -> Response:
        form, client = visit.form, visit.request.client
        target, user = find_local_path(form.get("next", "/")), form.get("user", "").strip()
        source = "" if client is None else client.host
        auth = self._service.auth
        try:
            principal = await self._call(auth.sign_in, user, form.get("password", ""), source)
        except HubbubError as error:
            return self._show_sign_in(target, error, user)
        if visit.session is not None:
            await self._call(auth.end_session, visit.session)
        session = await self._call(auth.start_session, principal)
        response = RedirectResponse(target, 303)
        set_session(response, session)
        return response

    def _ask_to_sign_in(self, visit: _Visit) -> Response:
        """Pages lead to the form; what was typed into another form waits there, in the editor's fields."""
        url = visit.request.url
        path = url.path + (f"?{url.query}" if url.query else "")
        if visit.request.method != "POST":
            return RedirectResponse(address("sign-in", next=path), 303)
        dataset = visit.request.path_params.get("dataset")
        target = "/" if dataset is None else address("datasets", dataset, **visit.values)
        error = AccessDenied(
            "nobody is signed in", why="the session ended, or there was none", fix="sign in",
            parameter="authorization",
        )  # fmt: skip
        return self._show_sign_in(target, error)

    async def sign_out(self, visit: _Visit) -> Response:
        assert visit.session is not None
        await self._call(self._service.auth.end_session, visit.session)
        response = RedirectResponse("/", 303)
        clear_session(response)
        return response

    async def datasets(self, visit: _Visit) -> Response:
        summaries = await self._call(self._service.datasets, visit.principal)
        return HTMLResponse(pages.render_datasets(visit.frame(), summaries))

    # Asking

    async def editor(self, visit: _Visit) -> Response:
        description = await self._call_for(self._service.describe, visit)
        if description.role is Role.READER:
            every = await self._call_for(self._service.library.read, visit)
            return HTMLResponse(
                question_pages.render_schema_page(visit.frame(texts.SCHEMA), description, every)
            )
        if not visit.values.get("sql", "").strip():
            return await self._show_editor(visit)
        # A link to a question shows its cost, as typing it does.
        try:
            plan = await self._call_for(self._service.plan, visit, await self._read_question(visit))
        except AccessDenied:
            raise
        except HubbubError as error:
            return await self._show_editor(visit, refusal=error)
        return await self._show_editor(visit, plan=plan)

    async def submit(self, visit: _Visit) -> Response:
        action = visit.form.get("action", "plan")
        try:
            question = await self._read_question(visit)
            if action in {"ask", "again"}:
                answer = await self._service.ask(
                    visit.principal, visit.dataset, question, again=action == "again"
                )
                return RedirectResponse(address("datasets", visit.dataset, "answers", answer.entry), 303)
            plan = await self._call_for(self._service.plan, visit, question)
            dry = None
            if action == "dry-run":
                description = await self._call_for(self._service.describe, visit)
                dry = await self._call(run_dry, description, plan.question)
            return await self._show_editor(visit, plan=plan, dry_run=dry)
        except HubbubError as error:
            if isinstance(error, AccessDenied):
                raise
            can_retry = action in {"ask", "again"} and isinstance(error, EngineFailed)
            response = await self._show_editor(visit, refusal=error, can_retry=can_retry)
            response.status_code = status_of(error)[0]
            return response

    async def plan(self, visit: _Visit) -> Response:
        budget = await self._call_for(self._service.budget, visit)
        try:
            question = await self._read_question(visit)
            report = await self._call_for(self._service.plan, visit, question)
        except AccessDenied:
            raise
        except HubbubError as error:
            words = question_pages.render_plan_refusal(visit.dataset, error, visit.values, budget)
            return HTMLResponse(words, status_of(error)[0])
        return HTMLResponse(question_pages.render_plan(report, budget))

    async def _show_editor(self, visit: _Visit, **outcome: Any) -> Response:
        service = self._service
        editor = Editor(
            await self._call_for(service.describe, visit),
            await self._call_for(service.budget, visit),
            await self._call(service.functions),
            await self._call_for(service.library.saved_questions, visit),
            visit.values,
            epsilon="" if service.settings.epsilon is None else str(service.settings.epsilon),
            **outcome,
        )
        return HTMLResponse(question_pages.render_editor(visit.frame(texts.ASK), editor))

    async def _read_question(self, visit: _Visit) -> Question:
        """The question of a form; an error without a name is that of the answer's first value."""
        question = read_question(visit.values)
        if not question.error or "" not in question.error:
            return question
        at_one = replace(question, error=None, epsilon=1)
        columns = await self._call_for(self._service.columns, visit, at_one)
        names = [column.name for column in columns if column.part == "estimate"]
        if not names:
            raise InvalidInput(
                "no value of the answer has an interval", why="only values with intervals have errors",
                fix="pass {epsilon} instead", parameter="error",
            )  # fmt: skip
        errors = {name or names[0]: value for name, value in question.error.items()}
        return replace(question, error=errors)

    # What was asked

    async def answer(self, visit: _Visit) -> Response:
        answer = await self._call_for(self._service.stored_answer, visit, visit.entry)
        publication = None
        frame = visit.frame(texts.ANSWER)
        if frame.role is Role.OWNER:
            every = await self._call_for(self._service.library.read, visit)
            publication = next((each for each in every if each.entry == answer.entry), None)
        url = visit.request.url
        page = await self._call(
            answer_pages.render_answer, frame, answer, origin=f"{url.scheme}://{url.netloc}",
            publication=publication,
        )  # fmt: skip
        return HTMLResponse(page)

    async def answer_file(self, visit: _Visit) -> Response:
        form = _find_format(visit)
        answer = await self._call_for(self._service.stored_answer, visit, visit.entry)
        return _as_file(await self._call(render_result, answer.result, form), visit, form)

    async def history(self, visit: _Visit) -> Response:
        text = visit.request.query_params.get("before", "")
        before = int(text) if text.isascii() and text.isdecimal() and len(text) < 16 else None
        search = visit.request.query_params.get("containing", "")[:1000]
        items = await self._call_for(
            self._service.history, visit, before=before, limit=_PAGE + 1, containing=search
        )
        older = items[_PAGE - 1].entry if len(items) > _PAGE else None
        frame = visit.frame(texts.HISTORY)
        page = question_pages.render_history(frame, visit.dataset, items[:_PAGE], older, search)
        return HTMLResponse(page)

    async def saved(self, visit: _Visit) -> Response:
        every = await self._call_for(self._service.library.saved_questions, visit)
        return HTMLResponse(question_pages.render_saved(visit.frame(texts.SAVED), visit.dataset, every))

    async def save(self, visit: _Visit) -> Response:
        name, is_shared = visit.form.get("name", ""), visit.form.get("shared") == "yes"
        save = self._service.library.save
        try:
            await self._call_for(save, visit, name, read_question(visit.values), is_shared=is_shared)
        except InvalidInput as error:
            response = await self._show_editor(visit, refusal=error)
            response.status_code = status_of(error)[0]
            return response
        return RedirectResponse(address("datasets", visit.dataset, "saved"), 303)

    async def delete(self, visit: _Visit) -> Response:
        await self._call_for(self._service.library.delete, visit, visit.request.path_params["question_id"])
        return RedirectResponse(address("datasets", visit.dataset, "saved"), 303)

    async def label(self, visit: _Visit) -> Response:
        facts = await self._call_for(self._service.label, visit)
        # Who is no owner sees no questions.
        page = await self._call(label_html, facts)
        return HTMLResponse(page, headers=_STYLED)

    # The owner

    async def publish(self, visit: _Visit) -> Response:
        library = self._service.library
        if visit.form.get("action") == "withdraw":
            await self._call_for(library.withdraw, visit, visit.entry)
        else:
            await self._call_for(library.publish, visit, visit.entry, visit.form.get("title", ""))
        return RedirectResponse(address("datasets", visit.dataset, "answers", visit.entry), 303)

    async def manage(self, visit: _Visit) -> Response:
        return await self._show_management(visit)

    async def change(self, visit: _Visit) -> Response:
        form, administration = visit.form, self._service.administration
        action, user, request = (form.get(name, "") for name in ("action", "user", "request"))
        if action == "verify":
            report = await self._call_for(administration.verify_ledger, visit)
            return await self._show_management(visit, verification=report)
        if action == "verify-audit":
            problems = await self._call_for(administration.verify_audit, visit)
            return await self._show_management(visit, audit_problems=problems)
        message = texts.DONE
        if action == "role":
            await self._call_for(administration.set_role, visit, user, _read_role(form))
        elif action == "grant":
            epsilon = parse_number(form.get("epsilon", ""), "epsilon")
            typed = form.get("delta", "").strip()
            delta = parse_number(typed, "delta") if typed else None
            waiting = await self._call_for(administration.grant, visit, user, epsilon, delta)
            message = texts.DONE if waiting is None else texts.WAITS
        elif action in {"pause", "resume"}:
            await self._call_for(administration.pause, visit, user, is_paused=action == "pause")
        elif action == "approve":
            await self._call_for(administration.approve, visit, request)
        elif action == "refuse":
            await self._call_for(administration.refuse, visit, request)
        elif action == "revoke":
            await self._call_for(administration.revoke_token, visit, form.get("token", ""))
        else:
            raise HTTPException(400)
        return await self._show_management(visit, message=message)

    async def _show_management(self, visit: _Visit, **outcome: Any) -> Response:
        administration = self._service.administration
        state = owner_pages.Management(
            visit.dataset,
            await self._call_for(administration.people, visit),
            await self._call_for(self._service.budget, visit),
            await self._call_for(administration.raise_requests, visit),
            await self._call_for(administration.ledger_entries, visit),
            await self._call_for(administration.audit, visit, limit=owner_pages.SHOWN),
            await self._call_for(administration.tokens, visit),
            await self._call_for(administration.paused_users, visit),
            **outcome,
        )
        return HTMLResponse(owner_pages.render_management(visit.frame(texts.MANAGE), state))

    # Tokens

    async def tokens(self, visit: _Visit) -> Response:
        return await self._show_tokens(visit)

    async def make_token(self, visit: _Visit) -> Response:
        form = visit.form
        dataset, epsilon = form.get("dataset", "").strip(), form.get("epsilon", "").strip()
        try:
            _, secret = await self._call(
                self._service.auth.make_token,
                visit.principal,
                form.get("name", ""),
                datasets=(dataset,) if dataset else None,
                role=_read_role(form) or Role.READER,
                epsilon=epsilon or None,
                days=float(parse_number(form.get("days", "30"), "days")),
            )
        except HubbubError as error:
            response = await self._show_tokens(visit, error=error)
            response.status_code = status_of(error)[0]
            return response
        return await self._show_tokens(visit, secret=secret)

    async def revoke_token(self, visit: _Visit) -> Response:
        token_id = visit.request.path_params["token_id"]
        await self._call(self._service.auth.revoke_own_token, visit.principal, token_id)
        return RedirectResponse("/tokens", 303)

    async def _show_tokens(self, visit: _Visit, **outcome: Any) -> Response:
        tokens = await self._call(self._service.auth.own_tokens, visit.principal)
        return HTMLResponse(pages.render_tokens(visit.frame(), tokens, **outcome))

    # Published releases

    async def public(self, visit: _Visit) -> Response:
        library = self._service.library
        names = await self._call(library.public_datasets)
        if visit.session is not None:
            names += [name for name in visit.principal.roles if name not in names]
        every = {name: await self._call(library.read, visit.principal, name) for name in names}
        return HTMLResponse(pages.render_public_datasets(visit.frame(), every))

    async def public_dataset(self, visit: _Visit) -> Response:
        every = await self._call_for(self._service.library.read, visit)
        return HTMLResponse(pages.render_public_dataset(visit.frame(), visit.dataset, every))

    async def publication(self, visit: _Visit) -> Response:
        release = await self._call_for(self._service.library.read_one, visit, visit.entry)
        return HTMLResponse(pages.render_publication(visit.frame(), release))

    async def publication_file(self, visit: _Visit) -> Response:
        form = _find_format(visit)
        release = await self._call_for(self._service.library.read_one, visit, visit.entry)
        return _as_file(await self._call(render_result, release.result, form), visit, form)


def _show_error(visit: _Visit, error: HubbubError) -> Response:
    status, _ = status_of(error)
    headers = {"retry-after": "60"} if status in {429, 503} else None
    return HTMLResponse(pages.render_error(visit.frame(), error, visit.form.get("sql", "")), status, headers)


def _find_format(visit: _Visit) -> str:
    form = str(visit.request.path_params["form"])
    if form not in _FORMS:
        raise HTTPException(404)
    return form


def _as_file(response: Response, visit: _Visit, form: str) -> Response:
    if form == "svg":
        response.headers.update(_STYLED)
    else:
        response.headers["content-disposition"] = f'attachment; filename="answer-{visit.entry}.{form}"'
    return response


def _read_role(form: dict[str, str]) -> Role | None:
    text = form.get("role", "")
    if text == "none":
        return None
    if text not in {each.value for each in Role}:
        raise InvalidInput(
            "the {role} is not known", why="there are three", fix="choose reader, analyst or owner",
            parameter="role",
        )  # fmt: skip
    return Role(text)
