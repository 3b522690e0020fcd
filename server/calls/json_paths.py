"""Reads values of earlier results for `call_tools`: a small subset of JSONPath (RFC 9535), and where a text holds one.

    $.1            the result of call 1              $.1.users[0].name   a member of the first of a list
    $.item.id      of the value at hand (for_each)   $.1[*].id           of each; what lacks it is left out
    $.1[:3]        the first three                   $.1[*]['id','name'] only these members
    $.1.users.length()                               how many

A whole text that is a path becomes the value, as it was written; `{$.1.name}` within a longer text becomes its text.
`$$.` stands for a text that begins with `$.` itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from msgspec import Struct

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import Raw

_MOST_PATH: Final = 200
"""Characters of a path."""
_MOST_SEGMENTS: Final = 12
"""Steps of a path: each reads the value once more."""
_MOST_NAMED: Final = 10
"""Members of a value that an error names."""

ITEM: Final = 0
"""Stands for `$.item` where a call has its number."""
_ROOT: Final = re.compile(r"\$\.(\d{1,3}|item)(?![\w$])")
_WHOLE: Final = re.compile(r"\$\.(\d|item\b)")
_WITHIN: Final = re.compile(r"\{(\$\.(?:\d|item)[^{}]*)\}")
_SEGMENT: Final = re.compile(
    r"\.(?P<length>length)\(\)$|\.(?P<name>[^\W\d][\w-]*)|(?P<all>\[\*\]|\.\*)|\[(?P<at>-?\d{1,9})\]"
    r"|\[(?P<start>-?\d{0,9}):(?P<end>-?\d{0,9})\]|\[(?P<names>(?:'[^']*'|\"[^\"]*\")(?:,\s*(?:'[^']*'|\"[^\"]*\"))*)\]"
)
_QUOTED: Final = re.compile(r"'([^']*)'|\"([^\"]*)\"")


class PathError(ValueError):
    """A path that cannot be read or leads to nothing."""


class Path(Struct, frozen=True):
    """A parsed path into a result."""

    text: str
    root: int
    """The number of a call, or `ITEM`."""
    segments: tuple[Segment, ...]

    @property
    def is_many(self) -> bool:
        return any(isinstance(each, slice) for each in self.segments)

    def read(self, value: Raw) -> Raw:
        """Return what the path leads to from its root, a list where it leads to several. Raises `PathError`."""
        counts = bool(self.segments) and self.segments[-1] is None
        found = list(_select(value, self.segments[: -1 if counts else None], is_many=self.is_many))
        if not counts:
            return _join(found) if self.is_many else found[0]
        if self.is_many:
            return jsonrpc.raw(len(found))
        kind = jsonrpc.json_type(found[0])
        if kind not in ("array", "object"):
            raise PathError(f"{self.text}: a {kind} has no length()")
        return jsonrpc.raw(len(jsonrpc.items(found[0]) if kind == "array" else jsonrpc.fields(found[0])))


Segment = str | int | slice | tuple[str, ...] | None
"""A member, a place, several places, some members as an object, or (None, at the end) how many there are."""


def read_path(text: str) -> Path:
    """Read a path. Raises `PathError`."""
    root = _ROOT.match(text)
    if root is None or len(text) > _MOST_PATH:
        raise PathError(
            f"{text[:40]!r} is not a path: expected one like $.1.items[0].name, at most {_MOST_PATH} characters"
        )
    at, segments = root.end(), list[Segment]()
    while at < len(text):
        found = _SEGMENT.match(text, at)
        if found is None or len(segments) == _MOST_SEGMENTS:
            raise PathError(
                f"{text}: {text[at : at + 20]!r} is not understood; use .name, [0], [:3], [*], ['a','b'], .length()"
            )
        segments.append(_read_segment(found))
        at = found.end()
    return Path(text, ITEM if root[1] == "item" else int(root[1]), tuple(segments))


def _read_segment(found: re.Match[str]) -> Segment:
    if found["length"]:
        return None
    if found["name"]:
        return found["name"]
    if found["all"]:
        return slice(None)
    if found["at"]:
        return int(found["at"])
    if found["names"]:
        names = tuple(one or other for one, other in _QUOTED.findall(found["names"]))
        return names if len(names) > 1 else names[0]
    return slice(*(int(each) if each else None for each in (found["start"], found["end"])))


def fill_in(value: Raw, look_up: Callable[[Path], Raw]) -> Raw:
    """Return a value with what its paths lead to in place of them. What holds none stays as it was written. Raises
    `PathError`."""
    if not jsonrpc.holds(value, b"$."):
        return value
    kind = jsonrpc.json_type(value)
    if kind == "object":
        return jsonrpc.raw({key: fill_in(each, look_up) for key, each in jsonrpc.fields(value).items()})
    if kind == "array":
        return _join([fill_in(each, look_up) for each in jsonrpc.items(value)])
    text = jsonrpc.text(value) or ""
    if text.startswith("$$."):
        return jsonrpc.raw(text[1:])
    if _WHOLE.match(text):
        return look_up(read_path(text))
    return jsonrpc.raw(_WITHIN.sub(lambda match: _as_text(look_up(read_path(match[1])), match[1]), text))


def _as_text(value: Raw, path: str) -> str:
    kind = jsonrpc.json_type(value)
    if kind in ("array", "object"):
        raise PathError(f"{path}: an {kind} cannot stand within a text")
    return jsonrpc.text(value) or "" if kind == "string" else bytes(value).decode()


def _select(value: Raw, segments: Sequence[Segment], *, is_many: bool) -> Iterator[Raw]:
    """Yield each value that the segments lead to; exactly one unless there may be many."""
    if not segments:
        yield value
        return
    first, rest = segments[0], segments[1:]
    kind = jsonrpc.json_type(value)
    if isinstance(first, str | tuple) and kind == "object":
        members = jsonrpc.fields(value)
        if isinstance(first, tuple):
            yield from _select(
                jsonrpc.raw({each: members[each] for each in first if each in members}), rest, is_many=is_many
            )
            return
        if first in members:
            yield from _select(members[first], rest, is_many=is_many)
            return
    elif isinstance(first, int | slice) and kind == "array":
        items = jsonrpc.items(value)
        if isinstance(first, slice):
            found = [one for each in items[first] for one in _select(each, rest, is_many=True)]
            if items[first] and not found and rest:
                raise PathError(
                    f"none has what {_say_missing(items[first][0], jsonrpc.json_type(items[first][0]), rest[0])}"
                )
            yield from found
            return
        if -len(items) <= first < len(items):
            yield from _select(items[first], rest, is_many=is_many)
            return
    if not is_many or isinstance(first, slice):
        raise PathError(_say_missing(value, kind, first))


def _say_missing(value: Raw, kind: str, wanted: Segment) -> str:
    """Say what stands where a path does not go on, so that the next one does."""
    what = (
        f"[{wanted}]"
        if isinstance(wanted, int)
        else "a list"
        if isinstance(wanted, slice)
        else f"the member {wanted!r}"
    )
    if kind == "object":
        names = list(jsonrpc.fields(value))
        return f"expected {what}, found an object with {', '.join(map(repr, names[:_MOST_NAMED])) or 'no members'}"
    if kind == "array":
        return f"expected {what}, found a list of {len(jsonrpc.items(value))}; go on with [0] or [*]"
    return f"expected {what}, found a {kind}"


def _join(values: Sequence[Raw]) -> Raw:
    return Raw(b"[%b]" % b",".join(map(bytes, values)))
