"""Whose a resource is. Attacks: tests/attacks/test_resources.py."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretool.server.catalog.resource_owners import (
    MOST_EXPRESSIONS,
    MOST_TEMPLATES,
    MOST_URIS,
    ResourceOwners,
    _root,
    parse_template,
)
from foretool.storage.steps import finish


def owners(**servers: list[str]) -> ResourceOwners:
    """Servers with these URIs and templates, in this order."""
    found = ResourceOwners()
    for name, texts in servers.items():
        finish(found.note_resources(name, (text for text in texts if "{" not in text)))
        finish(found.note_templates(name, (text for text in texts if "{" in text)))
    return found


BOTH = ("a", "b")


def test_of_two_that_list_a_uri_the_first_that_clients_were_shown_has_it_else_the_first_in_the_config() -> None:
    found = owners(a=["x:1"], b=["x:1"])
    assert found.owner("x:1", "", BOTH) == "a"
    found.hold("", [("x:1", "b")])
    assert found.owner("x:1", "", BOTH) == "b"
    assert found.owner("x:1", "other", BOTH) == "a"
    finish(found.note_resources("b", []))
    assert found.owner("x:1", "", BOTH) == "a"


@pytest.mark.parametrize(
    ("a", "b", "uri", "owner"),
    [
        (["{+any}"], [], "x:1", None),
        (["{+any}"], ["{+any}"], "x:1", None),
        (["{s}://h/{x}"], ["https://h/{x}"], "https://h/1", "b"),
        (["https://h/{x}"], ["https://h/deep/{x}"], "https://h/deep/1", "a"),
        (["https://h/other"], ["https://h/deep/{x}"], "https://h/deep/1", "b"),
        (["https://h/other"], ["https://h/{x}"], "https://h/1", "a"),
        (["https://h"], [], "https://h.evil/1", None),
        (["https://h/1"], [], "https://H/2", "a"),
        (["https://{host}/{x}"], ["https://h/1"], "https://h/2", "b"),
        (["https://{host}/{x}"], [], "https://h/2", None),
        (["https:{+x}", "https:/{+x}", "https://{+x}", "https://h{+x}"], [], "https://h/2", None),
        (["https://h/{+x}"], [], "https://h/2", "a"),
        (["ssh://{+x}"], [], "ssh://h/2", None),
        (["file:///{path}"], ["file:///home/x"], "file:///home/y", "b"),
        (["file:///{path}"], ["file:///home/x"], "file:///etc/y", None),
        (["file:///etc/{path}"], ["file:///home/x"], "file:///etc/y", "a"),
        (["urn:{x}", "data:{x}"], [], "urn:isbn:1", None),
        (["urn:isbn:{x}"], [], "urn:isbn:1", "a"),
        (["note://{x}"], [], "note://out/1", "a"),
        (["note://{x}"], ["note://in/1"], "note://out/1", None),
        (["note://{x}"], ["note://{y}"], "note://out/1", None),
        (["note:{x}"], ["note:1"], "note:2", "b"),
        (["note:{x}"], [], "note:2", "a"),
        (["b://{x}", "b:{x}"], [], "b://out/1", None),
        (["note://in/1"], [], "note://out/1", "a"),
        (["note://in/1"], ["note://by/1"], "note://out/1", None),
        (["note:1"], ["other:1"], "note:2", "a"),
        ([], [], "x:1", None),
        ([], [], "no uri", None),
    ],
)
def test_a_uri_that_nobody_lists_belongs_to_one_server_or_to_none(
    a: list[str], b: list[str], uri: str, owner: str | None
) -> None:
    assert owners(a=a, b=b).owner(uri, "", BOTH) == owner


def test_the_only_server_of_a_profile_is_asked_for_what_no_server_lists() -> None:
    found = owners(a=["x:1"], b=["y:1", "https://h/{x}"])
    assert found.owner("z:1", "", ("a",)) == "a"
    for uri in ("y:1", "y:2", "https://h/2"):
        assert found.owner(uri, "", ("a",)) is None


def test_a_link_counts_where_nobody_else_has_what_it_names() -> None:
    found = owners(a=["https://h/{x}", "x:1"], b=[])
    found.note_links("b", ["https://h/2", "x:1", "y:1"])
    assert [found.owner(uri, "", BOTH) for uri in ("https://h/2", "x:1", "y:1")] == ["a", "a", "b"]
    assert found.owner("ui://b/page", "", BOTH, naming=BOTH) == "b"


def test_a_page_belongs_to_the_server_whose_tools_name_it_unless_others_alone_list_it() -> None:
    found = owners(a=["ui://x/1", "ui://b/1"], b=["ui://x/3"])
    assert found.owner("ui://x/1", "", BOTH, naming=["b"]) is None, "one may want to be shown in place of the other"
    assert found.owner("ui://b/1", "", BOTH, naming=["b"]) == "b", "its own name stands in it"
    assert found.owner("ui://x/2", "", BOTH, naming=["b"]) == "b"
    assert found.owner("ui://x/3", "", BOTH, naming=["a", "b"]) == "a", "as the list of tools says"
    assert found.owner("https://h/1", "", BOTH, naming=["b"]) == "b"
    assert owners(a=["https://h/1"], b=[]).owner("https://h/1", "", BOTH, naming=["b"]) == "a", "only pages are named"


def test_a_template_belongs_to_the_first_that_lists_it() -> None:
    found = owners(a=["{+any}"], b=["{+any}", "x:{y}"])
    assert found.template_owner("x:{y}", BOTH) == "b"
    assert found.template_owner("{+any}", BOTH) is None


def test_of_a_server_that_lists_without_end_some_is_remembered() -> None:
    found = owners(a=[f"x:{number}" for number in range(MOST_URIS + 1)] + ["y:" + "1" * 10_000])
    finish(found.note_templates("a", (f"z:{number}{{x}}" for number in range(MOST_TEMPLATES + 1))))
    found.note_links("a", (f"l:{number}" for number in range(1001)))
    assert (len(found._listed["a"]), len(found._templates["a"])) == (MOST_URIS, MOST_TEMPLATES)
    assert next(iter(found._linked["a"])) == "l:1"


@pytest.mark.parametrize(
    ("uri", "whole", "root"),
    [
        ("https://Api.GitHub.com/x", True, "https://api.github.com/"),
        ("https://user@h/x", True, "https://h/"),
        ("https://h", True, "https://h/"),
        ("https://h", False, ""),
        ("https://h?", False, "https://h/"),
        ("file:///home/me/a", True, "file:///home/"),
        ("file:///home", True, ""),
        ("note:1", True, "note:"),
        ("urn:isbn:1", True, ""),
        ("/path", True, ""),
    ],
)
def test_the_beginning_of_a_uri_says_whose_it_is(uri: str, whole: bool, root: str) -> None:
    assert _root(uri, whole=whole) == root


@pytest.mark.parametrize(
    ("template", "uri", "fits"),
    [
        ("file:///{path}", "file:///a/b", True),
        ("file:///{path}", "files:///a", False),
        ("db://{table}/{id}", "db://t/1", True),
        ("db://{table}/{id}", "db://t", False),
        ("a.b{?x}", "a.b?x=1", True),
        ("a.b{?x}", "axb?x=1", False),
        ("a{x}a", "aa", True),
        ("a{x}a", "a", False),
        ("{x}ab{y}b", "abb", True),
        ("{x}ab{y}ab", "ab", False),
        ("a{", "a{", True),
        ("a", "ab", False),
        ("", "", True),
    ],
)
def test_a_template_fits_what_it_can_expand_to(template: str, uri: str, fits: bool) -> None:
    parsed = parse_template(template)
    assert parsed is not None
    assert parsed.fits(uri) is fits


@given(st.lists(st.text("ab", max_size=3), min_size=1, max_size=5), st.text("ab", max_size=12))
def test_it_fits_what_the_pattern_fits_that_it_stands_for(literals: list[str], uri: str) -> None:
    parsed = parse_template("{x}".join(literals))
    assert parsed is not None
    assert parsed.fits(uri) is bool(re.fullmatch(".*".join(map(re.escape, literals)), uri))


@pytest.mark.parametrize("template", ["{a}" * 10_000, "{a}x" * 10_000, "{" * 10_000, "x" * 10_000])
def test_a_template_with_thousands_of_expressions_is_not_matched(template: str) -> None:
    assert parse_template(template) is None


def test_the_richest_template_reads_a_long_uri_a_few_times_at_most() -> None:
    parsed = parse_template("{x}a" * (MOST_EXPRESSIONS - 1) + "{x}b")
    assert parsed is not None
    assert not parsed.fits("a" * 1_000_000)  # `.*a.*a...` would take years
