"""Which tokens of an authorization server are believed, and what they open."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st
from issuer_fakes import (
    EC_KEY,
    ED_KEY,
    ISSUER,
    KEYS,
    OTHER_KEY,
    RESOURCE,
    RSA_KEY,
    Documents,
    access_entry,
    jwk,
    key_set,
    token,
)
from requirements import requirement

from foretool.fleet.people import issuer as module
from foretool.fleet.people.issuer import (
    ConfiguredIssuer,
    grant_fits,
    name_of,
    opened_by,
    principal_of,
    scopes_for,
    scopes_of,
    values_of,
)
from foretool.server.config.settings import GrantEntry
from foretool.server.transports.client.security import RequestRefused

pytestmark = pytest.mark.anyio
PROFILES = ("", "work", "home")


def now(after: int = 0) -> int:
    return int(time.time()) + after


def an_issuer(documents: Documents | None = None, **entry: Any) -> ConfiguredIssuer:
    return ConfiguredIssuer(access_entry(**entry), PROFILES, key_set(documents))


async def refusal(issuer: ConfiguredIssuer, shown: str) -> RequestRefused:
    with pytest.raises(RequestRefused) as refused:
        await issuer.identify(shown)
    return refused.value


def part(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def confused(header: dict[str, Any], secret: bytes) -> str:
    """A token that says to be signed with a shared secret, which is a public text of the issuer."""
    claims = {"iss": ISSUER, "sub": "ann", "aud": RESOURCE, "exp": now(300), "groups": ["developers"]}
    written = f"{part(header)}.{part(claims)}"
    digest = hmac.digest(secret, written.encode(), hashlib.sha256)
    return f"{written}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


PEM = RSA_KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
EVIL_JWK = jwk(OTHER_KEY, kid="rsa")


@requirement("trust:http:issuer")
@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (lambda: token(exp=now(-31)), "has expired"),
        (lambda: token(exp=None), "lacks a claim"),
        (lambda: token(exp="soon"), "not well-formed"),
        (lambda: token(nbf=now(60)), "not valid yet"),
        (lambda: token(iat=now(60)), "not valid yet"),
        (lambda: token(aud="https://other.example.com/mcp"), "another audience"),
        (lambda: token(aud=f"{RESOURCE}/work"), "another audience"),
        (lambda: token(aud=[]), "lacks a claim"),
        (lambda: token(aud=None), "lacks a claim"),
        (lambda: token(iss="https://evil.example.com"), "another issuer"),
        (lambda: token(iss=f"{ISSUER}/"), "another issuer"),
        (lambda: token(iss=None), "lacks a claim"),
        (lambda: token(""), "not well-formed"),
        (lambda: token(sub=None), "lacks a claim"),
        (lambda: token(sub="x" * 1001), "not well-formed"),
        (lambda: token(cnf={"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"}), "not well-formed"),
        (lambda: token(key=OTHER_KEY), "signature of the token does not fit"),
        (lambda: token(key=OTHER_KEY, headers={"jwk": EVIL_JWK}), "signature of the token does not fit"),
        (lambda: token(key=OTHER_KEY, headers={"kid": None, "jku": "https://evil.example.com/keys"}), "does not fit"),
        (lambda: token(headers={"kid": "../../dev/null"}), "not signed with a key of its issuer"),
        (lambda: token(headers={"kid": "rsa' OR '1'='1"}), "not signed with a key of its issuer"),
        (lambda: token(headers={"kid": "http://169.254.169.254/keys"}), "not signed with a key of its issuer"),
        (lambda: token(headers={"kid": "ec"}), "not signed with a key of its issuer"),
        (lambda: token(headers={"typ": "logout+jwt"}), "another purpose"),
        (lambda: token(headers={"typ": "dpop+jwt"}), "another purpose"),
        (lambda: token(headers={"crit": ["exp"]}), "neither a token of"),
                (lambda: confused({"alg": "none", "typ": "at+jwt"}, b""), "not signed by one of"),
        (lambda: confused({"alg": "None", "kid": "rsa"}, b""), "not signed by one of"),
        (lambda: confused({"alg": "HS256", "kid": "rsa", "typ": "at+jwt"}, PEM), "not signed by one of"),
        (lambda: confused({"alg": "RS256", "kid": "rsa", "typ": "at+jwt"}, PEM), "does not fit"),
        (lambda: confused({"alg": ["RS256"], "kid": "rsa"}, PEM), "not signed by one of"),
        (lambda: confused({"alg": "RS256", "kid": {"a": 1}, "typ": "at+jwt"}, PEM), "neither a token of the"),
        (lambda: token() + "x", "token"),
        (lambda: token().rpartition(".")[0] + ".", "token"),
        (lambda: "a.b.c", "neither a token of the authorization server"),
        (lambda: "a.b.c.d.e", "neither a token of the authorization server"),
        (lambda: part({"alg": "RS256"})[:-1] + "." + "[" * 5000 + ".x", "token"),
        (lambda: token(filler="x" * 20_000), "neither a token of the authorization server"),
    ],
)  # fmt: skip
async def test_a_forged_or_foreign_token_is_refused(shown: Any, said: str) -> None:
    refused = await refusal(an_issuer(), shown())
    assert refused.status == 401 and said in str(refused)
    header = refused.headers["www-authenticate"]
    assert header.startswith('Bearer error="invalid_token", error_description="')
    assert 'resource_metadata="https://tools.example.com/.well-known/oauth-protected-resource/mcp"' in header


@requirement("trust:http:issuer")
@pytest.mark.parametrize(
    ("key", "algorithm", "kid"),
    [(RSA_KEY, "RS256", "rsa"), (RSA_KEY, "PS256", "rsa"), (EC_KEY, "ES256", "ec"), (ED_KEY, "EdDSA", "ed")],
)
@pytest.mark.parametrize("named", [True, False])
async def test_a_token_of_the_issuer_is_believed(key: Any, algorithm: str, kid: str, named: bool) -> None:
    issuer = an_issuer()
    shown = token(key=key, algorithm=algorithm, headers={"kid": kid if named else None}, groups=["developers"])
    found = await issuer.identify(shown)
    assert found.profiles == {"work"} and not found.may_decide and found.name == "ann"
    assert found.principal.startswith("oauth:") and "ann" not in found.principal and shown not in repr(found)


async def test_types_of_common_issuers_and_small_differences_of_clocks_are_taken() -> None:
    issuer = an_issuer()
    for kind in ("JWT", None, "application/at+jwt", "AT+JWT"):
        await issuer.identify(token(headers={"typ": kind}))
    await issuer.identify(token(exp=now(-5), nbf=now(20), iat=now(20), aud=["other", RESOURCE]))


async def test_claims_open_profiles() -> None:
    issuer = an_issuer()
    opened = {
        "group": {"groups": ["ops-eu", "x"]},
        "scope": {"scope": "mcp home"},
        "both": {"scope": "home", "groups": "developers"},
        "decider": {"scope": "decide"},
        "nothing": {"groups": ["Developers", "developers2", "operators"]},
        "odd": {"groups": {"developers": True}},
    }
    found = {name: await issuer.identify(token(name, **claims)) for name, claims in opened.items()}
    assert {name: set(each.profiles) for name, each in found.items()} == {
        "group": {"work"}, "scope": {"home"}, "both": {"work", "home"}, "decider": set(PROFILES), "nothing": set(),
        "odd": set(),
    }  # fmt: skip
    assert [name for name, each in found.items() if each.may_decide] == ["decider"]


async def test_a_missing_scope_is_a_challenge_that_names_what_is_needed() -> None:
    refused = await refusal(an_issuer(scopes=("mcp", "tools")), token(scope="mcp"))
    assert refused.status == 403
    header = refused.headers["www-authenticate"]
    assert 'error="insufficient_scope"' in header and 'scope="mcp tools"' in header and "resource_metadata=" in header
    assert (await an_issuer(scopes=("mcp",)).identify(token(scp=["mcp"]))).name == "ann"


async def test_a_token_is_checked_once_and_ends_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    issuer, shown = an_issuer(), token(groups=["developers"])
    await issuer.identify(token("bob"))  # the keys are there now
    first = await issuer.identify(shown)
    monkeypatch.setattr(issuer, "_check", None)
    assert await issuer.identify(shown) is first
    clock = time.time
    monkeypatch.setattr(module.time, "time", lambda: clock() + 331)
    assert "expired" in str(await refusal(issuer, shown))


async def test_a_withdrawn_key_ends_its_tokens() -> None:
    documents = Documents()
    issuer, shown = an_issuer(documents), token()
    await issuer.identify(shown)
    documents.keys = {"keys": [jwk(OTHER_KEY, kid="new")]}
    issuer.keys._tried_at -= 60
    await issuer.identify(token(key=OTHER_KEY, headers={"kid": "new"}))
    assert "not signed with a key" in str(await refusal(issuer, shown))


async def test_what_was_allowed_follows_the_config() -> None:
    issuer = an_issuer()
    found = await issuer.identify(token(groups=["developers"], scope="home"))
    later = an_issuer(grants=access_entry().grants[:1])
    again = later.again(found)
    assert again is not None and again.profiles == {"work"}
    for other in ({"issuer": "https://other.example.com"}, {"audience": ("x",)}, {"scopes": ("more",)}):
        assert an_issuer(**other).again(found) is None


async def test_without_keys_nobody_is_sent_to_sign_in_again() -> None:
    documents = Documents()
    documents.is_away = True
    refused = await refusal(an_issuer(documents), token())
    assert refused.status == 503 and refused.headers["retry-after"] and "did not answer" in str(refused)


def test_the_keys_of_the_tests_are_what_servers_show() -> None:
    assert {key["kty"] for key in KEYS["keys"]} == {"RSA", "EC", "OKP"}


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
    assert grant_fits(grant, {"scp": ["tools.read"]}) and not grant_fits(grant, {"scope": "Tools.read"})
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
