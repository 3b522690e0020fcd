"""Who may open what over HTTP."""

from __future__ import annotations

import json

import pytest
from issuer_fakes import ISSUER, RESOURCE, access_entry, key_set, token

from foretool.fleet.people.issuer import ConfiguredIssuer, principal_of
from foretool.server.config.settings import TokenEntry
from foretool.server.config.tokens import digest
from foretool.server.signin.record import read_challenge
from foretool.server.transports.client.access import Access, all_scopes, challenge, metadata, metadata_url
from foretool.server.transports.client.security import RequestRefused

pytestmark = pytest.mark.anyio
PROFILES = ("", "work", "home")


def access(**tokens: list[str]) -> Access:
    entries = [
        TokenEntry(name=token, sha256=digest(token), profiles=tuple(profiles)) for token, profiles in tokens.items()
    ]
    return Access(entries, ["", "work", "play"])


async def test_a_token_is_compared_whole_and_its_principal_does_not_tell_it() -> None:
    found = access(s3cret=["*"])
    assert "s3cret" not in (await found.identify("bearer s3cret")).principal
    for wrong in ("", "Bearer", "Bearer ", "Bearer s3cre", "Bearer s3cret2", "Basic s3cret", "s3cret", "Bearer \u0439"):
        with pytest.raises(RequestRefused) as refused:
            await found.identify(wrong)
        assert refused.value.status == 401


async def test_each_token_opens_its_profiles_alone() -> None:
    found = access(one=["work"], all=["*"], plain=["default"])
    people = {token: await found.identify(f"Bearer {token}") for token in ("one", "all", "plain")}
    opened = {
        token: [name for name in ("", "work", "play", "no") if found.opens(at, name)] for token, at in people.items()
    }
    assert opened == {"one": ["work"], "all": ["", "work", "play"], "plain": [""]}
    assert found.shares == 3


async def test_without_tokens_nothing_is_open_unless_everything_is() -> None:
    anybody = await Access([], ["", "work"], is_open=True).identify("")
    assert anybody.principal == "" and Access([], ["", "work"], is_open=True).opens(anybody, "work")
    assert not Access([], ["", "work"]).opens(anybody, "work")
    with pytest.raises(RequestRefused):
        await Access([], [""]).identify("")


async def test_what_a_token_opens_and_whether_it_decides() -> None:
    entries = [
        TokenEntry(name="owner", sha256=digest("owner"), profiles=("*",), may_decide=True),
        TokenEntry(name="clerk", sha256=digest("clerk"), profiles=("work",)),
    ]
    access = Access(entries, ("", "work"))
    owner, clerk = await access.identify("Bearer owner"), await access.identify("Bearer clerk")
    assert (owner.name, owner.profiles, owner.may_decide) == ("owner", {"", "work"}, True)
    assert (clerk.name, clerk.profiles, clerk.may_decide) == ("clerk", {"work"}, False)
    assert Access(entries[:1], ("", "work")).again(clerk) is None and not access.is_open


async def test_tokens_of_the_config_go_on_beside_those_of_an_authorization_server() -> None:
    entry = TokenEntry(name="robot", sha256=digest("robot"), profiles=("work",))
    found = Access([entry], PROFILES, issuer=ConfiguredIssuer(access_entry(), PROFILES, key_set()))
    robot, ann = await found.identify("Bearer robot"), await found.identify(f"Bearer {token(groups=['developers'])}")
    assert robot.profiles == ann.profiles == {"work"} and robot.principal != ann.principal
    for identity in (robot, ann):
        assert found.opens(identity, "work") and not found.opens(identity, "home")
        assert not Access([], PROFILES).opens(identity, "work"), "what the config no longer names opens nothing"


async def test_one_subject_of_two_issuers_is_two_people() -> None:
    pairs = [
        ("https://a.example", "1"),
        ("https://b.example", "1"),
        ("https://a.example1", ""),
        ("https://a.exampl", "e1"),
    ]
    assert len({principal_of(*pair) for pair in pairs}) == len(pairs)


async def test_who_shows_no_token_is_told_where_to_sign_in() -> None:
    found = Access([], PROFILES, issuer=ConfiguredIssuer(access_entry(scopes=("mcp",)), PROFILES, key_set()))
    for nothing in ("", "Bearer", "Basic dTpw", token()):
        with pytest.raises(RequestRefused) as refused:
            await found.identify(nothing)
        assert refused.value.headers == {
            "www-authenticate": 'Bearer scope="mcp", resource_metadata='
            '"https://tools.example.com/.well-known/oauth-protected-resource/mcp"'
        }


async def test_a_profile_that_a_scope_opens_is_a_challenge_and_any_other_looks_like_none() -> None:
    found = Access([], PROFILES, issuer=ConfiguredIssuer(access_entry(scopes=("mcp",)), PROFILES, key_set()))
    ann = await found.identify(f"Bearer {token(groups=['developers'], scope='mcp')}")
    asked = found.refusal(ann, "home")
    assert asked is not None and asked.status == 403 and 'scope="mcp home"' in asked.headers["www-authenticate"]
    assert found.refusal(ann, "none") is None
    eve = await found.identify(f"Bearer {token('eve', scope='mcp')}")
    none = found.refusal(eve, "none")
    assert none is not None and none.status == 403 and "no entry of" in str(none)


@pytest.mark.parametrize(
    ("resource", "url"),
    [
        (RESOURCE, "https://tools.example.com/.well-known/oauth-protected-resource/mcp"),
        ("https://tools.example.com", "https://tools.example.com/.well-known/oauth-protected-resource"),
        ("https://x.example:8443/a/mcp/", "https://x.example:8443/.well-known/oauth-protected-resource/a/mcp"),
    ],
)
def test_the_metadata_is_between_host_and_path(resource: str, url: str) -> None:
    assert metadata_url(access_entry(resource=resource)) == url


def test_the_metadata_names_resource_issuer_and_scopes() -> None:
    assert json.loads(metadata(access_entry(scopes=("mcp",)))) == {
        "resource": RESOURCE,
        "authorization_servers": [ISSUER],
        "bearer_methods_supported": ["header"],
        "resource_name": "foretool",
        "scopes_supported": ["mcp", "home", "decide"],
    }
    assert all_scopes(access_entry(grants=())) == ()


def test_our_own_sign_in_reads_our_challenge() -> None:
    found = read_challenge(challenge(access_entry(), "insufficient_scope", "more, please", ("mcp", "home")))
    assert (found.error, found.scope) == ("insufficient_scope", "mcp home")
    assert found.resource_metadata == metadata_url(access_entry())
