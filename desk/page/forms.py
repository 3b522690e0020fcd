"""Forms that change something: read within limits, and only from a page of ours that this viewer has open."""

from __future__ import annotations

import hmac
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl

from starlette.requests import Request

from foretool.desk.page.access import viewer_of
from foretool.desk.page.page_rules import is_from_here
from foretool.server.protocol.headers import Headers, media_type

_LARGEST: Final = 256 * 1024
"""Bytes of one form; a review of some thousand changes sends a hash for each."""
_MOST_FIELDS: Final = 4000
_KIND: Final = "application/x-www-form-urlencoded"
_KEY: Final = "form_key"

Form = Mapping[str, Sequence[str]]


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
