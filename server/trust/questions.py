"""Questions of servers to users: each one says which server asks, and none may ask for a credential in a form.

We stand between a client and many servers, so the client can only say that foretool asks. The text itself has to name
the server (specification 2026-07-28: client, elicitation: clients must say which server requests information).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from msgspec import UNSET, Raw, UnsetType

from foretool.server.protocol import jsonrpc
from foretool.server.trust.lookalikes import fold_lookalikes
from foretool.server.trust.members import link_place
from foretool.server.trust.text import one_line

_META_SERVER: Final = "foretool/server"
"""Key in `_meta` of a question: the name of the server, for a client that shows it in its own way."""
_WARNING: Final = "foretool: do not type a password, key or token here. A server must not ask for one in a form."
_SHOWN: Final = 60
"""How much of a field's name is shown."""
MOST_AT_ONCE: Final = 50
"""Questions that one result may hold."""
_READ: Final = 4_000
"""How much of a text is searched for words that mean a credential."""

# Patterns as text: `re` compiles them at the first question, so that no list waits the milliseconds which that takes.
_ALWAYS: Final = (
    r"\b(pass ?words?|passwd|pwd|pass ?phrase|pass ?code|credentials?|bearer|jwt|cvv|cvc|(card|account) ?number|iban"
    r"|(api|access|secret|private|signing|ssh|client) ?key|client ?secret"
    r"|(access|auth|bearer|refresh|session|api|git ?hub|git ?lab|slack|bot|oauth) ?token"
    r"|mnemonic|(seed|recovery) (phrase|words|code)|one ?time (pass ?word|code|pin)|t?otp"
    r"|(security|verification|2fa|mfa|backup) code)\b"
)
"""What asks for a credential wherever it stands in a field's name, title or description, in plain small letters."""
_AT_END: Final = r"\b(tokens?|secrets?|pin|pat|passwords?|key phrase)$|^(pass|pw)$"
"""What asks for one at the end of a name, or as the whole of it."""
_MENTIONED: Final = r"\b(tokens?|secrets?|pins?)\b"
"""What in a message may mean one: the user is warned."""
_HUMPS: Final = r"(?<=[a-z0-9])(?=[A-Z])|[^0-9A-Za-z\u0080-\U0010ffff]+"
_fixed: Final = frozenset({"boolean", "object", "array", "null"})
"""Types whose value nobody types in."""


class QuestionRefused(ValueError):
    """A question must not be put to a client; the text says why, for the server."""


def prepare_question(server: str, method: str, params: Raw | UnsetType) -> Raw | UnsetType:
    """Return the parameters of a server's question as the client gets them: their text names the server. Everything
    else stays as it is written. Raises `QuestionRefused`, and ValueError where the parameters are not an object."""
    if method == "elicitation/create":
        return _elicitation(server, jsonrpc.fields(params))
    if method == "sampling/createMessage":
        return _sampling(server, jsonrpc.fields(params))
    return params


def questions_of(result: Mapping[str, Raw]) -> dict[str, Raw]:
    """Return the questions of a result that asks for input. Raises `QuestionRefused` for more than a client gets, and
    ValueError where they are not an object."""
    asked = jsonrpc.fields(result.get("inputRequests", UNSET))
    if len(asked) > MOST_AT_ONCE:
        raise QuestionRefused(f"{len(asked):,} questions at once; a client gets {MOST_AT_ONCE} at most")
    return asked


def prepare_questions(server: str, result: Raw) -> Raw:
    """Return a result that asks for input, each of its questions prepared. Raises as `prepare_question` does."""
    members = jsonrpc.fields(result)
    asked = questions_of(members)
    prepared = {key: prepare_request(server, jsonrpc.fields(request)) for key, request in asked.items()}
    return jsonrpc.raw({**members, "inputRequests": prepared}) if asked else result


def prepare_request(server: str, request: Mapping[str, Raw]) -> dict[str, Raw]:
    """Return one request, given as its members, with its parameters treated as in `prepare_question`."""
    params = prepare_question(server, jsonrpc.text(request.get("method")) or "", request.get("params", UNSET))
    return {**request, "params": params} if isinstance(params, Raw) else dict(request)


def prepare_log(server: str, params: Raw | UnsetType) -> Raw:
    """Return the parameters of a log message whose logger begins with its server. Raises ValueError as above."""
    logger = jsonrpc.text(jsonrpc.fields(params).get("logger")) if isinstance(params, Raw) else None
    named = one_line(server)
    return jsonrpc.merge_members(params, {"logger": f"{named}/{one_line(logger)}" if logger else named})


def prepare_sign_in(server: str, error: Raw) -> Raw:
    """Return an error that sends the user to addresses (URL elicitation required) whose texts name the server."""
    members = jsonrpc.fields(error)
    code, reason = jsonrpc.error_of(error)
    if code != jsonrpc.URL_ELICITATION_REQUIRED:
        return error
    data = jsonrpc.fields(members.get("data", UNSET))
    asked = jsonrpc.items(data["elicitations"]) if "elicitations" in data else []
    prepared = [_elicitation(server, jsonrpc.fields(each)) for each in asked]
    said = {"message": attribute(server, reason)}
    return jsonrpc.merge_members(error, {**said, "data": {**data, "elicitations": prepared}} if asked else said)


def attribute(server: str, text: str, what: str = "asks") -> str:
    """Return a text marked as this server's, each line of it, so that none looks like foretool's."""
    begin = f"Server {one_line(server)!r} {what}:"
    lines = text.strip().splitlines()
    return f"{begin} {lines[0] if lines else ''}".rstrip() if len(lines) < 2 else "\n> ".join((begin, *lines))


# -- elicitation


def _elicitation(server: str, members: Mapping[str, Raw]) -> Raw:
    message = jsonrpc.text(members.get("message")) or ""
    if (jsonrpc.text(members.get("mode")) or "form") == "url":
        try:
            place = link_place(jsonrpc.text(members.get("url")) or "")
        except ValueError as error:
            raise QuestionRefused(f"elicitation/create: {error}") from None
        return jsonrpc.raw({**members, "message": attribute(server, message, f"asks you to open {place}")})
    fields = list(
        _typed_fields(jsonrpc.decode_value(members["requestedSchema"]) if "requestedSchema" in members else None)
    )
    for name, schema in fields:
        if _asks_for_credential(name, schema):
            raise QuestionRefused(
                f"elicitation/create: the field {one_line(name, _SHOWN)!r} asks for a credential, which a form must not"
                ' do (specification: client, elicitation); use mode "url"'
            )
    said = attribute(server, message)
    if fields and (re.search(_ALWAYS, words := _words(message)) or re.search(_MENTIONED, words)):
        said += f"\n\n{_WARNING}"
    return jsonrpc.raw({**members, "message": said})


def _typed_fields(schema: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the fields of a form in which something can be typed, with their schemas; forms may be nested."""
    waiting = [schema]
    while waiting:
        found = waiting.pop()
        properties = found.get("properties") if isinstance(found, dict) else None
        for name, each in properties.items() if isinstance(properties, dict) else ():
            if not isinstance(each, dict):
                continue
            waiting += [each, each.get("items")]
            waiting += [part for key in ("anyOf", "oneOf", "allOf") for part in _parts(each.get(key))]
            is_choice = any(key in each for key in ("enum", "const")) or all(
                isinstance(part, dict) and "const" in part for part in _parts(each.get("oneOf")) or [None]
            )
            if not is_choice and each.get("type") not in _fixed:
                yield name, each


def _parts(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _asks_for_credential(name: str, schema: Mapping[str, Any]) -> bool:
    if schema.get("format") == "password" or schema.get("writeOnly") is True:
        return True
    names = [_words(each) for each in (name, schema.get("title")) if isinstance(each, str)]
    is_number = schema.get("type") in ("integer", "number")
    if any(re.search(_AT_END, each) and not (is_number and each.endswith(("token", "tokens"))) for each in names):
        return True
    described = schema.get("description")
    texts = [*names, _words(described)] if isinstance(described, str) else names
    return any(re.search(_ALWAYS, each) is not None for each in texts)


def _words(text: str) -> str:
    """Return the words of a name or a text, plain and in small letters: `apiKey` and `API_KEY` are `api key`."""
    return " ".join(fold_lookalikes(part) for part in re.split(_HUMPS, text[:_READ]) if part)


# -- sampling


def _sampling(server: str, members: Mapping[str, Raw]) -> Raw:
    prompt = jsonrpc.text(members.get("systemPrompt")) or ""
    meta = jsonrpc.fields(members.get("_meta", UNSET))
    said = f"This request comes from the MCP server {one_line(server)!r}, not from the user."
    # The client's context is that of all of our servers, and none may read another's.
    kept = {key: value for key, value in members.items() if key != "includeContext"}
    prepared = {**kept, "systemPrompt": f"{said}\n\n{prompt}" if prompt else said}
    return jsonrpc.raw({**prepared, "_meta": {**meta, _META_SERVER: server}})
