from __future__ import annotations

import json
from typing import Any

import pytest
from fakes import FakeUpstream, config_of, tool

from foretool.fleet.people import listed_tools
from foretool.fleet.people.listed_tools import PersonalTools
from foretool.server.catalog.catalog import Catalog
from foretool.server.protocol.jsonrpc import Raw
from foretool.storage.records import ToolId


def raws(*definitions: Any) -> list[Raw]:
    return [Raw(json.dumps(each).encode()) for each in definitions]


class Shelf:
    """A catalog over one server, and who was listed what of it."""

    def __init__(self) -> None:
        config = config_of(FakeUpstream("mail", []))
        self.catalog = Catalog(list(config.servers.values()))
        self.tools = PersonalTools(self.catalog)

    def take_in(self, person: str, *definitions: Any) -> None:
        self.catalog.replace("mail", self.tools.take_in("mail", person, raws(*definitions)))

    def seen_by(self, person: str) -> set[str]:
        return {each.name for each in self.catalog.tools() if self.tools.sees(person, each)}

    def text_of(self, name: str) -> str:
        found = self.catalog.get(ToolId(f"mail__{name}"))
        assert found is not None
        return str(json.loads(found.definition).get("description", ""))


def test_each_person_sees_what_was_listed_to_them() -> None:
    at = Shelf()
    at.take_in("ann", tool("read"), tool("fire"))
    at.take_in("ben", tool("read"), tool("hire"))
    assert [at.seen_by(each) for each in ("ann", "ben", "cem", "")] == [
        {"read", "fire"},
        {"read", "hire"},
        set(),
        set(),
    ]
    at.take_in("ann", tool("read"))
    assert at.seen_by("ann") == {"read"}
    at.tools.forget("mail", "ben")
    assert at.seen_by("ben") == set() and at.seen_by("ann") == {"read"}
    at.tools.forget("mail")
    assert at.seen_by("ann") == set()


def test_the_words_of_most_people_count_and_the_others_do_not_find_the_tool() -> None:
    at = Shelf()
    at.take_in("ann", tool("read", "for Ann"))
    at.take_in("ben", tool("read", "for all"))
    assert (at.text_of("read"), at.seen_by("ann"), at.seen_by("ben")) == ("for Ann", {"read"}, set())
    at.take_in("cem", tool("read", "for all"))
    assert (at.text_of("read"), at.seen_by("ann"), at.seen_by("ben")) == ("for all", set(), {"read"})
    at.take_in("ann", tool("read", "for all"))
    assert at.seen_by("ann") == {"read"}


def test_a_new_version_replaces_the_old_one_as_people_list_it() -> None:
    at = Shelf()
    for person in ("ann", "ben"):
        at.take_in(person, tool("read", "one"))
    for person in ("ann", "ben"):
        at.take_in(person, tool("read", "two"))
    assert at.text_of("read") == "two" and at.seen_by("ann") == at.seen_by("ben") == {"read"}


def test_broken_definitions_are_nobodys() -> None:
    at = Shelf()
    at.take_in("ann", {"name": "x"}, {"inputSchema": {}}, tool("read"), tool("read", "twice"))
    assert at.seen_by("ann") == {"read"} and at.text_of("read") == ""


def test_a_tool_that_was_known_before_is_shown_to_nobody_until_it_is_listed_to_them() -> None:
    at = Shelf()
    at.catalog.replace("mail", raws(tool("old", "kept from yesterday")))
    assert at.seen_by("ann") == set()
    at.take_in("ann", tool("read"))
    assert at.seen_by("ann") == {"read"} and {each.name for each in at.catalog.tools()} == {"old", "read"}


def test_what_is_kept_of_people_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed_tools, "MOST_PEOPLE", 2)
    at = Shelf()
    for person in ("ann", "ben", "cem"):
        at.take_in(person, tool(person))
    assert [at.seen_by(each) for each in ("ann", "ben", "cem")] == [set(), {"ben"}, {"cem"}]
    known = at.tools._servers["mail"]
    assert set(known.holders) == {"ben", "cem"} and len(known.texts) == 2
