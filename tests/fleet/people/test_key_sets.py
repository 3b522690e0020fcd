"""The keys of an authorization server: read once, bounded, and again when they change."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from http_fakes import Asked, serving, upstream
from issuer_fakes import ISSUER, KEYS, OTHER_KEY, RSA_KEY, Documents, jwk, key_set

from foretool.fleet.people import key_sets
from foretool.fleet.people.key_sets import KeySet, KeysMissing, metadata_urls, read_keys
from foretool.server.signin import fetch
from foretool.server.signin.fetch import FetchError

pytestmark = pytest.mark.anyio


async def test_the_keys_are_read_once_however_many_ask() -> None:
    documents = Documents()
    keys = key_set(documents)
    found = await asyncio.gather(*(keys.find("rsa", "RS256") for _ in range(50)))
    assert all(len(each) == 1 for each in found)
    assert documents.asked == [metadata_urls(ISSUER)[0], f"{ISSUER}/keys"]


async def test_unknown_names_have_the_keys_read_again_once_in_a_while() -> None:
    documents = Documents()
    keys = key_set(documents, jwks_url="https://login.example.com/keys")
    assert await keys.find("rsa", "RS256")
    for at in range(1000):
        assert await keys.find(f"../{at}?x=#", "RS256") == []
    assert documents.asked == ["https://login.example.com/keys"]
    documents.keys = {"keys": [jwk(OTHER_KEY, kid="new")]}
    keys._tried_at -= key_sets.PAUSE_S
    assert await keys.find("new", "RS256") and not await keys.find("rsa", "RS256")
    assert len(documents.asked) == 2 and keys.version == 2


async def test_keys_stay_while_their_server_is_away_but_not_for_ever() -> None:
    documents = Documents()
    keys = key_set(documents)
    await keys.find("rsa", "RS256")
    documents.is_away = True
    keys._read_at -= key_sets.FRESH_S
    keys._tried_at -= key_sets.FRESH_S
    assert await keys.find("rsa", "RS256"), "nobody waits for keys that are known"
    await keys.close()
    keys._read_at -= key_sets.STALE_S
    with pytest.raises(KeysMissing):
        await keys.find("rsa", "RS256")


async def test_metadata_of_another_issuer_is_not_believed() -> None:
    documents = Documents()
    documents.issuer = ISSUER + "/"
    with pytest.raises(KeysMissing, match="names another issuer; write that one, letter by letter"):
        await key_set(documents).find("rsa", "RS256")


@pytest.mark.parametrize(
    "entry",
    [
        {"kty": "oct", "k": "c2VjcmV0", "kid": "x"},
        jwk(RSA_KEY, use="enc"),
        jwk(RSA_KEY, key_ops=["encrypt"]),
        jwk(RSA_KEY, alg="HS256"),
        jwk(RSA_KEY, alg="RSA-OAEP"),
        jwk(RSA_KEY, kid="x" * 257),
        jwk(rsa.generate_private_key(public_exponent=65537, key_size=1024)),
        jwk(ec.generate_private_key(ec.SECP256K1())),
        {"kty": "RSA", "n": "AQAB", "e": "AQAB"},
        {"kty": "RSA"},
        {"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"},
        [],
    ],
)
def test_a_key_that_checks_no_signature_is_left_out(entry: Any) -> None:
    with pytest.raises(FetchError, match="no key"):
        read_keys({"keys": [entry]})


def test_a_key_checks_what_it_is_made_for_and_few_are_kept() -> None:
    (only,) = read_keys({"keys": [jwk(RSA_KEY, alg="PS256")]})
    assert only.algorithms == ("PS256",)
    assert len(read_keys({"keys": [jwk(RSA_KEY, kid=str(at)) for at in range(200)]})) == key_sets.MOST_KEYS
    for odd in (None, [], {}, {"keys": {}}, {"keys": "x"}):
        with pytest.raises(FetchError):
            read_keys(odd)


async def test_a_server_that_hangs_or_floods_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_sets, "WAIT_S", 1.5)
    monkeypatch.setattr(fetch, "PATIENCE_S", 5.0)
    hangs = asyncio.Event()

    async def answer(asked: Asked) -> None:
        if asked.path == "/hangs":
            await hangs.wait()
        elif asked.path == "/moved":
            await asked.answer(b"", 302, location="http://127.0.0.1:1/keys")
        elif asked.path == "/huge":
            await asked.answer(json.dumps({"keys": [{"pad": "x" * 1_000_000}]}).encode())
        elif asked.path == "/deep":
            await asked.answer(b"[" * 100_000)
        elif asked.path == "/html":
            await asked.answer(b"<html>")
        else:
            await asked.answer(KEYS)

    async with serving(upstream(answer)) as base:
        no_json = "something else than JSON"
        said_of = {"moved": "HTTP 302", "huge": "more than 256 KiB", "html": no_json, "deep": no_json}
        for path, said in said_of.items():
            with pytest.raises(KeysMissing, match=said):
                await KeySet(base, f"{base}/{path}").find("rsa", "RS256")
        slow = KeySet(base, f"{base}/hangs")
        started = asyncio.get_running_loop().time()
        tries = [asyncio.create_task(slow.find(f"k{at}", "RS256")) for at in range(100)]
        assert await KeySet(base, f"{base}/keys").find("rsa", "RS256"), "others go on meanwhile"
        for each in tries:
            with pytest.raises(KeysMissing, match="still being read"):
                await each
        assert asyncio.get_running_loop().time() - started < 4.5
        hangs.set()
        await slow.close()


def test_where_the_metadata_may_be() -> None:
    assert metadata_urls("https://a.example/t") == [
        "https://a.example/.well-known/oauth-authorization-server/t",
        "https://a.example/.well-known/openid-configuration/t",
        "https://a.example/t/.well-known/openid-configuration",
    ]
    assert len(metadata_urls("https://a.example")) == 2
