"""Who may open the page: a one-time link, then a cookie, and only from this machine's own names.

The link is printed on the terminal alone. It works once and for five minutes, and leads to a cookie that scripts
cannot read. Cookies of one host go to all its ports, so the page also lives under a random path, and the cookie belongs
to that path: a server of another user on another port is never asked for it.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qs, parse_qsl

from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foretool.desk.page.page_rules import HEADERS, cookie_of, is_from_here, refusal_of
from foretool.desk.page.viewers import VIEWER, Viewer, viewer_of
from foretool.server.protocol.headers import Headers, media_type
from foretool.server.transports.client.security import Guards, RequestRefused

_LARGEST: Final = 256 * 1024
"""Bytes of one form; a review of some thousand changes sends a hash for each."""
_MOST_FIELDS: Final = 4000
_KIND: Final = "application/x-www-form-urlencoded"
_KEY: Final = "form_key"

Form = Mapping[str, Sequence[str]]


_LINK_S: Final = 300.0
"""How long the link works."""
COOKIE: Final = "foretool_page"
_AGAIN: Final = "This link was used already, or is older than five minutes. Run `foretool page` again for a new one."
_CLOSED: Final = "Open the page with the link that `foretool page` prints."


class PageDoor:
    """Lets the browser in that comes with the link, and keeps the others out. An ASGI app around the page."""

    def __init__(self, app: ASGIApp, clock: Callable[[], float] = time.monotonic) -> None:
        self._app = app
        self._guards = Guards()
        self._clock = clock
        self.place = "/" + secrets.token_urlsafe(12)
        """The path under which the page lives."""
        self._key: str | None = secrets.token_urlsafe(32)
        self._until = clock() + _LINK_S
        self._session = secrets.token_urlsafe(32)
        self._viewer = Viewer(secrets.token_urlsafe(32))

    @property
    def link(self) -> str:
        """The path of the one-time link; it stays the same, and stops working."""
        return f"{self.place}/open?key={self._key}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return  # lifespan and websockets are not served
        answer = self._answer(scope)
        if answer is None:
            inner = {**scope, "path": scope["path"][len(self.place) :], "root_path": "", VIEWER: self._viewer}
            await self._app(inner, receive, with_headers(send))
        else:
            await answer(scope, receive, with_headers(send))

    def _answer(self, scope: Scope) -> Response | None:
        """Return what is said to a request that does not reach the page; None if it does."""
        headers = Headers(scope["headers"])
        try:
            self._guards.check(headers)
        except RequestRefused as error:
            return PlainTextResponse(f"{error}\n", error.status)
        path: str = scope["path"]
        if path == self.place + "/open" and scope["method"] == "GET":
            return self._open(scope["query_string"])
        if not (path.startswith(self.place + "/") and hmac.compare_digest(cookie_of(headers, COOKIE), self._session)):
            return PlainTextResponse(f"{_CLOSED}\n", 401)
        refused = refusal_of(scope["method"], headers)
        return PlainTextResponse(refused[1], refused[0], refused[2]) if refused is not None else None

    def _open(self, query: bytes) -> Response:
        """Trade the key of the link for the cookie, once."""
        sent = parse_qs(query.decode("latin-1")).get("key", [""])[0]
        key = self._key if self._clock() < self._until else None
        if key is None or not hmac.compare_digest(sent.encode(), key.encode()):
            return PlainTextResponse(f"{_AGAIN}\n", 403)
        self._key = None
        # A redirect would go on as a request of the site before us, without the cookie; our page begins a new one.
        home = f"{self.place}/"
        head = f'<meta charset="utf-8"><title>foretool</title><meta http-equiv="refresh" content="0;url={home}">'
        head += f'<link rel="icon" href="{home}static/icon.svg">'
        link = f'<p><a href="{home}">Open the page</a></p>'
        answer = HTMLResponse(f'<!doctype html><html lang="en"><head>{head}</head><body>{link}</body></html>')
        answer.set_cookie(COOKIE, self._session, path=home, httponly=True, samesite="strict")
        return answer


def with_headers(send: Send) -> Send:
    """Return a `send` that adds the security headers which every answer has."""
    added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]

    async def send_more(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message.get("headers", ()), *added]}
        await send(message)

    return send_more


class FormError(Exception):
    """A form was refused; the message is for the person who sent it."""


async def read_form(request: Request) -> Form:
    """Return the fields of a form, each with its values. Raises `FormError` unless it comes from a page of ours."""
    viewer = viewer_of(request)
    if not is_from_here(Headers(request.scope["headers"])):
        raise FormError("Only this page may send this form; open the page again and press the button there.")
    if media_type(request.headers.get("content-type")) != _KIND:
        raise FormError(f"Forms are sent as {_KIND}.")
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > _LARGEST:
            raise FormError(f"The form is over {_LARGEST // 1024} KiB; choose fewer changes at a time.")
    try:
        fields = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=_MOST_FIELDS, errors="strict")
    except ValueError:
        raise FormError("The form cannot be read; open the page again and press the button there.") from None
    form: dict[str, list[str]] = {}
    for name, value in fields:
        form.setdefault(name, []).append(value)
    if not hmac.compare_digest(form.get(_KEY, [""])[0].encode(), viewer.form_key.encode()) or not viewer.form_key:
        raise FormError("This form belongs to another visit; open the page again and press the button there.")
    return form


def first(form: Form, name: str) -> str:
    """Return the first value of a field, or ""."""
    return form.get(name, [""])[0]
