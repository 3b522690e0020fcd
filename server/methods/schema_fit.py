"""Fits the arguments of a call to the input schema of its tool: repairs what has one meaning, and finds what no server
accepts. Of an answer it finds what does not fit the output schema.

A schema says less than its server knows. Generators list properties as required that have a default, forbid further
ones that the server ignores, and write a type where the server converts. So nothing is refused but what leaves a server
no choice: a required property that is missing without a default, and a value that has no reading as what is expected.
Everything else that does not fit is a doubt: the call goes on, and the doubts are told if it fails.

The work has a bound whatever the schema: beyond `_MOST_STEPS` the arguments stay as they were written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from msgspec import Struct, field

from foretool.server.catalog.signatures import properties_of
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw

_MOST_STEPS: Final = 5_000
"""Parts of a schema and values that one call may lead to, in some 20 ms."""
MOST_BYTES: Final = 1024 * 1024
"""Arguments that are larger stay as they are; reading them again at each level of nesting takes the loop's time."""
_MOST_DEPTH: Final = 20
"""Levels of nesting, and references one behind the other, that are followed."""
_MOST_DOUBTS: Final = 3
"""How many doubts are told."""
_MOST_MISSING: Final = 5
"""How many missing properties are named."""
_MOST_QUOTED: Final = 60
"""Characters of a value that a text quotes."""
_MOST_VALUES: Final = 12
"""Values of an enum that a text names."""

Kinds = frozenset[str]
"""The JSON types that a value may have; a number that has to be whole is an `integer`."""

_number = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?")
_may_list = re.compile(r"[,;|\n]|^\s*[\[{]|^\s*$")
_not_finite = re.compile(r"[+-]?(nan|inf|infinity)", re.IGNORECASE)
_WORDS: Final = {"integer": "a whole number", "number": "a number", "array": "an array", "object": "an object"}
_CONTAINERS: Final = frozenset({"object", "array"})
_SCALARS: Final = frozenset({"integer", "number", "boolean", "null"})


class Fit(Struct, frozen=True):
    """The result of fitting arguments to a schema."""

    arguments: Raw
    """As they go to the server."""
    refusal: str = ""
    """Why no server would accept them, and what to change; "" if one may."""
    doubts: tuple[str, ...] = ()
    """What does not fit, although a server may accept it."""


class _TooMuch(Exception):
    """The schema and the arguments take more work than a call may."""


def fit_to_schema(schema: Mapping[str, Any], arguments: Raw) -> Fit:
    """Fit arguments, which are an object, to the input schema of a tool."""
    if memoryview(arguments).nbytes > MOST_BYTES:
        return Fit(arguments)
    walk = _Walk(schema)
    try:
        fitted = walk.fit(arguments, schema, "", 0)
        missing = walk.find_missing(jsonrpc.fields(fitted), schema)
    except (_TooMuch, ValueError):  # a ValueError: the arguments are nested too deeply for the decoder
        return Fit(arguments)
    problems = [*missing, *walk.problems]
    return Fit(fitted, "; ".join(problems[:_MOST_DOUBTS]), tuple(walk.doubts[:_MOST_DOUBTS]))


def find_misfits(schema: Mapping[str, Any], value: Raw) -> str:
    """Say what of an answer certainly does not fit the output schema of its tool, "" if nothing is found."""
    if memoryview(value).nbytes > MOST_BYTES:
        return ""
    walk = _Walk(schema, is_exact=True)
    try:
        walk.fit(value, schema, "", 0)
    except (_TooMuch, ValueError):
        return ""
    return "; ".join(walk.doubts)


class _Walk(Struct):
    root: Mapping[str, Any]
    is_exact: bool = False
    """Nothing is repaired, and what is required may not be absent."""
    steps: int = 0
    problems: list[str] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)

    def fit(self, value: Raw, schema: Any, path: str, depth: int) -> Raw:
        """Return a value as the schema has it, and note what does not fit. A value that fits stays as it is written."""
        self._step()
        shapes = self._shapes(schema, 0)
        if shapes is None or depth > _MOST_DEPTH:
            return value
        kinds = _union(map(_kinds, shapes))
        if kinds is not None and not _is_one_of(value, kinds):
            repaired = None if self.is_exact else _convert(value, kinds) or self._wrap(value, shapes)
            if repaired is None:
                self._note_kind(value, kinds, path, depth)
                return value
            value = repaired
        kind = jsonrpc.json_type(value)
        fitting = [shape for shape in shapes if (own := _kinds(shape)) is None or kind in own]
        if len(fitting) != 1:
            return value  # which of several forms is meant is the server's to say
        if kind == "object":
            return self._fit_members(value, fitting[0], path, depth)
        if kind == "array" and isinstance(fitting[0].get("items"), dict):
            return self._fit_items(value, fitting[0]["items"], path, depth)
        self._check_value(value, fitting[0], path)
        return value

    def _wrap(self, value: Raw, shapes: list[Mapping[str, Any]]) -> Raw | None:
        """Return the array that a value stands for as its only item; None where no array is expected, or other items,
        or the value is a text that may list several."""
        lists = [shape for shape in shapes if _kinds(shape) != frozenset({"null"})]
        if len(lists) != 1 or (_kinds(lists[0]) or frozenset()) - {"null"} != {"array"}:
            return None
        items = self._shapes(lists[0].get("items"), 0)
        kinds = _union(map(_kinds, items)) if items is not None else None
        if kinds is None or not _is_one_of(value, kinds):
            return None
        if jsonrpc.json_type(value) == "string" and _may_list.search(jsonrpc.text(value) or ""):
            return None
        return jsonrpc.raw([value])

    def _fit_members(self, value: Raw, shape: Mapping[str, Any], path: str, depth: int) -> Raw:
        members, properties = jsonrpc.fields(value), properties_of(shape)
        # What the whole call lacks is a problem, and is found apart (`fit_to_schema`).
        for said in self.find_missing(members, shape) if self.is_exact or depth else ():
            self._doubt(said + (f" in {_quote(path)}" if path else ""))
        fitted = {}
        for name, member in members.items():
            if name in properties:
                fitted[name] = self.fit(member, properties[name], f"{path}.{name}" if path else name, depth + 1)
            elif shape.get("additionalProperties") is False and "patternProperties" not in shape:
                self._doubt(f"{_quote(name)} is not one of its properties" + (f" in {_quote(path)}" if path else ""))
        is_changed = any(fitted[name] is not members[name] for name in fitted)
        return jsonrpc.raw({**members, **fitted}) if is_changed else value

    def _fit_items(self, value: Raw, schema: Any, path: str, depth: int) -> Raw:
        items = jsonrpc.items(value)
        fitted = [self.fit(item, schema, f"{path}.{place}", depth + 1) for place, item in enumerate(items)]
        is_changed = any(new is not old for new, old in zip(fitted, items, strict=True))
        return jsonrpc.raw(fitted) if is_changed else value

    def find_missing(self, members: Mapping[str, Raw], schema: Mapping[str, Any]) -> list[str]:
        """Return what says which required properties are missing that have no default and may not be null."""
        properties, required = properties_of(schema), schema.get("required")
        names = [name for name in required if isinstance(name, str)] if isinstance(required, list) else []
        missing = [
            name for name in names
            if name not in members and name in properties and not self._may_be_absent(properties[name])
        ]  # fmt: skip
        if not missing:
            return []
        spelled = {_fold(name): name for name in members if name not in properties}
        named = [
            _quote(name) + (f" (found {_quote(spelled[_fold(name)])})" if _fold(name) in spelled else "")
            for name in missing
        ]
        if len(named) > _MOST_MISSING:
            named[_MOST_MISSING:] = [f"{len(named) - _MOST_MISSING} more"]
        said = f"{_enumerate(named)} {'are' if len(named) > 1 else 'is'} missing"
        # A name that is spelled alike is told above.
        others = [name for name in members if name not in properties and _fold(name) not in set(map(_fold, missing))]
        if others:
            more = [f"{len(others) - _MOST_MISSING} more"] if len(others) > _MOST_MISSING else []
            found = _enumerate([*map(_quote, others[:_MOST_MISSING]), *more])
            said += f" (found {found}, which {'are' if len(others) > 1 else 'is'} unknown)"
        return [said]

    def _may_be_absent(self, schema: Any) -> bool:
        if self.is_exact:
            return False
        shapes = self._shapes(schema, 0)
        if shapes is None:
            return True
        kinds = _union(map(_kinds, shapes))
        return kinds is None or "null" in kinds or any("default" in each for each in (schema, *shapes))

    # -- what does not fit

    def _note_kind(self, value: Raw, kinds: Kinds, path: str, depth: int) -> None:
        expected = " or ".join(_WORDS.get(kind, f"a {kind}") for kind in sorted(kinds - {"null"} or kinds))
        said = f"{_quote(path) + ': ' if path else ''}expected {expected}, found {_show(value)}"
        # What stands deeper is mostly passed on to something else, which may take more.
        if depth == 1 and not self.is_exact and _has_no_reading(value, kinds):
            self.problems.append(said)
        else:
            self._doubt(said)

    def _check_value(self, value: Raw, shape: Mapping[str, Any], path: str) -> None:
        values = shape.get("enum")
        if isinstance(values, list) and values and jsonrpc.decode_value(value) not in values:
            known = ", ".join(_quote(each) if isinstance(each, str) else str(each) for each in values[:_MOST_VALUES])
            more = " …" if len(values) > _MOST_VALUES else ""
            self._doubt(f"{_quote(path)}: expected one of {known}{more}, found {_show(value)}")

    def _doubt(self, said: str) -> None:
        if len(self.doubts) < _MOST_DOUBTS:
            self.doubts.append(said)

    # -- what a schema says

    def _shapes(self, schema: Any, depth: int) -> list[Mapping[str, Any]] | None:
        """Return the forms that a value may have, with references and unions followed; None if it may have any."""
        self._step()
        if not isinstance(schema, dict) or depth > _MOST_DEPTH:
            return None
        if "type" in schema or "properties" in schema or "enum" in schema or "const" in schema:
            return [schema] if _kinds(schema) is not None else None
        if isinstance(schema.get("$ref"), str):
            return self._shapes(self._target(schema["$ref"]), depth + 1)
        members = next((schema[key] for key in ("anyOf", "oneOf") if isinstance(schema.get(key), list)), None)
        if members is None:
            members = schema.get("allOf")
            if not isinstance(members, list) or len(members) != 1:
                return None
        found: list[Mapping[str, Any]] = []
        for member in members:
            shapes = self._shapes(member, depth + 1)
            if shapes is None:
                return None
            found += shapes
        return found or None

    def _target(self, reference: str) -> Any:
        found: Any = self.root if reference == "#" or reference.startswith("#/") else None
        for step in reference.split("/")[1:]:
            found = found.get(step.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        return found

    def _step(self) -> None:
        self.steps += 1
        if self.steps > _MOST_STEPS:
            raise _TooMuch


def _kinds(shape: Mapping[str, Any]) -> Kinds | None:
    """Return the types that one form of a value has; None if it does not say."""
    said = shape.get("type")
    if isinstance(said, str):
        kinds = {said}
    elif isinstance(said, list) and all(isinstance(each, str) for each in said):
        kinds = set(said)
    elif "properties" in shape:
        kinds = {"object"}
    else:
        values = (
            shape["enum"] if isinstance(shape.get("enum"), list) else [shape[key] for key in shape if key == "const"]
        )
        kinds = {jsonrpc.json_type(jsonrpc.raw(value)) for value in values}
    if not kinds or not kinds <= {"string", *_SCALARS, *_CONTAINERS}:
        return None
    # OpenAPI says `nullable`; a default of null is what generators write for an optional property.
    if shape.get("nullable") is True or ("default" in shape and shape["default"] is None):
        kinds.add("null")
    return frozenset(kinds)


def _union(parts: Iterable[Kinds | None]) -> Kinds | None:
    found: set[str] = set()
    for kinds in parts:
        if kinds is None:
            return None
        found |= kinds
    return frozenset(found)


def _is_one_of(value: Raw, kinds: Kinds) -> bool:
    kind = jsonrpc.json_type(value)
    return kind in kinds or (kind == "number" and "integer" in kinds and _is_whole(bytes(value).decode()))


def _is_whole(text: str) -> bool:
    return float(text).is_integer() if len(text) < _MOST_QUOTED else text.lstrip("-").isdigit()


def _convert(value: Raw, kinds: Kinds) -> Raw | None:
    """Return a value as one of these types if it has one reading as such; else None."""
    kind = jsonrpc.json_type(value)
    if kind == "number" and "string" in kinds:
        return jsonrpc.raw(bytes(value).decode())
    if kind != "string" or "string" in kinds:
        return None
    text = (jsonrpc.text(value) or "").strip()
    if "boolean" in kinds and text.lower() in ("true", "false"):
        return Raw(text.lower().encode())
    read = read_json(text)
    return read if read is not None and _is_one_of(read, kinds) else None


def read_json(text: str) -> Raw | None:
    """Return the JSON value that a text holds, as it is written there; None if it is not JSON."""
    text = text.strip()
    try:
        written = Raw(text.encode())
        kind = jsonrpc.json_type(written)
        if kind == "number":
            return written if _number.fullmatch(text) else None
        if kind in _CONTAINERS:
            jsonrpc.fields(written) if kind == "object" else jsonrpc.items(written)
        elif not kind or (kind != "string" and text not in ("true", "false", "null")):
            return None
        else:
            jsonrpc.decode_value(written)
    except ValueError:
        return None
    return Raw(jsonrpc.without_line_breaks(bytes(written)))


def _has_no_reading(value: Raw, kinds: Kinds) -> bool:
    """Return whether no server can take a value for one of these types, however it converts. Texts are dates, lists and
    numbers with units to some server, and everything has a text."""
    kind, expected = jsonrpc.json_type(value), kinds - {"null"}
    if kind in _CONTAINERS:
        return bool(expected) and expected <= _SCALARS
    if kind in ("number", "boolean"):
        return expected == {"object"}
    text = (jsonrpc.text(value) or "").strip()
    if not text:
        return False
    if expected and expected <= {"integer", "number"}:
        return not any(map(str.isdigit, text)) and not _not_finite.fullmatch(text)
    return bool(expected) and expected <= _CONTAINERS and text[0] in "{["


def _enumerate(said: list[str]) -> str:
    *first, last = said
    return f"{', '.join(first)}{' and ' if first else ''}{last}"


def _fold(name: str) -> str:
    """Return a name without what spellings of it differ in."""
    return name.replace("_", "").replace("-", "").lower()


def _quote(text: str) -> str:
    return '"' + (text if len(text) <= _MOST_QUOTED else f"{text[:_MOST_QUOTED]}…") + '"'


def _show(value: Raw) -> str:
    """Describe a value in a few words: it may have megabytes."""
    kind = jsonrpc.json_type(value)
    if kind in _CONTAINERS:
        return _WORDS[kind]
    text = jsonrpc.text(value) if kind == "string" else None
    if text is None:
        return bytes(value)[:_MOST_QUOTED].decode(errors="replace")
    is_broken = text.lstrip()[:1] in ("{", "[") and read_json(text) is None
    return "a text that is not valid JSON" if is_broken else _quote(text)
