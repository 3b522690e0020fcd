"""URI templates: what fits one, and that hostile ones cost nothing."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretool.server.catalog.uri_templates import MOST_EXPRESSIONS, parse_template


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


@pytest.mark.parametrize(
    ("template", "names"), [("{+any}", False), ("{scheme}://x", False), ("a{b}://", False), ("a://{b}", True)]
)
def test_a_template_that_begins_with_an_expression_names_no_scheme(template: str, names: bool) -> None:
    parsed = parse_template(template)
    assert parsed is not None
    assert parsed.names_scheme is names
