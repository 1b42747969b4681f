"""Signing in through an identity provider: a small one of the tests' own, which can lie in many ways."""

import asyncio
import json
import time
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from hubbub.errors import AccessDenied
from hubbub.server.app import make_app
from hubbub.server.oidc import make_oidc_routes
from hubbub.server.service_types import Role
from server.browser import Browser
from server.hospital import open_hospital

ISSUER = "https://login.example"
KEY, OTHER_KEY = RSAKey.generate_key(2048, auto_kid=True), RSAKey.generate_key(2048, auto_kid=True)
PLACE = f"""
[server.oidc]
issuer = "{ISSUER}"
client_id = "hubbub"
client_secret_file = "oidc.secret"
"""


class Provider:
    """Signs what it is told to say about somebody."""

    def __init__(self):
        self.claims, self.key, self.requests, self.algorithm = {}, KEY, [], "RS256"
        self.app = Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self.discover),
                Route("/token", self.token, methods=["POST"]),
                Route("/keys", lambda _: JSONResponse({"keys": [KEY.as_dict(private=False)]})),
            ]
        )

    async def discover(self, _):
        return JSONResponse(
            {
                "issuer": ISSUER,
                "authorization_endpoint": f"{ISSUER}/authorize",
                "token_endpoint": f"{ISSUER}/token",
                "jwks_uri": f"{ISSUER}/keys",
            }
        )

    async def token(self, request: Request):
        form = parse_qs((await request.body()).decode())
        self.requests.append({name: values[0] for name, values in form.items()})
        signed = jwt.encode({"alg": self.algorithm, "kid": KEY.kid}, self.claims, self.key)
        return JSONResponse({"access_token": "x", "token_type": "Bearer", "id_token": signed})


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "hospital"
    folder.mkdir()
    (folder / "oidc.secret").write_text("the client's secret\n")
    service = open_hospital(folder, PLACE)
    service.auth.add_user("ada@example.org", None, by="test")
    service.auth.set_role("ada@example.org", "visits", Role.ANALYST, by="test")
    yield service
    service.close()


def sign_in(service, claims=None, *, key=KEY, state=None, code="code", has_cookie=True):
    """Follow the flow as a browser does; return the last response, and the provider."""
    provider = Provider()
    provider.key = key
    transport = httpx.ASGITransport(provider.app)
    app = make_app(service, make_oidc_routes(service, transport))

    async def flow():
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="https://localhost"
        ) as browser:
            start = await browser.get("/oidc/login")
            sent = {
                name: values[0]
                for name, values in parse_qs(urlsplit(start.headers["location"]).query).items()
            }
            assert sent["code_challenge_method"] == "S256"
            provider.claims = {
                "iss": ISSUER, "aud": "hubbub", "sub": "42", "exp": int(time.time()) + 60,
                "nonce": sent["nonce"], "email": "Ada@example.org", "email_verified": True, **(claims or {}),
            }  # fmt: skip
            provider.claims = {name: value for name, value in provider.claims.items() if value is not None}
            if not has_cookie:
                browser.cookies.clear()
            return await browser.get(
                "/oidc/callback", params={"code": code, "state": sent["state"] if state is None else state}
            )

    return asyncio.run(flow()), provider


def test_somebody_signs_in_and_has_a_session(service):
    answer, provider = sign_in(service)

    assert answer.status_code == 303
    assert answer.headers["location"] == "/"
    [cookie] = [each for each in answer.headers.get_list("set-cookie") if each.startswith("__Host-hubbub=")]
    assert all(word in cookie for word in ("HttpOnly", "Secure", "SameSite=lax", "Path=/"))
    session = service.auth.find_session(cookie.split("=", 1)[1].split(";")[0])
    assert session.principal.user == "ada@example.org"
    assert session.principal.roles == {"visits": Role.ANALYST}
    [request] = provider.requests
    assert (request["grant_type"], request["code"]) == ("authorization_code", "code")
    assert request["code_verifier"]


def test_a_subject_stays_the_same_person_whatever_her_address_is(service):
    sign_in(service)

    assert sign_in(service, {"email": "other@example.org"})[0].status_code == 303
    assert sign_in(service, {"sub": "43"})[0].status_code == 401  # another person under her address


@pytest.mark.parametrize(
    "lie",
    [
        {"iss": "https://evil.example"},
        {"aud": "another"},
        {"exp": 1},
        {"exp": None},
        {"nonce": "another"},
        {"nonce": None},
        {"sub": None},
        {"sub": "44", "email_verified": False},
        {"sub": "44", "email": "bob"},
        {"sub": "44", "email": "nobody@example.org"},
    ],
    ids=json.dumps,
)
def test_claims_that_are_not_right_are_refused(service, lie):
    answer, _ = sign_in(service, lie)

    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


def test_answers_for_another_browser_or_of_another_key_are_refused(service):
    assert sign_in(service, has_cookie=False)[0].status_code == 401
    assert sign_in(service, state="another")[0].status_code == 401
    assert sign_in(service, key=OTHER_KEY)[0].status_code == 401


def test_pages_lead_to_the_provider_and_say_what_went_wrong(service):
    browser = Browser(service)
    browser.get("/sign-in")
    assert "/oidc/login" in browser.parsed.links
    refused = Browser(service, routes=make_oidc_routes(service)).get("/oidc/callback?state=x&code=y")
    assert refused.status_code == 401
    assert refused.headers["content-type"].startswith("text/html")
    assert "not accepted" in refused.text


def test_users_with_a_password_are_not_taken_over(service):
    with pytest.raises(AccessDenied):
        service.auth.sign_in_with_subject(f"{ISSUER} 45", "ada")


def test_locked_users_do_not_get_in(service):
    service.auth.set_active("ada@example.org", is_active=False, by="test")
    try:
        assert sign_in(service)[0].status_code == 401
    finally:
        service.auth.set_active("ada@example.org", is_active=True, by="test")
