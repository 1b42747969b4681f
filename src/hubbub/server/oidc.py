"""Signing in through an identity provider: OpenID Connect, the code flow with PKCE. The extra `hubbub[oidc]`.

The provider says who somebody is; what she may do is in the server's own file. Somebody whom no owner added
does not get in: a user is known by the provider's subject, which is noted when she first signs in under her
verified address of e-mail, her name here.
"""

import base64
import hmac
import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri, prepare_token_request
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from hubbub.errors import AccessDenied, InvalidInput, Unavailable
from hubbub.noise.entropy import random_bytes
from hubbub.server.cookies import set_session
from hubbub.server.service import Service
from hubbub.server.service_types import Principal
from hubbub.server.settings import OidcSettings, is_loopback

__all__ = ["make_oidc_routes"]

_COOKIE = "__Host-hubbub-oidc"
_SECONDS = 600
_ALGORITHMS = ["RS256", "PS256", "ES256", "EdDSA"]
"""Signatures by a key of the provider's; none that a shared secret or nobody could make."""


def make_oidc_routes(service: Service, transport: httpx.AsyncBaseTransport | None = None) -> list[Route]:
    """Return the routes of signing in: `/oidc/login`, and `/oidc/callback` for the provider.

    Args:
        service: with `[server.oidc]` in its settings.
        transport: how the provider is reached; by default over the network.
    """
    settings = service.settings.oidc
    assert settings is not None
    issuer = urlsplit(settings.issuer)
    if issuer.scheme != "https" and not is_loopback(issuer.hostname or ""):
        raise InvalidInput(
            "the issuer of [server.oidc] is not https://…",
            why="anybody on the network path could pose as it",
            fix="write its address with https",
        )  # fmt: skip
    door = _Oidc(service, settings, transport)
    return [
        Route("/oidc/login", door.login, methods=["GET"]),
        Route("/oidc/callback", door.callback, methods=["GET"]),
    ]


class _Oidc:
    def __init__(
        self, service: Service, settings: OidcSettings, transport: httpx.AsyncBaseTransport | None
    ) -> None:
        self._service, self._settings, self._transport = service, settings, transport
        try:
            self._secret = Path(settings.client_secret_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise InvalidInput(
                "the client_secret_file of [server.oidc] cannot be read", why="the provider asks for it",
                fix="write the secret into that file, readable by the server alone",
            ) from None  # fmt: skip
        self._provider: dict[str, Any] | None = None

    async def login(self, request: Request) -> Response:
        """Send the browser to the provider; what must come back is in a cookie that nobody else can make."""
        provider = await self._discover()
        fields = {name: _make_text() for name in ("state", "nonce", "verifier")}
        url = prepare_grant_uri(
            provider["authorization_endpoint"],
            self._settings.client_id,
            "code",
            redirect_uri=_redirect_uri(request),
            scope="openid email",
            state=fields["state"],
            nonce=fields["nonce"],
            code_challenge=create_s256_code_challenge(fields["verifier"]),
            code_challenge_method="S256",
        )
        response = RedirectResponse(url, 303)
        value = await self._service.call(self._sign, {**fields, "until": time.time() + _SECONDS})
        # The provider leads the browser back here: Lax sends the cookie along with that.
        response.set_cookie(
            _COOKIE, value, max_age=_SECONDS, path="/", secure=True, httponly=True, samesite="lax"
        )
        return response

    async def callback(self, request: Request) -> Response:
        """Check what the provider says, and start a session."""
        stored = await self._service.call(self._verify, request.cookies.get(_COOKIE, ""))
        state = request.query_params.get("state", "")
        code = request.query_params.get("code")
        if (
            stored is None
            or code is None
            or not hmac.compare_digest(stored["state"].encode(), state.encode())
        ):
            raise _refused()
        claims = await self._fetch_claims(request, code, stored)
        principal = await self._service.call(self._find_user, claims)
        session = await self._service.call(self._service.auth.start_session, principal)
        response = RedirectResponse("/", 303)
        set_session(response, session)
        response.delete_cookie(_COOKIE, path="/", secure=True, httponly=True, samesite="lax")
        return response

    async def _fetch_claims(self, request: Request, code: str, stored: dict[str, Any]) -> dict[str, Any]:
        """Exchange the code for what the provider signs about somebody.

        Guarantee: the claims are signed by a key of the provider's, for this client, for this attempt, and
            have not expired.
        """
        provider = await self._discover()
        body = prepare_token_request(
            "authorization_code",
            redirect_uri=_redirect_uri(request),
            code=code,
            code_verifier=stored["verifier"],
        )
        try:
            async with self._connect() as client:
                answer = await client.post(
                    provider["token_endpoint"],
                    content=body,
                    headers={"content-type": "application/x-www-form-urlencoded"},
                    auth=(self._settings.client_id, self._secret),
                )
                token = answer.json()
                keys = KeySet.import_key_set((await client.get(provider["jwks_uri"])).json())
            signed = jwt.decode(token["id_token"], keys, algorithms=_ALGORITHMS)
            jwt.JWTClaimsRegistry(
                iss={"essential": True, "value": self._settings.issuer},
                aud={"essential": True, "value": self._settings.client_id},
                exp={"essential": True},
                sub={"essential": True},
                nonce={"essential": True, "value": stored["nonce"]},
            ).validate(signed.claims)
        except httpx.HTTPError:
            raise _unavailable() from None
        except (JoseError, KeyError, TypeError, ValueError):
            raise _refused() from None
        return dict(signed.claims)

    def _find_user(self, claims: dict[str, Any]) -> Principal:
        subject = f"{self._settings.issuer} {claims['sub']}"
        is_verified = claims.get("email_verified") is True
        email = str(claims.get("email", "")).lower() if is_verified else None
        return self._service.auth.sign_in_with_subject(subject, email)

    async def _discover(self) -> dict[str, Any]:
        """The provider's addresses, read once."""
        if self._provider is None:
            try:
                async with self._connect() as client:
                    address = f"{self._settings.issuer.rstrip('/')}/.well-known/openid-configuration"
                    document = (await client.get(address)).json()
            except (httpx.HTTPError, ValueError):
                raise _unavailable() from None
            names = ("authorization_endpoint", "token_endpoint", "jwks_uri")
            is_own = isinstance(document, dict) and document.get("issuer") == self._settings.issuer
            if not is_own or not all(isinstance(document.get(name), str) for name in names):
                raise _unavailable()
            self._provider = document
        return self._provider

    def _connect(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=self._transport, timeout=10)

    # The cookie between the two requests

    def _sign(self, fields: dict[str, Any]) -> str:
        text = base64.urlsafe_b64encode(json.dumps(fields).encode())
        return f"{text.decode()}.{hmac.digest(self._key(), text, 'sha256').hex()}"

    def _verify(self, value: str) -> dict[str, Any] | None:
        text, _, mark = value.partition(".")
        expected = hmac.digest(self._key(), text.encode(errors="replace"), "sha256").hex()
        if not hmac.compare_digest(expected.encode(), mark.encode(errors="replace")):
            return None
        fields: dict[str, Any] = json.loads(base64.urlsafe_b64decode(text))
        return fields if fields["until"] > time.time() else None

    def _key(self) -> bytes:
        return hmac.digest(self._service.state.secret, b"oidc", "sha256")


def _make_text() -> str:
    return base64.urlsafe_b64encode(random_bytes(32)).rstrip(b"=").decode()


def _redirect_uri(request: Request) -> str:
    """Our own address for the provider; the host's name was checked."""
    return str(request.url.replace(path="/oidc/callback", query=""))


def _refused() -> AccessDenied:
    return AccessDenied(
        "the identity provider's answer is not accepted", why="it is not for this browser, or not signed",
        fix="sign in again, from this server's page", parameter="authorization",
    )  # fmt: skip


def _unavailable() -> Unavailable:
    return Unavailable(
        "the identity provider cannot be reached", why="it identifies people", fix="try again later"
    )
