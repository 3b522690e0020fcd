"""The page under `/ui` of `serve --http`: the tokens of MCP clients open it, and a process of its own serves it.

This part runs in the proxy and is small: it lets requests in and passes them on. A browser cannot send a bearer token
with a link, so a form trades the token for a cookie that scripts cannot read. `/ui/all/` shows everything, to tokens
that open every profile; `/ui/profile/NAME/` shows one profile (`default` is the list at `/mcp`).

Cookies of one host go to all its ports. So a browser that was let in finds all this under a path of its own,
`/ui/RANDOM/`, to which its cookie belongs: a server on another port of this machine is never asked for it.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections import Counter, OrderedDict
from html import escape
from typing import Final
from urllib.parse import parse_qs, quote, urlsplit

from msgspec import Struct

from foretool.desk.page.page_rules import HEADERS, cookie_of, is_from_here, refusal_of
from foretool.desk.page.process import PageProcess, ProcessFailed
from foretool.server.config.loader import Config
from foretool.server.config.tokens import DEFAULT
from foretool.server.transports.client.access import Access, Identity
from foretool.server.transports.client.door import Door
from foretool.server.transports.client.http_request import HttpRequest
from foretool.server.transports.client.security import RequestRefused

_ROOT: Final = "/ui"
COOKIE: Final = "foretool_ui"
_VISIT_S: Final = 12 * 3600.0
"""After this long a browser shows its token again."""
_MOST_VISITS: Final = 200
"""Browsers that are let in at a time; where one more comes, the token with most of them loses its oldest."""
_LARGEST_FORM: Final = 256 * 1024
"""Bytes of a form of the page."""
_LARGEST_SIGN_IN: Final = 8 * 1024
"""Bytes of the form with a token, which everybody may send."""
_CLOSED: Final = "This page needs a token of foretool's config."


class Visit(Struct, frozen=True):
    """A browser that has shown a token, with the key of its forms."""

    identity: Identity
    form_key: str
    until: float
    root: str
    """The path below which this browser finds the page; its cookie goes nowhere else."""


class GateResponse(Exception):
    """Raised to answer a request at the gate, without the page's process."""

    def __init__(self, status: int, text: str = "", headers: dict[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.headers = {"content-type": "text/plain; charset=utf-8", **(headers or {})}


class PageGate:
    """The part of the HTTP server that answers below `/ui`."""

    def __init__(self, page: PageProcess) -> None:
        self._page = page
        self._visits: OrderedDict[str, Visit] = OrderedDict()
        self._secret = secrets.token_bytes(32)

    async def __call__(self, door: Door, request: HttpRequest) -> None:
        """Answer one request below `/ui`."""
        try:
            await self._serve(door, request)
        except RequestRefused as error:
            await _say(request, GateResponse(error.status, f"{error}\n", error.headers))
        except GateResponse as answer:
            await _say(request, answer)
        except ProcessFailed as error:
            await _say(request, GateResponse(503, f"{error}\n"))
        except TimeoutError:
            await _say(request, GateResponse(408))
        except ConnectionError:
            pass  # the browser has gone, or the page's process ended within an answer

    async def close(self) -> None:
        await self._page.close()

    async def _serve(self, door: Door, request: HttpRequest) -> None:
        method, path, headers = request.method, request.path, request.headers
        door.rules.guards.check(headers)
        if (refused := refusal_of(method, headers)) is not None:
            raise GateResponse(*refused)
        if path == f"{_ROOT}/open" and method == "POST":
            raise await self._open(door, request)
        identity, form_key, root = await self._identify(door, request)
        access = door.rules.access
        if path in (root, f"{root}/"):
            raise self._choose(access, identity, root)
        profile, inner = self._find(access, identity, path.removeprefix(root))
        viewer = {
            "form_key": form_key,
            "profile": profile,
            "may_decide": profile is None and identity.may_decide,
            "principal": identity.principal,
            "name": identity.name,
        }
        body = await request.body(_LARGEST_FORM) if method == "POST" else b""
        query = request.query.encode("latin-1")
        await self._page.forward(method, inner, query, headers, viewer, body, request.receive, request.send)

    # Who it is

    async def _identify(self, door: Door, request: HttpRequest) -> tuple[Identity, str, str]:
        """Return who sends a request, the key of its forms, and below which path the page is for it. Raises
        `GateResponse` with the form for a token."""
        authorization = request.headers.get("authorization") or ""
        if authorization or door.rules.access.is_open:
            identity = await door.identify(request, authorization)
            return identity, self._key_of(identity.principal), _ROOT
        visit = self._visits.get(cookie_of(request.headers, COOKIE))
        if visit is not None and not f"{request.path}/".startswith(f"{visit.root}/"):
            visit = None  # no browser sends the cookie elsewhere
        is_over = visit is None or visit.until < time.monotonic()
        identity_now = None if visit is None or is_over else door.rules.access.again(visit.identity)
        if visit is None or identity_now is None or not identity_now.profiles:
            raise _form(401, _CLOSED)
        door.admit(request, identity_now)
        return identity_now, visit.form_key, visit.root

    def _key_of(self, principal: str) -> str:
        return hmac.digest(self._secret, principal.encode(), "sha256").hex()

    async def _open(self, door: Door, request: HttpRequest) -> GateResponse:
        """Trade a token for a cookie."""
        if not is_from_here(request.headers):
            return GateResponse(403, "Only this page may send this form.\n")
        form = parse_qs((await request.body(_LARGEST_SIGN_IN)).decode("latin-1"), keep_blank_values=True)
        try:
            identity = await door.identify(request, f"Bearer {form.get('token', [''])[0]}")
        except RequestRefused as error:
            if error.status == 429:
                raise
            reason = "The config has no such token." if door.rules.access.issuer is None else f"{error}."
            return _form(401, reason[:1].upper() + reason[1:])
        name, root = secrets.token_urlsafe(32), f"{_ROOT}/{secrets.token_urlsafe(12)}"
        self._visits[name] = Visit(identity, secrets.token_urlsafe(32), time.monotonic() + _VISIT_S, root)
        if len(self._visits) > _MOST_VISITS:
            self._end_oldest_visit()
        secure = "; Secure" if urlsplit(request.headers.get("origin") or "").scheme == "https" else ""
        cookie = f"{COOKIE}={name}; Path={root}/; HttpOnly; SameSite=Strict; Max-Age={int(_VISIT_S)}{secure}"
        return GateResponse(303, "", {"location": f"{root}/", "set-cookie": cookie})

    def _end_oldest_visit(self) -> None:
        """End the oldest visit of the token that has most of them."""
        visits_of = Counter(visit.identity.principal for visit in self._visits.values())
        principal, _ = visits_of.most_common(1)[0]
        del self._visits[next(name for name, visit in self._visits.items() if visit.identity.principal == principal)]

    # Where it goes

    def _choose(self, access: Access, identity: Identity, root: str) -> GateResponse:
        """Lead to what the token opens, or let choose among several profiles."""
        if identity.profiles == access.profiles:
            return GateResponse(303, "", {"location": f"{root}/all/"})
        links = [f"{root}/profile/{quote(name or DEFAULT, safe='')}/" for name in sorted(identity.profiles)]
        if len(links) == 1:
            return GateResponse(303, "", {"location": links[0]})
        names = [f'<li><a href="{escape(link)}">{escape(link.split("/")[-2])}</a></li>' for link in links]
        return _html(200, f"<h1>Profiles that this token opens</h1><ul>{''.join(names)}</ul>")

    def _find(self, access: Access, identity: Identity, path: str) -> tuple[str | None, str]:
        """Return the profile that an address below the root is of, None for everything, and the address within the
        page."""
        _, kind, *rest = path.split("/") if path.startswith("/") else ("", "")
        if kind == "all" and rest and identity.profiles == access.profiles:
            return None, "/" + "/".join(rest)
        if kind == "profile" and len(rest) > 1:
            name = "" if rest[0] == DEFAULT and DEFAULT not in access.profiles else rest[0]
            if rest[0] and name in identity.profiles:
                return name, "/" + "/".join(rest[1:])
        # What this token does not open looks like what does not exist.
        raise GateResponse(404, f"Nothing is served here; the page begins at {_ROOT}.\n")


def _form(status: int, said: str) -> GateResponse:
    text = (
        f'<h1>foretool</h1><p role="status">{escape(said)}</p><form method="post" action="{_ROOT}/open">'
        '<label>Token <input name="token" type="password" required autocomplete="off"></label>'
        " <button>Open the page</button></form>"
    )
    return _html(status, text)


def _html(status: int, body: str) -> GateResponse:
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>foretool</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark"><link rel="icon" href="data:,"></head>'
        f"<body><main>{body}</main></body></html>"
    )
    return GateResponse(status, text, {"content-type": "text/html; charset=utf-8"})


def make_page(config: Config) -> PageGate:
    """Return the page of a proxy, which starts a process of its own when somebody opens it."""
    return PageGate(PageProcess([f"--config={config.path}"], {"FORETOOL_STORAGE": str(config.storage)}))


async def _say(request: HttpRequest, answer: GateResponse) -> None:
    body = str(answer).encode()
    lines = {**HEADERS, **answer.headers, "content-length": str(len(body))}
    headers = [(name.encode(), value.encode("latin-1", "replace")) for name, value in lines.items()]
    await request.send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await request.send({"type": "http.response.body", "body": body, "more_body": False})
