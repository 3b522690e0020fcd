"""Tells from what a server answers whether it has forgotten our session.

The specification says 404. Real servers also say it with 400, 401 or 503, or in the JSON-RPC error of a request, and
in words of their own. A request is sent again only if its server refused it for that reason, so nothing runs twice.
"""

from __future__ import annotations

import re
from typing import Final, Literal

from msgspec import UNSET

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import BadMessage, Message

_LOSS: Final = (
    rb"not found|could not find|cannot find|unknown|unrecogni[sz]ed|invalid|not valid|no valid|expired|no longer"
    rb"|not exist|doesn't exist|no such|no transport|missing|required|terminated|closed|inactive|not active|has ended"
)
_WORDS: Final = re.compile(
    rb"(?i)(?:%b)[^.\r\n]{0,60}\bsession|session[^.\r\n]{0,60}(?:%b)|server not initiali[sz]ed" % (_LOSS, _LOSS)
)
_FAILING: Final = frozenset({500, 502, 504})
"""Statuses of a server that may have begun to carry out the request."""

LOST: Final = "its session had expired"


def names_lost_session(text: bytes | bytearray) -> bool:
    """Tell whether a text says that a session is unknown or over."""
    return _WORDS.search(text) is not None


def error_in(body: bytes | bytearray) -> Message | None:
    """Return the JSON-RPC error in the body of an HTTP error, None if there is none."""
    try:
        message = jsonrpc.decode(body)
    except BadMessage:
        return None
    return message if message.is_reply and message.error is not UNSET else None


def judge(status: int, body: bytes | bytearray, request: int | None = None) -> Literal["lost", "doubtful", "kept"]:
    """Tell what a refusal means for our session. `request`: the id of the refused request.

    Doubtful is an error with the id of the request, which a method or a tool may have given, and an error of a server
    that fails: both may be about another session than ours.
    """
    error = error_in(body)
    is_of_request = error is not None and error.id is not None and str(error.id) == str(request)
    if status == 404 and not is_of_request:
        return "lost"
    if not names_lost_session(body):
        return "kept"
    return "doubtful" if is_of_request or status < 400 or status in _FAILING else "lost"
