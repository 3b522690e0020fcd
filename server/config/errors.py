"""Errors of the config: which line and key, what was expected, what was found, and the way out.

`convert` checks a value with msgspec and rewrites msgspec's message in plain words. A message shows numbers of settings
and the choices of closed sets, and no other value from the file, because it may be a secret.

Counts and lists of names are put in plain English here too, for all messages.
"""

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Self, TypeVar, get_args

import msgspec
from msgspec import Struct

from foretool.server.config import jsonc
from foretool.server.config.codes import Code
from foretool.server.config.settings import (
    AccessEntry,
    OAuthEntry,
    PerUserEntry,
    ProfileEntry,
    ServerEntry,
    Settings,
    keys_of,
)

_PLACED: Final = re.compile(
    r"(?P<file>.*?):\d+:\d+: (?:(?P<key>(?:mcpServers|foretool)(?:\.\S+)?): )?(?P<problem>.*)", re.DOTALL
)


class Coded(str):
    """A line for the user that carries its code; it is a `str` everywhere else."""

    __slots__ = ("code",)
    code: Code

    def __new__(cls, text: str, code: Code) -> Self:
        """Return the text with its code."""
        made = super().__new__(cls, text)
        made.code = code
        return made


class ConfigError(Exception):
    """The config or an option cannot be used. One line: file, line, column, key, what was found, the way out."""

    file: Path | None = None
    """The config that cannot be used, as the user named it; None where the file itself is not to blame."""

    def __init__(
        self, message: str, code: Code = Code.CONFIG_SHAPE, broken: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        """`broken`: what is wrong with each server, where none of them can be used."""
        super().__init__(message)
        self.code, self.broken = code, broken

    @property
    def coded(self) -> Coded:
        """The message with its code."""
        return Coded(str(self), self.code)


class RefusedConfig(Struct, frozen=True):
    """Why a running proxy cannot use the config as it is now, and serves with the one before."""

    error: str
    code: Code
    since: float


class Refusal(Exception):
    """A command cannot do what it was asked for. One line: what, where, what was found, the way out."""


class Placed(NamedTuple):
    """A message of the config, taken apart: `~/mcp.json:4:7: mcpServers.git.args: expected a list`."""

    file: str
    """"" where it names no place."""
    key: str
    """Of the value, "" where it names none."""
    problem: str

    @property
    def without_file(self) -> str:
        return f"{self.key}: {self.problem}" if self.key else self.problem


def split_place(said: str) -> Placed:
    """Take a message apart into where it is and what is wrong."""
    found = _PLACED.fullmatch(said)
    return Placed(found["file"], found["key"] or "", found["problem"]) if found is not None else Placed("", "", said)


def lacks_folder(said: str) -> bool:
    """Return whether an entry cannot be used only because no folder is open: the same server runs where one is. `said`:
    what is wrong with the entry."""
    return isinstance(said, Coded) and said.code is Code.FOLDER_OF_CLIENT


class Invalid(Exception):
    """One value of the config cannot be used; `path` leads to it from the top of the file."""

    def __init__(
        self, path: jsonc.Path, problem: str, *, at_key: bool = False, code: Code = Code.SETTING_VALUE
    ) -> None:
        super().__init__(problem)
        self.path = path
        self.at_key = at_key
        self.code = code


class Source:
    """The decoded text of one config file, and where in it each value stands."""

    def __init__(self, data: bytes, name: str) -> None:
        """Decode a file of this name. Raises `ConfigError` if it is not UTF-8 or not JSON."""
        self.name = printable_line(name)
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            problem = f"{self.name}:1:1: expected UTF-8, found UTF-16; save the file as UTF-8"
            raise ConfigError(problem, Code.CONFIG_SYNTAX)
        try:
            self.text = data.decode("utf-8-sig")
            self.document = jsonc.loads(self.text)
        except UnicodeDecodeError as error:
            self.text = data[: error.start].decode("utf-8-sig", "replace")
            problem = f"expected UTF-8, found byte 0x{data[error.start]:02x}; save the file as UTF-8"
            raise self._at(len(self.text), problem, Code.CONFIG_SYNTAX) from None
        except jsonc.JsonError as error:
            raise self._at(error.offset, str(error), Code.CONFIG_SYNTAX) from None

    @cached_property
    def places(self) -> jsonc.Places:
        try:
            return jsonc.places(self.text)
        except jsonc.JsonError:
            # The decoder reads deeper brackets than the scanner; errors in them name line 1.
            return jsonc.Places({}, {}, {})

    def error(self, error: Invalid) -> ConfigError:
        """Return the problem on one line, behind its file, line, column and key."""
        offset = self.places.of(error.path)
        if error.at_key:
            offset = self.places.keys.get(error.path, offset)
        return self._at(offset, f"{dotted(error.path)}: {error}" if error.path else str(error), error.code)

    def _at(self, offset: int, problem: str, code: Code) -> ConfigError:
        line, column = jsonc.line_and_column(self.text, offset)
        return ConfigError(f"{self.name}:{line}:{column}: {problem}", code)


T = TypeVar("T", bound=Struct)

_KINDS = {
    "str": "a string",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}

# Keyed by (expected, found); advice for a key comes first.
_ADVICE = {
    ("a string", "a list"): "write one string",
    ("a list", "a string"): 'write ["..."]',
    ("a whole number", "a string"): "write it without quotes",
    ("a number", "a string"): "write it without quotes",
    ("true or false", "a string"): "write it without quotes",
    ("a whole number", "a number"): "leave out the fraction",
}
_KEY_ADVICE = {"command": 'put the arguments in "args"', "args": "write each argument as an item of its own"}


def convert(value: Any, kind: type[T], here: jsonc.Path) -> T:
    """Return the value at the path `here` as a struct. Raises `Invalid`."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        message, path = _resolve(value, kind, str(error))
    bad = value
    for step in path:
        bad = bad[step]
    raise Invalid((*here, *path), _in_words(message, path, bad, kind))


def _resolve(value: Any, kind: type[Struct], error: str) -> tuple[str, jsonc.Path]:
    """Return msgspec's message and the path to the value, with the keys of dictionaries that msgspec leaves out."""
    message, found, tail = error.rpartition(" - at `$")
    if not found:
        return error, ()
    path: list[str | int] = []
    node = value
    for field, index, any_key in re.findall(r"\.(\w+)|\[(\d+)\]|(\[\.\.\.\])", tail):
        if any_key:  # dictionaries stand directly in the structs
            step: str | int = next(key for key in node if _error({**value, path[0]: {key: node[key]}}, kind) == error)
        else:
            step = field or int(index)
        path.append(step)
        node = node[step]
    return message, tuple(path)


def _error(value: Any, kind: type[Struct]) -> str:
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _in_words(message: str, path: jsonc.Path, bad: Any, kind: type[Struct]) -> str:
    key = next((step for step in reversed(path) if isinstance(step, str)), "")
    if message.startswith("Invalid enum value"):
        choices = ", ".join(f'"{choice}"' for choice in _choices(path))
        return f"expected one of {choices}; found {bad[:40]!r}"
    if "of length" in message:
        return f"expected a string that is not empty; the default is {_default(key, kind)}"
    if bound := re.search(r"(>=|<=|>|<) ([\d.]+)", message):
        words = {">=": "at least", "<=": "at most", ">": "more than", "<": "less than"}[bound[1]]
        return f"expected {words} {float(bound[2]):g}, found {bad:g}; the default is {_default(key, kind)}"
    expected = re.search(r"Expected `([^`]*)`", message)
    kinds = [_KINDS[name] for name in expected[1].split(" | ") if name in _KINDS] if expected else []
    wanted = "a string" if "a string" in kinds else " or ".join(kinds)
    found = kind_of(bad)
    fallback = "put it in double quotes" if wanted == "a string" else f"write {wanted}"
    own = _KEY_ADVICE.get(key) if path[-1:] == (key,) and found in ("a list", "a string") else None
    return f"expected {wanted}, found {found}; {own or _ADVICE.get((wanted, found), fallback)}"


def _choices(path: jsonc.Path) -> list[str]:
    def literals(annotation: Any) -> Iterator[str]:
        for inner in get_args(annotation):
            yield from [inner] if isinstance(inner, str) else literals(inner)

    owners = (Settings, OAuthEntry, PerUserEntry, AccessEntry, ServerEntry, ProfileEntry)
    known = [owner.__annotations__[key] for key in reversed(path) for owner in owners if key in owner.__annotations__]
    return next(found for annotation in known if (found := list(literals(annotation))))


def _default(key: str, kind: type[Struct]) -> str:
    fields = msgspec.structs.fields(kind)
    return next(
        (str(field.default) for field in fields if field.name == key and field.default is not None), "the general one"
    )


def refuse_unknown(value: Any, kind: type[Struct], here: jsonc.Path) -> None:
    """Raise `Invalid` for the first key that the struct does not have."""
    fields = keys_of(kind)
    for key in value if isinstance(value, dict) else ():
        if key not in fields:
            remedy = guess(key, fields) or f"; the settings are {', '.join(fields)}"
            raise Invalid((*here, key), f"no such setting{remedy}", at_key=True, code=Code.SETTING_UNKNOWN)


def guess(key: str, names: Iterable[str]) -> str:
    """Return "did you mean" with the name closest to a misspelt key, or ""."""
    from difflib import get_close_matches  # only an unknown key needs it

    near = get_close_matches(key, list(names), n=1, cutoff=0.65)
    return f'; did you mean "{near[0]}"?' if near else ""


def plural(count: int, noun: str) -> str:
    """Write a count with its noun: `1 tool`, `2 discoveries`, `3 misses`."""
    if count == 1:
        return f"1 {noun}"
    if noun.endswith("y"):
        return f"{count:,} {noun[:-1]}ies"
    return f"{count:,} {noun}es" if noun.endswith(("s", "ch")) else f"{count:,} {noun}s"


def it_or_them(names: Collection[object]) -> str:
    """Return the pronoun for so many names: "it" for one, else "them"."""
    return "it" if len(names) == 1 else "them"


def name_some(names: Sequence[str], most: int = sys.maxsize) -> str:
    """Write the first names, and how many more there are: `git and time`, `git, time and 2 more`."""
    said = [*names[:most], *([f"{len(names) - most} more"] if len(names) > most else [])]
    return " and ".join(filter(None, (", ".join(said[:-1]), *said[-1:])))


def kind_of(value: Any) -> str:
    """Name the kind of a value, never the value, which may be a secret."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    kinds = {str: "a string", int: "a number", float: "a number", list: "a list", dict: "an object"}
    return kinds[type(value)]


def dotted(path: jsonc.Path) -> str:
    """Write a path as `mcpServers.github.args[1]`, with quotes around a key that is not a plain word."""
    text = ""
    for step in path:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += f".{step}" if re.fullmatch(r"[\w@/-]+", step) else f'."{printable_line(step)}"'
    return text.lstrip(".")


def printable_line(text: str) -> str:
    """Return `text` without characters that could break a line or a terminal, cut after 200 characters."""
    shown = text if len(text) <= 200 else text[:200] + "…"
    return shown if shown.isprintable() else repr(shown)[1:-1]
