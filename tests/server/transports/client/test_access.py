"""Who may open what over HTTP."""

from __future__ import annotations

import pytest

from foretool.server.config.settings import TokenEntry
from foretool.server.config.tokens import digest
from foretool.server.transports.client.access import Access
from foretool.server.transports.client.security import Refused


def access(**tokens: list[str]) -> Access:
    entries = [
        TokenEntry(name=token, sha256=digest(token), profiles=tuple(profiles)) for token, profiles in tokens.items()
    ]
    return Access(entries, ["", "work", "play"])


def test_a_token_is_compared_whole_and_its_principal_does_not_tell_it() -> None:
    found = access(s3cret=["*"])
    assert "s3cret" not in found.identify("bearer s3cret")
    for wrong in ("", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3cret2", "Basic s3cret", "s3cret", "Bearer \u0439"):
        with pytest.raises(Refused) as refused:
            found.identify(wrong)
        assert refused.value.status == 401


def test_each_token_opens_its_profiles_alone() -> None:
    found = access(one=["work"], all=["*"], plain=["default"])
    principals = {token: found.identify(f"Bearer {token}") for token in ("one", "all", "plain")}
    opened = {
        token: [name for name in ("", "work", "play", "no") if found.opens(at, name)]
        for token, at in principals.items()
    }
    assert opened == {"one": ["work"], "all": ["", "work", "play"], "plain": [""]}
    assert found.shares == 3


def test_without_tokens_nothing_is_open_unless_everything_is() -> None:
    assert Access([], ["", "work"], is_open=True).identify("") == ""
    assert Access([], ["", "work"], is_open=True).opens("", "work")
    assert not Access([], ["", "work"]).opens("", "work")
    with pytest.raises(Refused):
        Access([], [""]).identify("")


def test_what_a_token_opens_and_whether_it_decides() -> None:
    entries = [
        TokenEntry(name="owner", sha256="a" * 64, profiles=("*",), may_decide=True),
        TokenEntry(name="clerk", sha256="b" * 64, profiles=("work",)),
    ]
    access = Access(entries, ("", "work"))
    owner, clerk = "bearer:" + "a" * 32, "bearer:" + "b" * 32
    assert access.opened_by(owner) == {"", "work"} and access.opens_all(owner) and access.may_decide(owner)
    assert access.opened_by(clerk) == {"work"} and not access.opens_all(clerk) and not access.may_decide(clerk)
    assert access.opened_by("bearer:none") == frozenset() and not access.is_open
