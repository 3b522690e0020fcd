"""Paths into results: what they lead to, what they refuse, and what stays as it was written."""

from __future__ import annotations

import json
import re

import pytest

from foretool.server.calls.json_paths import PathError, fill_in, read_path
from foretool.server.protocol.jsonrpc import Raw

VALUE = b'{"n": 12345678901234567890, "f": 1.50, "tags": [], "users": [{"id": 1, "name": "Ada", "x": 0}, {"id": 2}]}'


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$.1", VALUE),
        ("$.1.n", b"12345678901234567890"),
        ("$.1.f", b"1.50"),
        ("$.1.users[0].name", b'"Ada"'),
        ("$.1.users[-1].id", b"2"),
        ("$.1.users[*].id", b"[1,2]"),
        ("$.1.users[*].name", b'["Ada"]'),
        ("$.1.users[:1]", b'[{"id": 1, "name": "Ada", "x": 0}]'),
        ("$.1['users'][1:][\"id\"]", b"[2]"),
        ("$.1.users[*]['id', 'name']", b'[{"id":1,"name":"Ada"},{"id":2}]'),
        ("$.1.users.length()", b"2"),
        ("$.1.users[*].name.length()", b"1"),
        ("$.1.tags", b"[]"),
    ],
)
def test_a_path_leads_to_what_was_written(path: str, found: bytes) -> None:
    assert bytes(read_path(path).read(Raw(VALUE))) == found


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("$.1.none", "found an object with 'n', 'f', 'tags', 'users'"),
        ("$.1.users.id", "found a list of 2; go on with [0] or [*]"),
        ("$.1.users[2]", "found a list of 2"),
        ("$.1.n[0]", "found a number"),
        ("$.1.n.length()", "a number has no length()"),
        ("$.1..id", "not understood"),
        ("$.1.users[?(@.id)]", "not understood"),
        ("$.1.__class__()", "not understood"),
        ("$.1" + ".a" * 13, "not understood"),
        ("$.1." + "a" * 200, "is not a path"),
        ("$", "is not a path"),
        ("users", "is not a path"),
    ],
)
def test_what_leads_nowhere_says_what_is_there(path: str, said: str) -> None:
    with pytest.raises(PathError, match=re.escape(said)):
        read_path(path).read(Raw(VALUE))


def test_values_take_the_place_of_paths_and_all_else_stays() -> None:
    given = (
        b'{"a": "$.1.n", "b": ["$.1.f", 1.0], "c": "no {$.1.users[0].name} or {x}", "d": "$$.1", "e": "$5", "f": 1.00}'
    )
    filled = bytes(fill_in(Raw(given), lambda path: path.read(Raw(VALUE))))
    assert filled == (b'{"a":12345678901234567890,"b":[1.50,1.0],"c":"no Ada or {x}","d":"$.1","e":"$5","f":1.00}')
    plain = Raw(b'{ "a" : 1.00 }')
    assert fill_in(plain, lambda path: plain) is plain
    with pytest.raises(PathError, match="cannot stand within a text"):
        fill_in(Raw(json.dumps({"a": "x {$.1.users}"}).encode()), lambda path: path.read(Raw(VALUE)))
