"""Attacks with tokens of an authorization server: forged ones, other people's sessions, other profiles."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import httpx2
import pytest
from callers import on_the_real_clock
from fakes import FakeUpstream, Stage, config_of, proxy_over
from http_callers import INITIALIZE, JSON_AND_EVENTS, META, EventReader, bearer, messages
from http_fakes import PATIENCE_S, soon
from issuer_fakes import ISSUER, OTHER_KEY, RESOURCE, Documents, key_set, token
from requirements import requirement

from foretool.fleet.people.issuer import ConfiguredIssuer, principal_of
from foretool.server.config.addresses import Address
from foretool.server.config.loader import Config
from foretool.server.config.tokens import digest
from foretool.server.transports.client.http import HttpServer
from foretool.server.transports.client.http_rules import HttpRules, read_rules
from foretool.storage.records import AuditFilter, Selection

pytestmark = [pytest.mark.anyio, on_the_real_clock]


GRANTS = [
    {"claim": "groups", "values": ["work"], "profiles": ["work"]},
    {"claim": "groups", "values": ["home"], "profiles": ["home"]},
    {"claim": "scope", "values": ["home"], "profiles": ["home"]},
]
ACCESS = {"issuer": ISSUER, "resource": RESOURCE, "grants": GRANTS}
PROFILES = {"work": {"servers": ["git"]}, "home": {"servers": ["mail"]}}
ROBOT = "robot-q8Zr2LxVn0pTfYw7"
ROBOT_ENTRY = {"name": "robot", "sha256": digest(ROBOT), "profiles": ["work"]}


def ann(*groups: str, subject: str = "ann", **claims: Any) -> dict[str, str]:
    return bearer(token(subject, groups=list(groups), **claims))


class Team:
    """A proxy whose clients show tokens of an authorization server."""

    def __init__(self, stage: Stage, server: HttpServer, http: httpx2.AsyncClient, upstreams: Any) -> None:
        self.stage, self.server, self.http, self.upstreams = stage, server, http, upstreams

    async def reload(self, **settings: Any) -> None:
        await self.stage.app.reloader.apply(
            config_of(*self.upstreams, **{"profiles": PROFILES, "access": ACCESS, **settings})
        )

    async def session(self, who: dict[str, str], path: str) -> dict[str, str]:
        headers = {**JSON_AND_EVENTS, **who}
        response = await self.http.post(path, json=INITIALIZE, headers=headers)
        assert response.status_code == 200, response.text
        return {**headers, "mcp-session-id": response.headers["mcp-session-id"]}

    async def legacy(
        self, session: dict[str, str], path: str, method: str, id: Any = 7, **params: Any
    ) -> httpx2.Response:
        body = {"jsonrpc": "2.0", "id": id, "method": method, "params": params}
        return await self.http.post(path, json=body, headers={**JSON_AND_EVENTS, **session})

    async def modern(self, who: dict[str, str], path: str, method: str, **params: Any) -> httpx2.Response:
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method, **JSON_AND_EVENTS, **who}
        headers |= {"mcp-name": params["name"]} if "name" in params else {}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META, **params}}
        return await self.http.post(path, json=body, headers=headers)


@asynccontextmanager
async def team(*upstreams: FakeUpstream, documents: Documents | None = None, **settings: Any) -> AsyncIterator[Team]:
    upstreams = upstreams or (FakeUpstream("git", ["push"]), FakeUpstream("mail", ["send"]))
    settings = {"access": ACCESS, "profiles": PROFILES, "policy": "full", "tokens": [ROBOT_ENTRY], **settings}
    keys = key_set(documents)

    def rules(config: Config) -> HttpRules:
        entry = config.settings.access
        return read_rules(
            config, Address(), ConfiguredIssuer(entry, config.profiles, keys) if entry is not None else None
        )

    async with proxy_over(*upstreams, **settings) as stage:
        server = HttpServer(stage.app.router, rules(stage.app.config), Address())
        stage.app.reloader.add_follower(lambda: server.follow(rules(stage.app.config)))
        serving = asyncio.create_task(server.serve())
        await soon(server.ready)
        try:
            async with httpx2.AsyncClient(base_url=f"http://{server.address}", timeout=PATIENCE_S) as http:
                yield Team(stage, server, http, upstreams)
        finally:
            await server.stop()
            await serving
            await keys.close()


def text_of(response: httpx2.Response) -> str:
    return response.content.decode()


@requirement("trust:http:issuer")
async def test_a_client_learns_where_to_sign_in_and_nothing_else() -> None:
    async with team() as at:
        refused = await at.http.post("/mcp/work", json=INITIALIZE)
        said = refused.headers["www-authenticate"]
        assert refused.status_code == 401 and said.startswith("Bearer resource_metadata=")
        for path in ("", "/mcp", "/mcp/work", "/mcp/none", "/../../etc/passwd"):
            sent = {"x-forwarded-host": "evil.example", "forwarded": "host=evil.example"}
            found = await at.http.get(f"/.well-known/oauth-protected-resource{path}", headers=sent)
            if ".." not in path:
                assert (found.status_code, found.json()) == (200, {
                    "resource": RESOURCE, "authorization_servers": [ISSUER], "bearer_methods_supported": ["header"],
                    "resource_name": "foretool", "scopes_supported": ["home"],
                })  # fmt: skip
            assert "work" not in text_of(found).replace(ISSUER, "")
        evil = {"host": "evil.example"}
        assert (await at.http.get("/.well-known/oauth-protected-resource", headers=evil)).status_code == 421


@requirement("trust:http:issuer")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_person_uses_what_the_claims_open(era: str) -> None:
    async with team() as at:
        for who, path, own, other in (
            (ann("work"), "/mcp/work", "git__push", "mail__send"),
            (ann(subject="bob", scope="mcp home"), "/mcp/home", "mail__send", "git__push"),
            (bearer(ROBOT), "/mcp/work", "git__push", "mail__send"),
        ):
            if era == "legacy":
                session = await at.session(who, path)
                listed = text_of(await at.legacy(session, path, "tools/list"))
                called = text_of(await at.legacy(session, path, "tools/call", name=own, arguments={}))
            else:
                listed = text_of(await at.modern(who, path, "tools/list"))
                called = text_of(await at.modern(who, path, "tools/call", name=own, arguments={}))
            assert own in listed and other not in listed and '"isError":true' not in called
        assert [len(each.calls) for each in at.upstreams] == [2, 1]


@requirement("trust:http:issuer")
async def test_no_forged_token_gets_in_by_any_way() -> None:
    good = token(groups=["work"])
    header, _, signature = good.split(".")
    forged = {
        "expired": ann("work", exp=int(time.time()) - 60),
        "other key": bearer(token(key=OTHER_KEY, groups=["work"])),
        "audience": ann("work", aud="https://evil.example/mcp"),
        "issuer": ann("work", iss="https://evil.example"),
        "claims of another": bearer(f"{header}.{token('root', groups=['work']).split('.')[1]}.{signature}"),
        "scheme": {"authorization": f"Basic {good}"},
        "no scheme": {"authorization": good},
        "twice": {"authorization": f"Bearer {good}, Bearer {good}"},
        "cookie": {"cookie": f"foretool_ui={good}"},
        "other header": {"x-authorization": f"Bearer {good}", "proxy-authorization": f"Bearer {good}"},
        "forwarded": {"x-forwarded-user": "ann", "x-forwarded-access-token": good, "remote-user": "ann"},
    }
    async with team() as at:
        for name, sent in forged.items():
            for path in ("/mcp/work", f"/mcp/work?access_token={good}", f"/mcp?authorization=Bearer%20{good}"):
                answer = await at.http.post(path, json=INITIALIZE, headers={**JSON_AND_EVENTS, **sent})
                assert answer.status_code == 401, name
                assert "resource_metadata=" in answer.headers["www-authenticate"] and good not in text_of(answer)
        body = {**INITIALIZE, "access_token": good, "params": {**INITIALIZE["params"], "access_token": good}}
        assert (await at.http.post("/mcp/work", json=body, headers=JSON_AND_EVENTS)).status_code == 401
        raw = [("authorization", f"Bearer {good}"), ("authorization", f"Bearer {ROBOT}"), *JSON_AND_EVENTS.items()]
        assert (await at.http.post("/mcp/work", json=INITIALIZE, headers=raw)).status_code == 400
        assert not at.server.legacy.sessions
        await at.session(ann("work"), "/mcp/work")


@requirement("trust:http:people")
async def test_a_stolen_session_does_not_exist_for_another_person_of_the_same_profile() -> None:
    async with team() as at:
        session = await at.session(ann("work"), "/mcp/work")
        renewed = {**session, **ann("work", iat=int(time.time()) - 5)}
        assert renewed["authorization"] != session["authorization"]
        assert (await at.legacy(renewed, "/mcp/work", "tools/list")).status_code == 200, (
            "another token of the same person"
        )
        for thief in (ann("work", subject="eve"), ann("work", subject="Ann"), bearer(ROBOT)):
            stolen, made_up = {**session, **thief}, {**session, **thief, "mcp-session-id": "0" * 32}
            for method, body in (("POST", {**INITIALIZE, "method": "ping"}), ("GET", None), ("DELETE", None)):
                found, absent = [
                    await at.http.request(method, "/mcp/work", json=body, headers=each) for each in (stolen, made_up)
                ]
                assert (found.status_code, found.content) == (absent.status_code, absent.content)
                assert found.status_code == 404
        assert (await at.legacy(session, "/mcp/work", "tools/list")).status_code == 200


@requirement("trust:http:people")
async def test_one_subject_of_two_issuers_and_two_of_one_name_are_different_people() -> None:
    async with team() as at:
        session = await at.session(ann("work", preferred_username="ann", email="a@example.com"), "/mcp/work")
        thief = ann("work", subject="eve", preferred_username="ann", email="a@example.com")
        assert (await at.legacy({**session, **thief}, "/mcp/work", "tools/list")).status_code == 404


@requirement("trust:http:people")
async def test_what_a_scope_would_open_is_a_challenge_and_other_profiles_look_like_none() -> None:
    async with team() as at:
        step_up = await at.modern(ann("work"), "/mcp/home", "tools/list")
        assert step_up.status_code == 403
        assert 'error="insufficient_scope"' in step_up.headers["www-authenticate"]
        assert 'scope="home"' in step_up.headers["www-authenticate"]
        hidden = await at.modern(ann(scope="home"), "/mcp/work", "tools/list")
        absent = await at.modern(ann(scope="home"), "/mcp/nothing", "tools/list")
        assert (hidden.status_code, hidden.content) == (404, absent.content)
        assert (await at.modern(ann("nobody"), "/mcp/work", "tools/list")).status_code == 403


@requirement("trust:http:rotation")
async def test_claims_that_open_nothing_any_more_end_sessions_at_a_reload() -> None:
    async with team() as at:
        lost = await at.session(ann("work"), "/mcp/work")
        kept = await at.session(ann("home", subject="bob"), "/mcp/home")
        await at.reload(access={**ACCESS, "grants": GRANTS[1:]})
        assert {session.profile for session in at.server.legacy.sessions.values()} == {"home"}
        assert (await at.legacy(lost, "/mcp/work", "tools/list")).status_code == 403
        assert (await at.legacy(kept, "/mcp/home", "tools/list")).status_code == 200
        await at.reload(access={**ACCESS, "audience": ["other"]})
        assert not at.server.legacy.sessions and (await at.legacy(kept, "/mcp/home", "ping")).status_code == 401


@requirement("trust:http:rotation")
@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_stream_ends_with_the_token_that_began_it_and_a_call_is_answered(era: str) -> None:
    async with team() as at:
        who = ann("work", exp=int(time.time()) + 60)
        session = await at.session(who, "/mcp/work")
        at.upstreams[0].hold("push")
        listen = {
            "method": "subscriptions/listen",
            "params": {"_meta": META, "notifications": {"toolsListChanged": True}},
        }
        modern = {"mcp-protocol-version": "2026-07-28", "mcp-method": "subscriptions/listen", **JSON_AND_EVENTS, **who}
        stream = (
            at.http.stream("GET", "/mcp/work", headers=session)
            if era == "legacy"
            else at.http.stream("POST", "/mcp/work", headers=modern, json={"jsonrpc": "2.0", "id": 4, **listen})
        )
        call = asyncio.create_task(at.modern(who, "/mcp/work", "tools/call", name="git__push", arguments={}))
        asked = await at.upstreams[0].called("push")
        async with stream as response:
            assert response.status_code == 200
            at.server._end_streams(time.time() + 30)
            assert at.server._streams
            at.server._end_streams(time.time() + 61)
            with pytest.raises(httpx2.HTTPError):
                async for _ in response.aiter_raw():
                    pass
        asked.reply({"content": [], "mine": True})
        assert '"mine":true' in text_of(await call).replace(" ", "")
        assert not at.server._streams


async def test_callers_who_are_long_gone_take_no_room() -> None:
    async with team() as at:
        for number in range(20):
            await at.modern(ann("work", subject=f"p{number}"), "/mcp/work", "tools/list")
        before = len(at.stage.app.clients)
        at.server.modern.expire(time.monotonic() + 10, 60)
        assert len(at.stage.app.clients) == before
        at.server.modern.expire(time.monotonic() + 61, 60)
        assert len(at.stage.app.clients) == before - 20
        assert (await at.modern(ann("work", subject="p3"), "/mcp/work", "tools/list")).status_code == 200


async def test_one_person_is_slowed_down_and_the_others_are_not(caplog: pytest.LogCaptureFixture) -> None:
    async with team(requests_per_minute=5) as at:
        answers = [await at.modern(ann("work", jti=str(each)), "/mcp/work", "tools/list") for each in range(7)]
        assert [each.status_code for each in answers] == [200] * 5 + [429] * 2
        assert "refused the token" not in caplog.text, "it is right, and comes too often"
        error = answers[-1].json()["error"]
        assert int(answers[-1].headers["retry-after"]) in range(1, 13) and "come back in" in error["message"]
        for other in (ann("work", subject="bob"), bearer(ROBOT)):
            assert (await at.modern(other, "/mcp/work", "tools/list")).status_code == 200
        await at.reload()
        assert (await at.modern(ann("work"), "/mcp/work", "tools/list")).status_code == 200


@requirement("trust:http:people")
async def test_one_person_cannot_take_the_sessions_of_the_others() -> None:
    async with team(max_sessions=24) as at:
        answers = [
            (
                await at.http.post(
                    "/mcp/work", json=INITIALIZE, headers={**JSON_AND_EVENTS, **ann("work", subject="eve")}
                )
            )
            for _ in range(6)
        ]
        assert [each.status_code for each in answers] == [200, 200, 503, 503, 503, 503]
        await at.session(ann("work"), "/mcp/work")


@requirement("trust:http:people")
@requirement("trust:http:profiles")
@pytest.mark.parametrize("count", [250, pytest.param(2_000, marks=[pytest.mark.slow, pytest.mark.timeout(600)])])
async def test_thousands_of_random_requests_show_nobody_what_is_not_theirs(count: int) -> None:
    """Six people in three profiles, and a seventh without any. Whatever they send, in either era, with the sessions,
    ids, names and handles that they and the others have seen, an answer holds only words of the profile of its sender,
    and of what a person wrote only their own."""
    random = Random(20261123)
    names = ("red", "green", "blue")
    long = {name: [{"type": "text", "text": f"word-{name} " * 400}] for name in names}
    upstreams = [
        FakeUpstream(f"{name}srv", [{"name": f"{name}tool", "description": f"word-{name} finds things", "inputSchema": {
            "type": "object", "properties": {f"{name}arg": {"type": "string"}}}}],
            results={f"{name}tool": {"content": long[name]}},
            instructions=f"word-{name}")
        for name in names
    ]  # fmt: skip
    profiles = {name: {"servers": [f"{name}srv"]} for name in names}
    grants = [{"claim": "groups", "values": [name], "profiles": [name]} for name in names]
    people = {f"{name}-{number}": name for name in names for number in (1, 2)} | {"nobody": ""}
    tokens = {person: ann(*([group] if group else []), subject=person) for person, group in people.items()}
    seen: list[str] = [f"{name}srv__{name}tool" for name in names] + ["0" * 32]
    """Sessions, handles and ids of rests that somebody was given."""
    answered = {"own": 0, "refused": 0}
    settings = {"profiles": profiles, "access": {**ACCESS, "grants": grants}, "result_tokens": 100, "policy": "auto"}

    def foreign(person: str, text: str) -> list[str]:
        others = [f"word-{name}" for name in names if name != people[person]]
        others += [f"{name}tool" for name in names if name != people[person]]
        others += [f"task-of-{other}" for other in people if other != person]
        return [word for word in others if word in text]

    async with team(*upstreams, **settings) as at:
        sessions: list[tuple[str, str]] = []
        for step in range(count):
            person = random.choice(list(people))
            path = (
                f"/mcp/{random.choice([people[person] or 'red', people[person] or 'red', *names, 'none', ''])}".rstrip(
                    "/"
                )
            )
            task = f"task-of-{person} find things"
            picked = random.choice(seen)
            own = f"{people[person]}srv__{people[person]}tool"
            asked: list[tuple[str, dict[str, Any]]] = [
                ("tools/list", {}),
                ("resources/list", {}),
                ("prompts/list", {}),
                ("initialize", INITIALIZE["params"]),
                ("resources/read", {"uri": f"foretool://result/{picked}"}),
                *(
                    ("tools/call", {"name": name, "arguments": arguments})
                    for name, arguments in (
                        (own, {}),
                        (picked, {}),
                        ("discover_tools", {"task": task, "handle": picked}),
                        ("call_tool", {"name": picked}),
                        ("call_tool_write", {"name": picked, "arguments": {}}),
                        ("call_tool_write", {"name": own, "arguments": {}, "handle": picked}),
                        ("call_tool", {"name": "read_more", "arguments": {"result": picked, "from": 0}}),
                    )
                ),
            ]
            method, params = random.choice(asked)
            if random.random() < 0.5:
                answer = await at.modern(tokens[person], path, method, **params)
            elif method == "initialize" or not sessions:
                answer = await at.http.post(path, json=INITIALIZE, headers={**JSON_AND_EVENTS, **tokens[person]})
                if (session := answer.headers.get("mcp-session-id")) is not None:
                    sessions.append((person, session))
                    del sessions[:-30]
            else:
                mine = [each for each in sessions if each[0] == person]
                session = random.choice(mine or sessions)[1] if random.random() < 0.8 else random.choice(sessions)[1]
                answer = await at.legacy({**tokens[person], "mcp-session-id": session}, path, method, id=step, **params)
            text = text_of(answer)
            # What a request itself names may come back in its refusal.
            echoed = text.replace(picked, "")
            assert not foreign(person, echoed), (step, person, path, method, params, text)
            if f"word-{people[person]}" in text:
                answered["own"] += 1
            elif answer.status_code >= 400:
                answered["refused"] += 1
            seen.extend(_ids(text))
            del seen[4:-40]
        calls = at.stage.store.calls.recent(100_000)
        assert {(call.tool.split("srv__")[0] or "-", call.outcome) for call in calls if "srv__" in call.tool}
    for upstream, name in zip(upstreams, names, strict=True):
        assert all(called == f"{name}tool" for called, _ in upstream.calls)
    assert answered["own"] > count / 20 and answered["refused"] > count / 20


def _ids(text: str) -> list[str]:
    """What an answer gives out that somebody else might try: handles and ids of rests."""
    import re

    return re.findall(r"\b[0-9a-f]{16}\b|\b[A-Za-z0-9_-]{22}\b", text)[:2]


@requirement("trust:http:people")
async def test_the_stream_of_another_person_cannot_be_resumed() -> None:
    async with team() as at:
        session = await at.session(ann("work"), "/mcp/work")
        at.upstreams[0].hold("push")
        body = {"jsonrpc": "2.0", "id": 9, "method": "tools/call", "params": {"name": "git__push", "arguments": {}}}
        async with at.http.stream("POST", "/mcp/work", json=body, headers=session) as answer:
            asked = await at.upstreams[0].called("push")
            priming = await EventReader(answer).next()
            assert priming is not None
        eve = await at.session(ann("work", subject="eve"), "/mcp/work")
        for headers in ({**session, **ann("work", subject="eve")}, eve):
            sent = {**headers, "last-event-id": priming["id"]}
            assert (await at.http.get("/mcp/work", headers=sent)).status_code in (400, 404)
        asked.reply({"content": [], "mine": True})
        async with at.http.stream("GET", "/mcp/work", headers={**session, "last-event-id": priming["id"]}) as again:
            found = await messages(again)
            assert found[-1]["result"]["mine"] is True
    assert json.dumps(found)


@requirement("trust:audit")
async def test_every_call_is_on_record_under_the_one_who_made_it() -> None:
    async with team(audit=True) as at:
        session = await at.session(ann("work", preferred_username="Ann\u202e"), "/mcp/work")
        await at.legacy(session, "/mcp/work", "tools/call", name="git__push", arguments={"secret": "s3cret"})
        for who in (ann("work", subject="eve", preferred_username="Ann"), bearer(ROBOT)):
            await at.modern(who, "/mcp/work", "tools/call", name="mail__send", arguments={})
            await at.modern(who, "/mcp/work", "tools/call", name="git__push", arguments={})
        found = at.stage.store.audit.find(AuditFilter())[::-1]
    calls = [(each.name, each.principal[:7], each.profile, each.target, each.outcome) for each in found]
    assert calls == [
        ("Ann", "oauth:" + found[0].principal[6], "work", "git__push", "ok"),
        ("Ann", "oauth:" + found[1].principal[6], "work", "mail__send", "refused"),
        ("Ann", "oauth:" + found[1].principal[6], "work", "git__push", "ok"),
        ("robot", "bearer:", "work", "mail__send", "refused"),
        ("robot", "bearer:", "work", "git__push", "ok"),
    ]
    assert found[0].principal == principal_of(ISSUER, "ann") != found[1].principal == principal_of(ISSUER, "eve")
    assert "s3cret" not in repr(found)


@requirement("trust:data:forget-person")
async def test_what_a_person_does_in_a_session_that_outlives_forgetting_can_be_forgotten_too() -> None:
    async with team() as at:
        store, session = at.stage.store, await at.session(ann("work"), "/mcp/work")
        person = Selection(person=principal_of(ISSUER, "ann"))
        push, search = (
            {"name": "git__push", "arguments": {}},
            {"name": "discover_tools", "arguments": {"task": "uluru"}},
        )
        for ticks, done in enumerate((push, search)):
            await at.legacy(session, "/mcp/work", "tools/call", **push)
            if ticks:
                at.stage.app.tick()  # else the proxy looks for the first time after it was forgotten
            assert store.forgetting.forget(person).counts["calls"] == 1
            assert store.forgetting.forget(person).counts == {}
            at.stage.app.tick()
            assert store.forgetting.forget(person).counts == {}, "of a session that rests nothing comes back"
            await at.legacy(session, "/mcp/work", "tools/call", **done)
            at.stage.app.tick()
            kind = "calls" if done is push else "discoveries"
            assert store.forgetting.forget(person, dry=True).counts[kind] == 1
            store.forgetting.forget(person)


async def test_without_the_setting_no_call_is_kept() -> None:
    async with team() as at:
        await at.modern(ann("work"), "/mcp/work", "tools/call", name="git__push", arguments={})
        assert at.stage.store.audit.find(AuditFilter()) == []
