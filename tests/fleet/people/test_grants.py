"""Consents and grants: whose they become, who can use them, and when they end."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import time
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from requirements import requirement

from foretool.fleet.people import grants as module
from foretool.fleet.people.credentials import CredentialError
from foretool.fleet.people.grants import Grants, GrantSource
from foretool.server.config.settings import PerUserEntry
from foretool.storage.engine import StorageError
from foretool.storage.records import AuditEntry, AuditFilter, SealedGrant
from foretool.storage.store import Store

pytestmark = pytest.mark.anyio
KEY, OTHER = (base64.b64encode(os.urandom(32)).decode() for _ in range(2))


def entry(person: str, outcome: str) -> AuditEntry:
    return AuditEntry(1.0, f"oauth:{person}", person, "c", "", "connect", "mail", outcome)


ENTRY = entry("ann", "connected")


class Named:
    """A server as far as grants know it."""

    def __init__(self, name: str, **entry: Any) -> None:
        self.url = f"https://{name}.example/mcp"
        self.per_user = PerUserEntry(
            token_endpoint=f"https://{name}.example/token", client_id="foretool", client_secret="s3cret",
            authorization_endpoint=f"https://{name}.example/authorize", scopes=("read", "write"),
            revocation_endpoint=f"https://{name}.example/revoke", **entry,
        )  # fmt: skip


class Replica:
    """One replica over a database that it may share."""

    def __init__(self, store: Store, *keys: str) -> None:
        self.store = store
        self.keys = keys or (KEY,)
        self.forms: list[tuple[str, dict[str, str]]] = []
        self.answers: list[tuple[int, dict[str, Any]]] = []
        self.is_away = False
        servers: Any = {"mail": Named("mail"), "git": Named("git")}
        self.grants = Grants(
            self.of_store, lambda: self.keys, "https://tools.example.com/mcp", lambda: servers, self.post
        )
        self.source = GrantSource(self.grants, "mail")

    def of_store(self) -> Any:
        if self.is_away:
            raise StorageError("away")
        return self.store

    async def post(self, url: str, headers: Any, content: bytes) -> tuple[int, dict[str, Any]]:
        self.forms.append((url, {name: values[0] for name, values in parse_qs(content.decode()).items()}))
        if self.answers:
            return self.answers.pop(0)
        count = len(self.forms)
        return 200, {"access_token": f"access-{count}", "refresh_token": f"refresh-{count}", "token_type": "bearer",
                     "expires_in": 3600}  # fmt: skip

    async def allow(self, person: str, server: str = "mail") -> str:
        link = self.grants.link(server, person)
        return await self.grants.come_back(parse_qs(urlsplit(link).query)["state"][0], "the-code")

    async def connect(self, person: str, server: str = "mail") -> None:
        self.grants.confirm(server, person, await self.allow(person, server), entry(person, "connected"))


async def test_the_link_asks_for_what_the_config_says_and_the_code_is_bound_to_it(store: Store) -> None:
    at = Replica(store)
    link = at.grants.link("mail", "ann")
    assert link.startswith("https://mail.example/authorize?")
    asked = {name: values[0] for name, values in parse_qs(urlsplit(link).query).items()}
    challenge, state = asked.pop("code_challenge"), asked.pop("state")
    assert asked == {
        "response_type": "code", "client_id": "foretool", "redirect_uri": "https://tools.example.com/connect/callback",
        "code_challenge_method": "S256", "resource": "https://mail.example/mcp", "scope": "read write",
    }  # fmt: skip
    await at.grants.come_back(state, "the-code")
    ((url, form),) = at.forms
    assert url == "https://mail.example/token" and form["code"] == "the-code"
    digest = hashlib.sha256(form["code_verifier"].encode()).digest()
    assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == challenge and form["redirect_uri"] in link.replace(
        "%3A", ":").replace("%2F", "/")  # fmt: skip


@requirement("trust:per-user")
async def test_a_grant_becomes_that_of_whoever_began_it_and_brings_the_code(store: Store) -> None:
    at = Replica(store)
    code = await at.allow("ann")
    for server, person, written in (
        ("mail", "eve", code), ("git", "ann", code), ("mail", "ann", "AAAA-AAAA-AAAA"), ("mail", "", code),
        ("mail", "an", "n" + code), ("mai", "lann", code),
    ):  # fmt: skip
        with pytest.raises(CredentialError, match=r"not known|nothing to allow"):
            at.grants.confirm(server, person, written, ENTRY)
    at.grants.confirm("mail", "ann", f" {code.lower()} ", ENTRY)
    with pytest.raises(CredentialError, match="not known"):
        at.grants.confirm("mail", "ann", code, ENTRY)
    assert (await at.source.fetch("ann", "")).token == "access-1"
    assert at.grants.load("mail", "eve") is None and at.grants.load("git", "ann") is None


@requirement("trust:per-user")
async def test_a_link_that_somebody_else_opened_gives_nothing_to_who_sent_it(store: Store) -> None:
    at = Replica(store)
    state = parse_qs(urlsplit(at.grants.link("mail", "eve")).query)["state"][0]
    await at.grants.come_back(state, "code-of-the-victim")  # the page with the code is the victim's
    with pytest.raises(CredentialError, match="consent of its user"):
        await at.source.fetch("eve", "")


async def test_a_state_counts_once_and_for_ten_minutes(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    at = Replica(store)
    state = parse_qs(urlsplit(at.grants.link("mail", "ann")).query)["state"][0]
    await at.grants.come_back(state, "c")
    for wrong in (state, "", "made-up", "\ud800"):
        with pytest.raises(CredentialError, match="not known"):
            await at.grants.come_back(wrong, "c")
    monkeypatch.setattr(module, "CONSENT_S", -1.0)
    state = parse_qs(urlsplit(at.grants.link("mail", "ann")).query)["state"][0]
    with pytest.raises(CredentialError, match="not known"):
        await at.grants.come_back(state, "c")
    monkeypatch.undo()
    state = parse_qs(urlsplit(at.grants.link("mail", "ann")).query)["state"][0]
    with pytest.raises(CredentialError, match="not allowed"):
        await at.grants.come_back(state, "", "access_denied")


@requirement("trust:per-user")
async def test_nothing_in_the_database_is_readable_or_can_be_moved(store: Store) -> None:
    at = Replica(store)
    await at.connect("ann")
    await at.allow("ann")
    dumped = "\n".join(store._database._connection.iterdump())  # type: ignore[attr-defined]
    raw = bytes.fromhex("".join(each for each in dumped if each in "0123456789abcdefABCDEF")[-2:]) + dumped.encode()
    for secret in ("access-1", "refresh-1", "code_verifier", KEY):
        assert secret.encode() not in raw and secret.encode().hex() not in dumped.lower()
    sealed = store.grants.load("mail", "ann")
    assert sealed is not None
    store.grants.save("mail", "eve", sealed, 1.0)  # the row of Ann under the name of Eve
    store.grants.save("git", "ann", sealed, 1.0)
    store.grants.save("mail", "ben", sealed[:-1] + bytes([sealed[-1] ^ 1]), 1.0)
    for server, person in (("mail", "eve"), ("git", "ann"), ("mail", "ben")):
        with pytest.raises(CredentialError, match="cannot be opened; connect again"):
            at.grants.load(server, person)
    with pytest.raises(CredentialError, match="cannot be opened"):
        Replica(store, OTHER).grants.load("mail", "ann")
    assert Replica(store, OTHER, KEY).grants.load("mail", "ann") is not None  # and seals it again with the first key
    assert Replica(store, OTHER).grants.load("mail", "ann") is not None


async def test_a_token_is_renewed_when_it_ends_or_is_refused(store: Store) -> None:
    at = Replica(store)
    at.answers = [(200, {"access_token": "short", "refresh_token": "r1", "token_type": "bearer", "expires_in": 30})]
    await at.connect("ann")
    assert (await at.source.fetch("ann", "")).token == "access-2"
    assert at.forms[-1][1] | {"resource": ""} == {"grant_type": "refresh_token", "refresh_token": "r1", "resource": ""}
    assert (await at.source.fetch("ann", "")).token == "access-2" and len(at.forms) == 2
    assert (await at.source.fetch("ann", "access-2")).token == "access-3"
    at.answers = [(200, {"access_token": "kept", "token_type": "bearer"})]
    assert (await at.source.fetch("ann", "access-3")).token == "kept"
    found = at.grants.load("mail", "ann")
    assert found is not None and found.refresh_token == "refresh-3"


@requirement("trust:per-user")
async def test_a_grant_that_was_revoked_is_deleted_and_asked_for_again(store: Store) -> None:
    at = Replica(store)
    await at.connect("ann")
    at.answers = [(400, {"error": "invalid_grant", "error_description": "SECRET WORDS"})]
    with pytest.raises(CredentialError, match="consent of its user") as raised:
        await at.source.fetch("ann", "access-1")
    assert "SECRET" not in str(raised.value) and "\n" not in str(raised.value)
    assert store.grants.load("mail", "ann") is None
    await at.connect("ben")
    at.answers = [(503, {})]
    with pytest.raises(CredentialError, match="HTTP 503"):
        await at.source.fetch("ben", "access-3")
    assert store.grants.load("mail", "ben") is not None  # a server that is away ends nothing


async def test_two_replicas_that_renew_at_once_both_go_on(store: Store) -> None:
    one, two = Replica(store), Replica(store)
    await one.connect("ann")
    sealed = store.grants.load("mail", "ann")
    grant = two.grants.load("mail", "ann")
    assert sealed is not None and grant is not None
    assert (await one.source.fetch("ann", "access-1")).token == "access-2"
    two.answers = [(400, {"error": "invalid_grant"})]  # the refresh token was used by the other replica
    assert (await two.grants.renew("mail", "ann", sealed, grant))[1].access_token == "access-2"
    assert store.grants.load("mail", "ann") is not None


@requirement("trust:per-user")
async def test_who_disconnects_is_disconnected_at_every_replica(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = Replica(store), Replica(store)
    await one.connect("ann")
    await two.source.fetch("ann", "")
    assert two.source.holds("ann")
    gone = entry("ann", "disconnected")
    assert await one.grants.disconnect("mail", "ann", gone) == (True, "")
    assert await one.grants.disconnect("mail", "ann", gone) == (False, "")
    assert [each.outcome for each in store.audit.find(AuditFilter())] == ["disconnected", "connected"]
    ended = [form["token"] for url, form in one.forms if url.endswith("/revoke")]
    assert ended == ["refresh-1", "access-1"]
    monkeypatch.setattr(module, "HELD_S", 0.0)
    assert not two.source.holds("ann")
    with pytest.raises(CredentialError, match="consent"):
        await two.source.fetch("ann", "")


SHORT = {"access_token": "short", "refresh_token": "r1", "token_type": "bearer", "expires_in": 30}


async def test_a_grant_that_is_sealed_with_a_newer_key_and_renewed_at_once_keeps_its_newest_token(store: Store) -> None:
    old = Replica(store)
    old.answers = [(200, SHORT)]
    await old.connect("ann")
    at = Replica(store, OTHER, KEY)
    assert (await at.source.fetch("ann", "")).token == "access-1"
    found = at.grants.load("mail", "ann")
    assert found is not None and found.refresh_token == "refresh-1", "the token before was used up"
    assert (await Replica(store, OTHER).source.fetch("ann", "")).token == "access-1"


async def test_what_was_renewed_while_the_database_went_away_is_saved_once_it_is_back(store: Store) -> None:
    at = Replica(store)
    at.answers = [(200, SHORT)]
    await at.connect("ann")
    post = at.grants._post

    async def leave(url: str, headers: Any, content: bytes) -> tuple[int, dict[str, Any]]:
        at.is_away = True
        return await post(url, headers, content)

    at.grants._post = leave
    with pytest.raises(CredentialError, match="cannot be reached"):
        await at.source.fetch("ann", "")
    at.is_away, at.grants._post = False, post
    asked = len(at.forms)
    assert (await at.source.fetch("ann", "")).token == "access-2" and len(at.forms) == asked
    found = Replica(store).grants.load("mail", "ann")
    assert found is not None and found.refresh_token == "refresh-2"


@requirement("trust:per-user")
async def test_a_token_that_comes_after_its_person_has_disconnected_is_ended_and_not_used(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = Replica(store), Replica(store)
    one.answers = [(200, SHORT)]
    await one.connect("ann")
    post = one.grants._post

    async def disconnect_meanwhile(url: str, headers: Any, content: bytes) -> tuple[int, dict[str, Any]]:
        if url.endswith("/token"):
            await two.grants.disconnect("mail", "ann", entry("ann", "disconnected"))
        return await post(url, headers, content)

    one.grants._post = disconnect_meanwhile
    with pytest.raises(CredentialError, match="consent of its user"):
        await one.source.fetch("ann", "")
    assert [form["token"] for url, form in one.forms if url.endswith("/revoke")] == ["refresh-2", "access-2"]
    assert store.grants.load("mail", "ann") is None
    monkeypatch.setattr(module, "HELD_S", 0.0)
    assert not one.source.holds("ann") and not one.source.holds("ann"), "no grant is not the same as the grant before"


async def test_a_grant_that_came_while_an_older_one_ended_stays(store: Store) -> None:
    one, two = Replica(store), Replica(store)
    one.answers = [(200, SHORT)]
    await one.connect("ann")
    post = one.grants._post

    async def connect_again(url: str, headers: Any, content: bytes) -> tuple[int, dict[str, Any]]:
        await two.connect("ann")
        await post(url, headers, content)
        return 400, {"error": "invalid_grant"}

    one.grants._post = connect_again
    assert (await one.source.fetch("ann", "")).token == "access-1", "that of the new grant"
    assert store.grants.load("mail", "ann") is not None


async def test_while_the_database_is_away_a_token_in_use_goes_on(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    at = Replica(store)
    await at.connect("ann")
    await at.source.fetch("ann", "")
    at.is_away = True
    monkeypatch.setattr(module, "HELD_S", 0.0)
    assert at.source.holds("ann")
    for asked in (at.grants.link, at.grants.load):
        with pytest.raises(CredentialError, match="cannot be reached"):
            asked("mail", "ann")
    assert time.time() > 0 and "access" not in repr(at.grants)


@requirement("trust:audit")
async def test_what_the_audit_log_does_not_take_is_not_connected_and_not_disconnected(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = Replica(store)
    await at.connect("ann")
    code = await at.allow("ben")

    def refuse(entries: Any) -> None:
        raise StorageError("the log is full")

    monkeypatch.setattr(store.audit, "add", refuse)
    with pytest.raises(CredentialError, match="cannot be reached"):
        at.grants.confirm("mail", "ben", code, ENTRY)
    with pytest.raises(CredentialError, match="cannot be reached"):
        await at.grants.disconnect("mail", "ann", ENTRY)
    assert store.grants.load("mail", "ben") is None and store.grants.load("mail", "ann") is not None


@pytest.mark.parametrize(("answers", "said"), [
    ([(200, {}), (200, {})], ""),
    ([(200, {}), (400, {"error": "unsupported_token_type"})], ""),
    ([(503, {}), (200, {})], "the authorization server answered HTTP 503 (no error code)"),
    ([(200, {}), (401, {"error": "invalid_client", "error_description": "SECRET"})],
     "the authorization server answered HTTP 401 (invalid_client)"),
])  # fmt: skip
async def test_who_disconnects_is_told_whether_the_tokens_have_ended(store: Store, answers: Any, said: str) -> None:
    at = Replica(store)
    await at.connect("ann")
    at.answers = answers
    assert await at.grants.disconnect("mail", "ann", ENTRY) == (True, said)
    hints = [form["token_type_hint"] for url, form in at.forms if url.endswith("/revoke")]
    assert hints == ["refresh_token", "access_token"] and store.grants.load("mail", "ann") is None


async def test_an_authorization_server_that_hangs_keeps_nobody_waiting(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = Replica(store)
    await at.connect("ann")
    await at.connect("ann", "git")
    never = asyncio.Event()

    async def hang(*_: Any) -> tuple[int, dict[str, Any]]:
        await never.wait()
        raise AssertionError

    at.grants._post = hang
    monkeypatch.setattr(module, "REVOKE_S", 0.05)
    problem = "the authorization server did not answer within 0.05 s"
    assert await at.grants.disconnect("mail", "ann", ENTRY) == (True, problem)
    sealed = store.grants.load("git", "ann")
    assert sealed is not None
    found = [SealedGrant("git", "ann", sealed)] * 20
    assert await at.grants.end_all(found) == {("git", problem): 20}
    monkeypatch.setattr(module, "REVOKE_S", 60.0)
    monkeypatch.setattr(module, "ALL_S", 0.05)
    assert await at.grants.end_all(found) == {("git", "it took longer than 0.05 s"): 20}
    assert await at.grants.end_all([]) == {}


async def test_grants_that_do_not_open_or_whose_server_is_gone_are_told_apart(store: Store) -> None:
    at = Replica(store)
    await at.connect("ann")
    sealed = store.grants.load("mail", "ann")
    assert sealed is not None
    moved, strange = SealedGrant("mail", "eve", sealed), SealedGrant("gone", "ann", b"x")
    assert await at.grants.end_all([moved, strange, SealedGrant("mail", "ann", sealed)]) == {
        ("mail", "it is not as it was sealed"): 1, ("gone", "it is not as it was sealed"): 1,
    }  # fmt: skip
    gone = module._seal(at.grants._seals, at.grants.load("mail", "ann"), "grant", "gone", "ann")
    assert await at.grants.end_all([SealedGrant("gone", "ann", gone)]) == {
        ("gone", "there is nothing to allow for this server"): 1
    }


@requirement("trust:per-user")
async def test_what_was_allowed_and_never_confirmed_is_ended_at_its_server_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, other = Replica(store), Replica(store)
    confirmed, waiting = await at.allow("ann"), await at.allow("ben")
    at.grants.link("mail", "cat")  # nobody came back from this one
    at.grants.confirm("mail", "ann", confirmed, ENTRY)
    at.forms.clear()
    assert (await at.grants.end_late(), at.forms) == (0, []), "it is not late yet"
    later(monkeypatch, module.CONSENT_S + 1)
    with pytest.raises(CredentialError, match="not known"):
        at.grants.confirm("mail", "ben", waiting, ENTRY)
    ended = await asyncio.gather(at.grants.end_late(), other.grants.end_late())
    assert sorted(ended) == [0, 1]
    (first, again) = [*at.forms, *other.forms]
    assert {first[0], again[0]} == {"https://mail.example/revoke"}
    # By the answers of the token endpoint: the second one was that of ben.
    assert [form["token"] for _, form in (first, again)] == ["refresh-2", "access-2"]
    assert await at.grants.end_late() == 0
    assert at.grants.load("mail", "ann") is not None


@requirement("trust:per-user")
async def test_all_that_waits_for_its_code_can_be_ended_at_once(store: Store) -> None:
    at = Replica(store)
    code = await at.allow("ben")
    await at.allow("cat", "git")
    at.grants.link("mail", "dan")
    at.forms.clear()
    at.answers = [(200, {}), (503, {})]
    problems = await at.grants.end_unconfirmed()
    assert len(at.forms) == 4 and sum(problems.values()) == 1
    with pytest.raises(CredentialError, match="not known"):
        at.grants.confirm("mail", "ben", code, ENTRY)
    assert await at.grants.end_unconfirmed() == {}


@requirement("trust:per-user")
async def test_an_authorization_server_that_does_not_answer_is_asked_again_and_not_for_ever(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = Replica(store)
    await at.allow("ben")
    at.forms.clear()
    after, tries = module.CONSENT_S + 1, 0
    for _ in range(3 * module.TRIES):
        later(monkeypatch, after)
        at.answers = [(503, {})] * 2
        await at.grants.end_late()
        tries += bool(at.forms)
        at.forms.clear()
        after += module.LATE_S * module.TRIES
    assert tries == module.TRIES
    # One that answers after a while is asked no more.
    at.answers = []
    await at.allow("ann")
    later(monkeypatch, after + module.CONSENT_S + 1)
    at.answers = [(503, {})] * 2
    assert await at.grants.end_late() == 0
    at.forms.clear()
    at.answers = []
    later(monkeypatch, after + 2 * module.CONSENT_S)
    assert await at.grants.end_late() == 1 and len(at.forms) == 2


@requirement("trust:per-user")
async def test_what_cannot_be_kept_until_it_is_confirmed_is_ended_at_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = Replica(store)
    state = parse_qs(urlsplit(at.grants.link("mail", "ann")).query)["state"][0]

    async def post(url: str, headers: Any, content: bytes) -> tuple[int, dict[str, Any]]:
        at.is_away = True  # while the token was on its way
        return await Replica.post(at, url, headers, content)

    monkeypatch.setattr(at.grants, "_post", post)
    with pytest.raises(CredentialError, match="database"):
        await at.grants.come_back(state, "the-code")
    assert [url for url, _ in at.forms] == ["https://mail.example/token"] + 2 * ["https://mail.example/revoke"]


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Let it be so much later than it is."""
    monkeypatch.setattr(module.time, "time", lambda: REAL_TIME() + seconds)


REAL_TIME = time.time
