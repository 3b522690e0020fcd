"""The page under `/ui` of `serve --http`: the tokens of MCP clients open it, and a process of its own serves it.

This part runs in the proxy and is small: it lets requests in and passes them on. A browser cannot send a bearer token
with a link, so a form trades the token for a cookie that scripts cannot read. `/ui/all/` shows everything, to tokens
that open every profile; `/ui/profile/NAME/` shows one profile (`default` is the list at `/mcp`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
import time
from collections import OrderedDict
from html import escape
from http.cookies import CookieError, SimpleCookie
from typing import Any, Final
from urllib.parse import parse_qs, quote, urlsplit

from msgspec import Struct

from foretool.server.config.tokens import DEFAULT
from foretool.server.page.origin import is_from_here
from foretool.server.page.page_rules import HEADERS, refusal_of
from foretool.server.page.process import PageProcess, ProcessFailed
from foretool.server.protocol.headers import Headers
from foretool.server.transports.client.access import WITHOUT_TOKEN, Access, Identity
from foretool.server.transports.client.http_request import CONNECTION, Receive, Send
from foretool.server.transports.client.http_rules import HttpRules
from foretool.server.transports.client.security import Refused

ROOT: Final = "/ui"
COOKIE: Final = "foretool_ui"
VISIT_S: Final = 12 * 3600.0
"""After this long a browser shows its token again."""
MOST_VISITS: Final = 200
LARGEST: Final = 256 * 1024
"""Bytes of one form."""
BODY_S: Final = 30.0
CLOSED: Final = "This page needs a token of foretool's config."

Scope = dict[str, Any]


class Visit(Struct, frozen=True):
    """One browser that has shown a token."""

    identity: Identity
    form_key: str
    until: float


class Answer(Exception):
    """What is said to a request that goes no further."""

    def __init__(self, status: int, text: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = {"content-type": "text/plain; charset=utf-8", **(headers or {})}


class Gate:
    """The ASGI part of `/ui`. `rules` are those in force at each request."""

    def __init__(self, page: PageProcess) -> None:
        self._page = page
        self._visits: OrderedDict[str, Visit] = OrderedDict()
        self._secret = secrets.token_bytes(32)

    async def __call__(self, rules: HttpRules, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request below `/ui`."""
        try:
            await self._serve(rules, scope, receive, send)
        except Refused as error:
            await _say(send, Answer(error.status, f"{error}\n"))
        except Answer as answer:
            await _say(send, answer)
        except ProcessFailed as error:
            await _say(send, Answer(503, f"{error}\n"))
        except TimeoutError:
            await _say(send, Answer(408))
        except ConnectionError:
            pass  # the browser has gone, or the page's process ended within an answer

    async def close(self) -> None:
        await self._page.close()

    async def _serve(self, rules: HttpRules, scope: Scope, receive: Receive, send: Send) -> None:
        headers = Headers(scope["headers"])
        rules.guards.check(headers)
        if (refused := refusal_of(scope["method"], headers)) is not None:
            raise Answer(*refused)
        method, path = scope["method"], scope["path"]
        if path == f"{ROOT}/open" and method == "POST":
            raise await self._open(rules.access, headers, receive)
        identity, form_key = await self._identify(rules.access, headers)
        scope["extensions"][CONNECTION][CONNECTION].recognise(identity.principal)
        if path in (ROOT, f"{ROOT}/"):
            raise self._choose(rules.access, identity)
        profile, inner = self._find(rules.access, identity, path)
        viewer = {
            "form_key": form_key,
            "profile": profile,
            "may_decide": profile is None and identity.may_decide,
            "principal": identity.principal,
            "name": identity.name,
        }
        body = await _read(receive) if method == "POST" else b""
        await self._page.forward(method, inner, scope["query_string"], headers, viewer, body, receive, send)

    # Who it is

    async def _identify(self, access: Access, headers: Headers) -> tuple[Identity, str]:
        """Return who sends a request and the key of its forms. Raises `Answer` with the form for a token."""
        if authorization := headers.get("authorization"):
            found = await access.identify(authorization)
            return found, self._key_of(found.principal)
        if access.is_open:
            return await access.identify(""), self._key_of(WITHOUT_TOKEN)
        visit = self._visits.get(_cookie_of(headers))
        now = access.again(visit.identity) if visit is not None and visit.until >= time.monotonic() else None
        if visit is None or now is None or not now.profiles:
            raise _form(401, CLOSED)
        return now, visit.form_key

    def _key_of(self, principal: str) -> str:
        return hmac.digest(self._secret, principal.encode(), "sha256").hex()

    async def _open(self, access: Access, headers: Headers, receive: Receive) -> Answer:
        """Trade a token for a cookie."""
        if not is_from_here(headers):
            return Answer(403, "Only this page may send this form.\n")
        sent = parse_qs((await _read(receive)).decode("latin-1"), keep_blank_values=True)
        try:
            identity = await access.identify(f"Bearer {sent.get('token', [''])[0]}")
        except Refused as error:
            said = "The config has no such token." if access.issuer is None else f"{error}."
            return _form(401, said[:1].upper() + said[1:])
        name = secrets.token_urlsafe(32)
        self._visits[name] = Visit(identity, secrets.token_urlsafe(32), time.monotonic() + VISIT_S)
        while len(self._visits) > MOST_VISITS:
            self._visits.popitem(last=False)
        secure = "; Secure" if urlsplit(headers.get("origin") or "").scheme == "https" else ""
        cookie = f"{COOKIE}={name}; Path={ROOT}; HttpOnly; SameSite=Strict; Max-Age={int(VISIT_S)}{secure}"
        return Answer(303, "", {"location": ROOT, "set-cookie": cookie})

    # Where it goes

    def _choose(self, access: Access, identity: Identity) -> Answer:
        """Lead to what the token opens, or let choose among several profiles."""
        if identity.profiles == access.profiles:
            return Answer(303, "", {"location": f"{ROOT}/all/"})
        links = [f"{ROOT}/profile/{quote(name or DEFAULT, safe='')}/" for name in sorted(identity.profiles)]
        if len(links) == 1:
            return Answer(303, "", {"location": links[0]})
        names = [f'<li><a href="{escape(link)}">{escape(link.split("/")[3])}</a></li>' for link in links]
        return _html(200, f"<h1>Profiles that this token opens</h1><ul>{''.join(names)}</ul>")

    def _find(self, access: Access, identity: Identity, path: str) -> tuple[str | None, str]:
        """Return the profile that an address is of, None for everything, and the address within the page."""
        _, _, kind, *rest = path.split("/")
        if kind == "all" and rest and identity.profiles == access.profiles:
            return None, "/" + "/".join(rest)
        if kind == "profile" and len(rest) > 1:
            name = "" if rest[0] == DEFAULT and DEFAULT not in access.profiles else rest[0]
            if rest[0] and name in identity.profiles:
                return name, "/" + "/".join(rest[1:])
        # What this token does not open looks like what does not exist.
        raise Answer(404, f"Nothing is served here; the page begins at {ROOT}.\n")


def _cookie_of(headers: Headers) -> str:
    with contextlib.suppress(CookieError):
        found = SimpleCookie(headers.get("cookie") or "").get(COOKIE)
        return found.value if found is not None else ""
    return ""


async def _read(receive: Receive) -> bytes:
    """Read a body within limits. Raises `Answer`, `ConnectionError` and `TimeoutError`."""
    parts, size = [], 0
    async with asyncio.timeout(BODY_S):
        while True:
            event = await receive()
            if event["type"] != "http.request":
                raise ConnectionError
            parts.append(event["body"])
            size += len(event["body"])
            if size > LARGEST:
                raise Answer(413, "The form is too large.\n")
            if not event["more_body"]:
                return b"".join(parts)


def _form(status: int, said: str) -> Answer:
    text = (
        f'<h1>foretool</h1><p role="status">{escape(said)}</p><form method="post" action="{ROOT}/open">'
        '<label>Token <input name="token" type="password" required autocomplete="off"></label>'
        " <button>Open the page</button></form>"
    )
    return _html(status, text)


def _html(status: int, body: str) -> Answer:
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>foretool</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"></head>'
        f"<body><main>{body}</main></body></html>"
    )
    return Answer(status, text, {"content-type": "text/html; charset=utf-8"})


async def _say(send: Send, answer: Answer) -> None:
    body = str(answer).encode()
    lines = {**HEADERS, **answer.headers, "content-length": str(len(body))}
    headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in lines.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
