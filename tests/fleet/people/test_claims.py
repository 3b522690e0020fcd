"""What claims say."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from issuer_fakes import access_entry

from foretool.fleet.people.claims import fits, name_of, opened_by, principal_of, scopes_for, scopes_of, values_of
from foretool.server.config.settings import GrantEntry


@pytest.mark.parametrize(
    ("claims", "claim", "found"),
    [
        ({"groups": ["a", "b"]}, "groups", ["a", "b"]),
        ({"groups": "a b"}, "groups", ["a b"]),
        ({"scope": "a  b"}, "scope", ["a", "b"]),
        ({"scp": ["a", "b"]}, "scp", ["a", "b"]),
        ({"realm_access": {"roles": ["a"]}}, "realm_access.roles", ["a"]),
        ({"https://example.com/groups": ["a"]}, "https://example.com/groups", ["a"]),
        ({"a.b": "x", "a": {"b": "y"}}, "a.b", ["x"]),
        ({"email_verified": True, "level": 3}, "email_verified", ["true"]),
        ({"level": 3}, "level", ["3"]),
        ({"groups": [["a"], {"a": 1}, None, "b"]}, "groups", ["b"]),
        ({"groups": {"a": 1}}, "groups", []),
        ({"a": "b"}, "a.b.c", []),
        ({}, "groups", []),
    ],
)
def test_values_of_a_claim(claims: dict[str, object], claim: str, found: list[str]) -> None:
    assert values_of(claims, claim) == found


def test_a_scope_may_stand_in_either_claim_and_patterns_follow_case() -> None:
    assert scopes_of({"scope": "a b", "scp": ["c"]}) == {"a", "b", "c"}
    grant = GrantEntry(claim="scope", values=("tools.*",), profiles=("work",))
    assert fits(grant, {"scp": ["tools.read"]}) and not fits(grant, {"scope": "Tools.read"})
    assert opened_by([grant], ("", "work", "home")) == {"work"} and opened_by([], ("",)) == frozenset()


def test_scopes_that_would_open_a_profile() -> None:
    entry, profiles = access_entry(scopes=("mcp",)), ("", "work", "home")
    assert scopes_for(entry, "home", profiles) == ("mcp", "home")
    assert scopes_for(access_entry(grants=entry.grants[:1]), "work", profiles) == ()


def test_a_name_is_one_short_line_and_rights_do_not_hang_on_it() -> None:
    assert name_of({"sub": "1", "email": "a@b.c"}) == "a@b.c"
    assert name_of({"sub": "ann", "client_id": "cursor", "azp": "cursor"}) == "ann"
    shown = name_of({"preferred_username": "ann\n\x1b[31m\u202eroot\u200b" + "x" * 500})
    assert len(shown) <= 80 and shown.isprintable() and name_of({}) == ""


@given(st.text(), st.text(), st.text(), st.text())
def test_two_people_are_never_one(issuer: str, subject: str, other_issuer: str, other: str) -> None:
    same = (issuer, subject) == (other_issuer, other)
    assert (principal_of(issuer, subject) == principal_of(other_issuer, other)) is same
