"""Addresses that servers hand to clients: icons that leave us are pictures, and nothing else."""

from __future__ import annotations

import json

import pytest
from requirements import requirement

from foretool.server.trust.members import clean_member, link_place


def icons_of(*sources: object) -> list[str]:
    """The sources that are left of a tool's icons."""
    tool = {"name": "draw", "icons": [{"src": source, "sizes": ["any"]} for source in sources], "x": 1}
    left = json.loads(clean_member(json.dumps(tool).encode()))
    assert (left["name"], left["x"]) == ("draw", 1)
    return [icon["src"] for icon in left.get("icons", [])]


@requirement("trust:links:icons")
@pytest.mark.parametrize(
    "source",
    [
        "javascript:alert(1)", "JavaScript:alert(1)", "java\nscript:alert(1)", "file:///etc/passwd", "ftp://a.example/x",
        "ws://a.example/", "http://icons.example/x.png", "http://169.254.169.254/", "https://169.254.169.254/x.png",
        "https://2852039166/x", "https://0xa9fea9fe/x", "https://0x7f.1/x", "https://[::1]/x.png", "https://127.0.0.1/x",
        "https://localhost/x", "https://localhost./x", "https://router.lan/x", "https://nas.local/x",
        "https://intranet/x",
        "https://metadata.google.internal/x", "https://evil.example\\@icons.example/x", "data:text/html,<script>",
        "data:,",
        "data:image/", "//icons.example/x.png", "x.png", "", 5, None,
    ],
)  # fmt: skip
def test_an_icon_that_is_no_public_picture_does_not_leave_us(source: object) -> None:
    assert icons_of(source) == []
    assert icons_of("https://icons.example/x.png", source) == ["https://icons.example/x.png"]


@requirement("trust:links:icons")
def test_icons_that_are_pictures_stay_byte_for_byte() -> None:
    tool = (
        b'{ "icons": [{"src":"https://icons.example:8443/x.png?a=%20"},{"src":"data:image/png;base64,AAAA"}], "n": 1e2}'
    )
    assert clean_member(tool) is tool
    assert clean_member(b'{"name":"no icons"}') == b'{"name":"no icons"}'


@requirement("trust:links:icons")
def test_icons_that_are_no_list_or_stand_under_an_escaped_key_go() -> None:
    assert json.loads(clean_member(b'{"name":"a","icons":"javascript:1"}')) == {"name": "a"}
    assert json.loads(clean_member(b'{"name":"a","\\u0069cons":[{"src":"javascript:1"}]}')) == {"name": "a"}
    assert json.loads(clean_member(b'{"name":"a","icons":[7,"x",{}]}')) == {"name": "a"}


def test_the_place_of_a_link_is_its_scheme_host_and_port_in_ascii() -> None:
    assert link_place("https://user:pw@Example.org:8443/x?y#z") == "https://example.org:8443"
    assert link_place("http://ex\u00e4mple.org/") == "http://xn--exmple-cua.org"
    for url in ("javascript:1", "https://", "https://a b.example/", "https://a.example\\@b.example/"):
        with pytest.raises(ValueError, match="begins with https://"):
            link_place(url)
