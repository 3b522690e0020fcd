"""Which values of a caller's own earlier calls an answer may show beside the names and types, under `record: full`.

A value on record may come from another person, hold a secret, or hold words that somebody planted for a model to read
again. So a value is shown only to whom it belongs (`Owner`), while the tool has the definition that it was called
under, and if it is plain: a small number, a boolean, a member of an enum, a date, or a short name or path, which has to
stand in calls of two sessions. All else is shown as its type.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from msgspec import Struct

from foretool.server.catalog.signatures import MARK, argument_schemas
from foretool.server.protocol import jsonrpc
from foretool.server.trust.lookalikes import Names
from foretool.storage.records import Event, Tool, ToolId
from foretool.storage.redaction import hide_shapes

if TYPE_CHECKING:
    from foretool.server.clients.exchange import Caller
    from foretool.server.config.loader import LiveConfig
    from foretool.storage.stores import Store

MOST_TEXT: Final = 40
"""Characters of a text that is shown."""
MOST_NUMBER: Final = 10**8
"""Larger numbers may be those of cards, accounts or telephones."""
SESSIONS: Final = 2
"""A name or path is shown if it stands in calls of so many sessions: one planted word does not come back."""
MOST_WORDS: Final = 3
"""Words between two slashes; more may be a sentence."""
LEAST_RANDOM: Final = 12
"""Characters of the shortest run of letters and digits that may be a key, a token or a hash."""

KINDS: Final = {str: "string", bool: "boolean", int: "number", float: "number", list: "array", dict: "object"}
"""The type in JSON of a value; of all others it is "null"."""

Shape = tuple[tuple[str, str], ...]
"""Names and JSON types of the arguments of a call, in order of the names."""

_PLAIN: Final = re.compile(rf"[A-Za-z0-9_.+~/-]{{1,{MOST_TEXT}}}")
_DATE: Final = re.compile(r"\d{4}-\d\d(?:-\d\d(?:T\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?(?:Z|[+-]\d\d:\d\d)?)?)?")
_DIGITS: Final = re.compile(r"\d{9,}")
_RUN: Final = re.compile(rf"[A-Za-z0-9_+-]{{{LEAST_RANDOM},}}")
_PARTS: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_PRIVATE: Final = frozenset({
    "account", "apikey", "auth", "authorization", "bearer", "birth", "birthday", "birthdate", "card", "code",
    "cookie", "credential", "credentials", "cvc", "cvv", "dob", "email", "iban", "jwt", "key", "license",
    "licence", "login", "mail", "mnemonic", "nonce", "otp", "pass", "passcode", "passphrase", "passwd",
    "password", "phone", "pin", "private", "pwd", "salt", "secret", "seed", "session", "signature", "ssn",
    "telephone", "token", "user", "username",
})  # fmt: skip
"""Words in the names of arguments whose values are never shown."""
_TYPES: Final = frozenset({*KINDS.values(), "null"})
_NOBODY: Final = Names()
"""No tools, so that no name looks like one of them."""


class Owner(NamedTuple):
    """Whose calls they are."""

    profile: str
    person: str
    """The principal of a credential; "" for the user of this machine, on stdio."""


def owner_of(client: Caller, *, is_shared: bool) -> Owner | None:
    """Return who calls; None where that may be several people. `is_shared`: whether several machines write the store,
    so that a client without a credential may be anybody on them."""
    if client.principal:
        return Owner(client.profile.name, client.principal)
    return None if is_shared or client.transport == "http" else Owner(client.profile.name, "")


class _Used(Struct, frozen=True):
    """A call that worked."""

    at: float
    session: str
    arguments: dict[str, Any]


class PastValues:
    """The values of the latest calls that worked, by caller and tool."""

    def __init__(self, store: Callable[[], Store], config: LiveConfig) -> None:
        self._store = store
        self._config = config
        self._used: dict[Owner, dict[ToolId, list[_Used]]] = {}

    @property
    def are_shown(self) -> bool:
        """Whether the setting `record` lets values be kept and shown."""
        return self._config.settings.record == "full"

    def owner_of(self, client: Caller) -> Owner | None:
        """Return whose values this client may be shown; None for nobody's."""
        return owner_of(client, is_shared=self._store().replicas is not None) if self.are_shown else None

    def read(self, events: Iterable[tuple[Event, Mapping[str, Any]]]) -> None:
        """Take in the latest calls, each with the arguments that it has on record. Raises `StorageError`."""
        self._used = {}
        worked = [(event, arguments) for event, arguments in events if event.ok and not are_types(arguments)]
        if not worked or not self.are_shown:
            return
        owners = self._store().sessions.owners({event.session for event, _ in worked})
        for event, arguments in worked:
            if (owner := owners.get(event.session)) is not None:
                used = self._used.setdefault(Owner(*owner), {}).setdefault(ToolId(event.text), [])
                used.append(_Used(event.at, event.session, dict(sorted(arguments.items()))))

    def of_tool(self, owner: Owner, tool: Tool, shape: Shape) -> dict[str, str]:
        """Return the values that may be shown of the owner's commonest call of this shape, as JSON by name; of
        equally common ones the latest. Raises `StorageError`."""
        used = self._used.get(owner, {}).get(tool.id, [])
        changed_at = self._store().catalog.changed_at(tool.upstream, tool.name) if used and self.are_shown else None
        if changed_at is None:
            return {}
        # What was called under another definition may mean something else now.
        used = [each for each in used if each.at >= changed_at]
        sessions: dict[tuple[str, str], set[str]] = defaultdict(set)
        for each in used:
            for name, value in each.arguments.items():
                sessions[name, _write(value)].add(each.session)
        schemas = argument_schemas(tool)
        written = {name: _write(value) for name, value in _commonest(used, shape).items()}
        return {
            name: value
            for name, value in written.items()
            if may_show(name, jsonrpc.plain(value.encode()), schemas.get(name), len(sessions[name, value]))
            and self._config.redact(value) == value
        }


def _commonest(used: Iterable[_Used], shape: Shape) -> dict[str, Any]:
    """Return the arguments of the commonest call of a shape, of equally common ones the latest; {} without one."""
    times = Counter[str]()
    latest: dict[str, dict[str, Any]] = {}
    for each in used:
        if shape_of(each.arguments) == shape:
            key = _write(each.arguments)
            times[key] += 1
            latest.pop(key, None)
            latest[key] = each.arguments
    return max(reversed(latest.items()), key=lambda item: times[item[0]])[1] if times else {}


def may_show(name: str, value: Any, schema: Any, sessions: int) -> bool:
    """Tell whether a value is plain enough to be shown; `sessions`: in how many the caller used it."""
    if not isinstance(schema, Mapping) or not fits(value, schema) or is_private(name):
        return False
    if isinstance(value, bool):
        return True
    if isinstance(value, int | float):
        return abs(value) < MOST_NUMBER and len(_write(value)) < MOST_TEXT
    if not isinstance(value, str) or hide_shapes(value) != value:
        return False
    if _DATE.fullmatch(value):
        return True
    if not _PLAIN.fullmatch(value) or speaks(value):
        return False
    members = schema.get("enum")
    if isinstance(members, list):
        return True
    return sessions >= SESSIONS and not looks_random(value)


def is_private(name: str) -> bool:
    """Tell whether the name of an argument says that its values are nobody else's business: `api_key`, `userEmail`."""
    words = [word.lower() for word in _PARTS.findall(name)]
    return not _PRIVATE.isdisjoint(words) or not _PRIVATE.isdisjoint(word.removesuffix("s") for word in words)


def looks_random(text: str) -> bool:
    """Tell whether a text may hold a key, a hash or the number of something private."""
    if _DIGITS.search(text):
        return True
    return any(
        any(map(str.isdigit, run)) and sum(map(str.isalpha, run)) > 0 and len(_PARTS.findall(run)) > 3
        for run in _RUN.findall(text)
    )


def speaks(text: str) -> bool:
    """Tell whether a name or path may be a sentence, or is one that steers a model."""
    segments = [_PARTS.findall(segment) for segment in text.split("/")]
    if MARK in text or any(sum(word.isalpha() for word in words) > MOST_WORDS for words in segments):
        return True
    # Its rules take 20 ms to load, and few answers come here.
    from foretool.server.trust.findings import find_in_text

    return bool(find_in_text(" ".join(word for words in segments for word in words), "", _NOBODY))


def fits(value: Any, schema: Mapping[str, Any]) -> bool:
    """Tell whether a value is of a type that its schema names, and a member where it names members."""
    kinds = schema.get("type")
    allowed = set(kinds if isinstance(kinds, list) else [kinds])
    members = schema.get("enum")
    if isinstance(members, list):
        return value in members and not isinstance(value, list | dict)
    return bool(_kinds(value) & allowed)


def shape_of(arguments: Mapping[str, Any]) -> Shape:
    """Return the names and types of arguments that are on record as values."""
    return tuple((name, KINDS.get(type(value), "null")) for name, value in sorted(arguments.items()))


def are_types(arguments: Mapping[str, Any]) -> bool:
    """Tell whether arguments on record are types alone, as `record: shape` keeps them."""
    return all(isinstance(value, str) and value in _TYPES for value in arguments.values())


def _kinds(value: Any) -> set[str]:
    kind = KINDS.get(type(value), "null")
    return {"number", "integer"} if kind == "number" and float(value).is_integer() else {kind}


def _write(value: Any) -> str:
    """Return a value as JSON."""
    return jsonrpc.encode(value).decode()
