"""Which values of earlier calls are plain enough for an answer, and for whom they are."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from foretool.server.methods.past_values import Owner, are_types, fits, is_private, may_show, owner_of, shape_of

TEXT = {"type": "string"}


def client(transport: str = "stdio", principal: str = "", profile: str = "") -> Any:
    return SimpleNamespace(transport=transport, principal=principal, profile=SimpleNamespace(name=profile))


def test_a_caller_is_a_profile_and_a_person_where_nobody_else_can_be_meant() -> None:
    assert owner_of(client(profile="work"), is_shared=False) == Owner("work", "")
    assert owner_of(client("http", "oauth:ann"), is_shared=True) == Owner("", "oauth:ann")
    assert owner_of(client("http"), is_shared=False) is None
    assert owner_of(client("stdio"), is_shared=True) is None


@pytest.mark.parametrize(
    "value",
    [
        "src/main.py",
        "acme/api",
        "us-east-1",
        "/home/ann/x.py",
        "README.md",
        "Europe/Berlin",
        "ABC-123",
        "main",
        "~/notes",
    ],
)
def test_short_names_and_paths_are_shown_from_two_sessions_on(value: str) -> None:
    assert may_show("path", value, TEXT, 2)
    assert not may_show("path", value, TEXT, 1)


@pytest.mark.parametrize(
    "value",
    ["", "two words", "550e8400-e29b-41d4-a716-446655440000", "a1B2c3D4e5F6g7H8", "123456789", "a@b.example", "x://y",
     "is_this_a_name_or_a_sentence", "a" * 41, "fs__read", "sk_live_abcdefghijk", "\u0430bc"],
)  # fmt: skip
def test_other_texts_stay_types(value: str) -> None:
    assert not may_show("path", value, TEXT, 9)


def test_numbers_booleans_dates_and_members_of_an_enum_are_shown_at_once() -> None:
    for value, kind in ((20, "integer"), (20, "number"), (2.5, "number"), (True, "boolean")):
        assert may_show("lines", value, {"type": kind}, 1)
    for date in ("2026-01-31", "2026-01", "2026-01-31T10:00:00Z"):
        assert may_show("since", date, TEXT, 1)
    assert may_show("order", "newest-first", {"enum": ["newest-first"]}, 1)
    assert not may_show("order", "newest first", {"enum": ["newest first"]}, 1)
    assert not may_show("lines", 100_000_000, {"type": "integer"}, 1)


def test_a_value_has_to_fit_the_schema_as_it_is_now() -> None:
    assert fits(2.0, {"type": "integer"}) and fits(None, {"type": ["string", "null"]})
    assert not fits(2.5, {"type": "integer"}) and not fits("a", {"enum": ["b"]}) and not fits("a", {})
    assert not may_show("gone", 5, None, 1)
    assert not may_show("lines", 5, TEXT, 9) and not may_show("order", "asc", {"enum": ["desc"]}, 9)
    assert not may_show("deep", {"a": 1}, {"type": "object"}, 9) and not may_show("many", [1], {"type": "array"}, 9)


@pytest.mark.parametrize("name", ["api_key", "userEmail", "PIN", "Authorization", "access_tokens", "cardNumber"])
def test_names_that_say_private_things_have_no_values(name: str) -> None:
    assert is_private(name) and not may_show(name, 5, {"type": "integer"}, 9)


@pytest.mark.parametrize("name", ["path", "pinned", "keyboard", "lines", "authors"])
def test_names_that_merely_contain_such_a_word_have(name: str) -> None:
    assert not is_private(name)


def test_types_are_told_from_values() -> None:
    assert are_types({"path": "string", "lines": "number"}) and not are_types({"path": "string", "lines": 5})
    assert shape_of({"path": "a", "lines": 5, "note": None}) == (
        ("lines", "number"),
        ("note", "null"),
        ("path", "string"),
    )
