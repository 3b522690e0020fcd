"""Moves secrets out of entries: into the keyring, or behind the variables that hold them already.

A secret stands in a value of `env` or `headers`, in an argument, or in an address. Only its own characters are
replaced, so the server gets the same text as before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from msgspec import Struct

from foretool.server.config import jsonc, keyrings
from foretool.server.config.risks import is_secret, looks_secret, tokens_in
from foretool.server.config.variables import CREDENTIAL
from foretool.server.setup.dialects import Entry

Place = Literal["keep", "keyring", "env"]
"""Where secrets are to stand: in the file, in the keyring of the system, or in variables of the environment."""

_SCHEME: Final = re.compile(r"(?i)(?:(?:bearer|basic|token)\s+)?(?P<value>.+)", re.DOTALL)
_ADDRESS: Final = re.compile(r"\w[\w+.-]{0,40}://[^\s\"'<>]+")
_USER: Final = re.compile(r"\w[\w+.-]{0,40}://(?P<user>[^/?#@:]*)(?::(?P<password>[^/?#]*))?@")
_PART: Final = re.compile(r"(?<![?#])/(?P<word>[^/?#]+)")
_QUERY: Final = re.compile(r"[?&](?P<name>[^=&#]*)=(?P<value>[^&#]+)")
_OPTION: Final = re.compile(r"(?P<name>-{1,2}[\w.-]+)(?:=(?P<value>.*))?", re.DOTALL)
_ASSIGNED: Final = re.compile(r"(?P<name>[A-Za-z_]\w*)=(?P<value>.*)", re.DOTALL)
_HEADER: Final = re.compile(
    r"(?P<name>[A-Za-z][\w-]*):(?!//)\s*(?:(?:bearer|basic|token)\s+)?(?P<value>.+)", re.DOTALL | re.I
)
_MEMBER: Final = re.compile(r'"(?P<name>[\w-]+)"\s*:\s*"(?P<value>[^"\\]+)"')
_ADDRESS_KEYS: Final = ("url", "serverUrl", "httpUrl")


class Secret(Struct, frozen=True):
    position: jsonc.Path
    """`("env", "KEY")`, `("args", 2)` or `("url",)`."""
    start: int
    """Where it begins in the text there."""
    value: str
    name: str
    """What it is called: the key, the option, the header or the field of a query."""

    def __repr__(self) -> str:
        return f"Secret({self.position!r}, {self.name!r})"


class Moved(Struct):
    """The secrets that were moved from entries into the keyring, and those that stay."""

    values: dict[str, str] = {}
    """By the name in the keyring, the values that it has to keep."""
    written: list[tuple[str, jsonc.Path, str]] = []
    """Server, place in its entry, and what stands there now."""
    left: list[str] = []
    """Places whose secret stays, each with the reason."""

    def __repr__(self) -> str:
        return f"Moved({len(self.values)} values)"


def move_secrets(entries: Mapping[str, Entry], place: Place, environ: Mapping[str, str]) -> Moved:
    """Replace the secrets in entries, which are changed, and say what was replaced."""
    moved = Moved()
    used = keyrings.keyring_names(json.dumps([*entries.values()], default=str))
    for server, entry in entries.items():
        by_position: dict[jsonc.Path, list[tuple[Secret, str]]] = {}
        for secret in find_secrets(entry):
            if place == "env":
                variable = _variable_with(secret, environ)
                if not variable:
                    where, name = _in_words(secret.position), secret.name
                    reason = "this shell has no variable of that value"
                    moved.left.append(f"{server}: {name} stays in the file ({where}): {reason}")
                    continue
                reference = f"${{{variable}}}"
            else:
                name = _free_name(f"{server}/{_plain(secret.name)}", secret.value, moved.values, used)
                moved.values[name] = secret.value
                reference = f"${{keyring:{name}}}"
            by_position.setdefault(secret.position, []).append((secret, reference))
        for position, found in by_position.items():
            text = _put(entry, position, found)
            moved.written.append((server, position, text))
    return moved


def find_secrets(entry: Mapping[str, Any]) -> Iterator[Secret]:
    """Yield every secret of an entry. A text that names a variable holds none."""
    for part in ("env", "headers"):
        values: Any = entry.get(part)
        for key, written in values.items() if isinstance(values, Mapping) else ():
            if isinstance(written, str) and "${" not in written and "}" not in key:
                yield from _in_value(part, key, written)
    args: Any = entry.get("args")
    option = ""
    for index, written in enumerate(args if isinstance(args, list | tuple) else ()):
        found = _OPTION.fullmatch(written) if isinstance(written, str) else None
        if isinstance(written, str) and "${" not in written:
            for start, value, name in _in_argument(option, written):
                yield Secret(("args", index), start, value, name or f"args-{index}")
        option = found["name"] if found and found["value"] is None else ""
    for key in _ADDRESS_KEYS:
        written = entry.get(key)
        if isinstance(written, str) and "${" not in written:
            for start, value, name in _in_address(written):
                yield Secret((key,), start, value, name)


def _in_value(part: str, key: str, written: str) -> Iterator[Secret]:
    """Yield the secret that a value of `env` or `headers` is."""
    indent = len(written) - len(written.lstrip())
    match = _SCHEME.fullmatch(written.strip()) if part == "headers" else None
    start, value = (indent + match.start("value"), match["value"]) if match else (0, written)
    if is_secret(key, value):
        yield Secret((part, key), start, value, key)


def _in_argument(option: str, written: str) -> Iterator[tuple[int, str, str]]:
    """Yield the secrets of one argument: where each begins, what it is, and its name. `option` stands before it."""
    for address in _ADDRESS.finditer(written):
        for start, value, name in _in_address(address[0]):
            yield address.start() + start, value, name
    if _ADDRESS.search(written):
        return
    for pattern in (_OPTION, _ASSIGNED, _HEADER):
        found = pattern.fullmatch(written)
        if found and found["value"] and CREDENTIAL.search(found["name"]) and is_secret(found["name"], found["value"]):
            yield found.start("value"), found["value"], found["name"].lstrip("-")
            return
    members = [each for each in _MEMBER.finditer(written) if is_secret(each["name"], each["value"])]
    for each in members:
        yield each.start("value"), each["value"], each["name"]
    if members:
        return
    if option and not written.startswith("-") and CREDENTIAL.search(option) and is_secret(option, written):
        yield 0, written, option.lstrip("-")
        return
    for start, value in tokens_in(written):
        yield start, value, option.lstrip("-")


def _in_address(address: str) -> Iterator[tuple[int, str, str]]:
    """Yield the secrets of an address: a password, a token in place of a user, in its path or in its query."""
    user = _USER.match(address)
    if user and user["password"]:
        yield user.start("password"), user["password"], "password"
    elif user and user["user"] and looks_secret(user["user"]):
        yield user.start("user"), user["user"], "user"
    begin = user.end() if user else address.find("://") + 3 if "://" in address else 0
    for part in _PART.finditer(address, begin):
        for start, value in tokens_in(part["word"]):
            yield part.start("word") + start, value, "path"
    for found in _QUERY.finditer(address, begin):
        if is_secret(found["name"], found["value"]):
            yield found.start("value"), found["value"], found["name"]


def _put(entry: Entry, position: jsonc.Path, found: Sequence[tuple[Secret, str]]) -> str:
    """Write references in place of the secrets at one position; return the new text."""
    key = position[0]
    text: str = entry[key] if len(position) == 1 else entry[key][position[1]]  # type: ignore[index]
    for secret, reference in sorted(found, key=lambda pair: -pair[0].start):
        text = text[: secret.start] + reference + text[secret.start + len(secret.value) :]
    if len(position) == 1:
        entry[str(key)] = text
    elif key == "args":
        entry["args"] = [text if index == position[1] else each for index, each in enumerate(entry["args"])]
    else:
        entry[str(key)] = {**entry[str(key)], position[1]: text}
    return text


def _variable_with(secret: Secret, environ: Mapping[str, str]) -> str:
    """Return a variable of the environment that holds a secret, "" if there is none."""
    if environ.get(secret.name) == secret.value:
        return secret.name
    names = (name for name, value in environ.items() if value == secret.value and re.fullmatch(r"[A-Za-z_]\w*", name))
    return min(names, key=lambda name: (not CREDENTIAL.search(name), name), default="")


def _free_name(name: str, value: str, taken: Mapping[str, str], used: Collection[str]) -> str:
    """Return a name of the keyring that no other value has: none of this run, and none that an entry reads already."""
    number, free = 2, name
    while free in used or taken.get(free, value) != value:
        free, number = f"{name}-{number}", number + 1
    return free


def _plain(name: str) -> str:
    """Return a name without what a reference cannot hold."""
    return re.sub(r"[{}$\s]+", "-", name)


def _in_words(position: jsonc.Path) -> str:
    key, *rest = position
    return f"{key}[{rest[0]}]" if key == "args" else ".".join(map(str, position))
