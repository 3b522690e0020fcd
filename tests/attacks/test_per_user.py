"""Attacks on servers that each person reaches with a token of their own: what is Ann's never comes to Ben."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from callers import on_the_real_clock
from http_callers import INITIALIZE, JSON_AND_EVENTS, META, bearer
from http_fakes import PATIENCE_S, serving, soon
from issuer_fakes import ISSUER, RESOURCE, key_set, token
from per_user_fakes import SECRET, Mail, Trader, tool
from requirements import requirement

from foretool.fleet.people.credentials import Subjects
from foretool.fleet.people.issuer import ConfiguredIssuer
from foretool.fleet.people.people import People
from foretool.server.app import App
from foretool.server.config import loader
from foretool.server.config.addresses import Address
from foretool.server.config.tokens import digest
from foretool.server.transports.client.http import HttpServer
from foretool.server.transports.client.http_rules import read_rules
from foretool.storage.opening import open_store
from foretool.storage.records import AuditFilter
from foretool.storage.store import Store

pytestmark = [pytest.mark.anyio, on_the_real_clock]


TOOLS = {
    "ann": [tool("read", "Reads the mail of a person"), tool("fire", "Dismisses a person of Ann's department")],
    "ben": [tool("read", "Reads the mail of a person"), tool("hire", "Invites a person to Ben's team")],
}
ROBOT = "robot-q8Zr2LxVn0pTfYw7"


class Office:
    """A proxy over one server with a token for each person."""

    def __init__(self, app: App, http: httpx2.AsyncClient, mail: Mail, trader: Trader, store: Store) -> None:
        self.app, self.http, self.mail, self.trader, self.store = app, http, mail, trader, store

    async def ask(self, who: dict[str, str], method: str, path: str = "/mcp", **params: Any) -> dict[str, Any]:
        """One request of the modern era."""
        headers = {"mcp-protocol-version": "2026-07-28", "mcp-method": method, **JSON_AND_EVENTS, **who}
        headers |= {"mcp-name": params["name"]} if "name" in params else {}
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META, **params}}
        answer = await self.http.post(path, json=body, headers=headers)
        lines = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")]
        found: dict[str, Any] = json.loads(lines[-1] if lines else answer.text)
        return found

    async def tools(self, who: dict[str, str]) -> set[str]:
        answer = await self.ask(who, "tools/list")
        names = {each["name"] for each in answer["result"]["tools"]}
        return {name for name in names if name.startswith("mail__")}

    async def call(self, who: dict[str, str], tool_name: str, /, **arguments: Any) -> str:
        return json.dumps(await self.ask(who, "tools/call", name=tool_name, arguments=arguments))


def subjects_of(app: App) -> Subjects:
    assert isinstance(app.people, People)
    return app.people.subjects


@asynccontextmanager
async def office(folder: Path, per_user: dict[str, Any] | None = None, **settings: Any) -> AsyncIterator[Office]:
    mail, trader = Mail(dict(TOOLS)), Trader()
    async with serving(mail.app) as mail_at, serving(trader.app) as trader_at:
        entry = {"token_endpoint": f"{trader_at}/token", "client_id": "foretool", "client_secret": SECRET,
                 "audience": "mail", "scopes": ["read"], **(per_user or {})}  # fmt: skip
        access = {"issuer": ISSUER, "resource": RESOURCE,
                  "grants": [{"claim": "sub", "values": ["*"], "profiles": ["*"]}]}  # fmt: skip
        block = {"access": access, "policy": "full", "encoder": "none", "storage": "unused.sqlite3", "learn_s": 0,
                 "tokens": [{"name": "robot", "sha256": digest(ROBOT), "profiles": ["*"]}],
                 "limits": {"cold_list_s": 10}, **settings}  # fmt: skip
        written = {"mcpServers": {"mail": {"url": f"{mail_at}/mcp", "per_user": entry, "trust": "auto"}}}
        config = loader.parse(json.dumps({**written, "foretool": block}).encode(), folder / "mcp.json", {})
        assert not config.broken, config.broken
        store = open_store(":memory:")
        app, keys = App(config, store), key_set()
        issuer = ConfiguredIssuer(config.settings.access, config.profiles, keys, subjects_of(app))  # type: ignore[arg-type]
        server = HttpServer(app.router, read_rules(config, Address(), issuer), Address(), come_back=app.come_back)
        async with app.running():
            running = asyncio.create_task(server.serve())
            await soon(server.ready)
            try:
                async with httpx2.AsyncClient(base_url=f"http://{server.address}", timeout=3 * PATIENCE_S) as http:
                    yield Office(app, http, mail, trader, store)
            finally:
                await server.stop()
                await running
                await keys.close()
        store.close()


def person(name: str, **claims: Any) -> dict[str, str]:
    return bearer(token(name, **claims))


@requirement("trust:per-user")
async def test_each_person_has_tools_a_session_and_answers_of_their_own(tmp_path: Path) -> None:
    ann, ben = person("ann"), person("ben")
    async with office(tmp_path) as at:
        assert await at.tools(ann) == {"mail__read", "mail__fire"}
        assert await at.tools(ben) == {"mail__read", "mail__hire"}
        assert await at.tools(ann) == {"mail__read", "mail__fire"}
        assert "box of ann in session-ann" in await at.call(ann, "mail__read", q=1)
        assert "box of ben in session-ben" in await at.call(ben, "mail__read", q=2)
        assert not at.mail.crossed and len(at.mail.sessions) == 2
        # A tool that was listed to Ann alone does not exist for Ben: not by name, by bridge, by search or by near name.
        for name in ("mail__fire", "fire", "mail__fires"):
            said = await at.call(ben, name)
            assert "box of" not in said and "Ann's department" not in said and '"mail__fire"' not in said.replace(
                f"Unknown tool: {name}", ""), said  # fmt: skip
        bridged = await at.call(ben, "call_tool_write", name="mail__fire", arguments={})
        assert "box of" not in bridged and "department" not in bridged
        found = await at.call(ben, "discover_tools", task="dismiss a person of a department, fire somebody")
        assert "fire" not in found.replace("fire somebody", "") and "department" not in found.replace(
            "of a department", "")  # fmt: skip
        named = await at.call(ben, "discover_tools", names=["mail__fire"])
        assert "Ann" not in named
        assert "department" in await at.call(ann, "discover_tools", names=["mail__fire"])


@requirement("trust:per-user")
async def test_no_server_gets_the_token_of_a_client_and_nothing_that_is_kept_has_a_token(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    ann = person("ann")
    async with office(tmp_path, record="full", audit=True) as at:
        await at.call(ann, "mail__read", q="x")
        own = ann["authorization"].removeprefix("Bearer ")
        assert at.mail.authorizations and not any(own in each for each in at.mail.authorizations)
        assert {each.split("-")[1] for each in at.mail.authorizations} == {"ann"}
        (asked,) = at.trader.asked
        assert asked["subject_token"] == own and asked["audience"] == "mail" and asked["scope"] == "read"
        assert "resource" not in asked
        assert at.trader.basic == [f"foretool:{SECRET}"]
        dumped = "\n".join(str(line) for line in at.store._database._connection.iterdump())  # type: ignore[attr-defined]
        for secret in (own, "for-ann-1", SECRET):
            assert secret not in dumped and secret not in caplog.text
            assert secret not in repr(subjects_of(at.app))


@requirement("trust:per-user")
async def test_many_calls_of_one_person_wait_for_one_trade(tmp_path: Path) -> None:
    ann, ben = person("ann"), person("ben")
    async with office(tmp_path) as at:
        at.trader.may_answer.clear()
        calls = [asyncio.create_task(at.call(each, "mail__read", n=n)) for n in range(10) for each in (ann, ben)]
        async with asyncio.timeout(PATIENCE_S):
            while len(at.trader.asked) < 2:
                await asyncio.sleep(0.01)
        at.trader.may_answer.set()
        said = await asyncio.gather(*calls)
        assert all(f"box of {('ann', 'ben')[n % 2]} " in each for n, each in enumerate(said)), said
        assert len(at.trader.asked) == 2


@requirement("trust:per-user")
async def test_a_trade_that_fails_is_said_in_one_line_to_that_person_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ann, ben = person("ann"), person("ben")
    async with office(tmp_path) as at:
        at.trader.refuses["ann"] = "access_denied"
        said = await at.call(ann, "mail__read")
        assert "HTTP 400 (access_denied)" in said and "SECRET WORDS" not in said
        assert "box of ben" in await at.call(ben, "mail__read")
        assert "access_denied" not in await at.call(ben, "mail__read")
        assert "Traceback" not in caplog.text
        before = len(at.trader.asked)
        await at.call(ann, "mail__read")
        assert len(at.trader.asked) == before  # refused a moment ago
        at.trader.refuses.clear()
        assert "box of ann" in await at.call(person("ann", jti="2"), "mail__read")  # another token is tried at once


@requirement("trust:per-user")
async def test_a_token_that_was_ended_is_replaced_once(tmp_path: Path) -> None:
    ann = person("ann")
    async with office(tmp_path) as at:
        assert "box of ann" in await at.call(ann, "mail__read")
        lane = at.app.upstreams.serving("mail", at.app.live.profile("", next(iter(subjects_of(at.app)._latest))))
        credentials = at.app.upstreams["mail"].credentials  # type: ignore[attr-defined]
        next(iter(credentials._kept.values())).issued_at -= 60  # it was made a while ago
        at.mail.refused.add("for-ann-1")
        assert "box of ann" in await at.call(ann, "mail__read")
        assert at.trader.given["ann"] == 2
        at.mail.refused.add("for-ann-2")
        said = await at.call(ann, "mail__read")
        assert "it refused a token that was just made for this person" in said
        assert at.trader.given["ann"] == 2 and lane.name == "mail"


@requirement("trust:per-user")
async def test_the_same_sub_of_two_issuers_and_names_with_separators_are_different_people(tmp_path: Path) -> None:
    from foretool.fleet.people.issuer import principal_of

    async with office(tmp_path) as at:
        upstream = at.app.upstreams["mail"]
        pairs = [("https://a.example", "ann"), ("https://b.example", "ann"), ("https://a.example/", "ann"),
                 ("https://a.examplea", "nn"), ("https://a.example", "ann\x1fben"), ("https://a.example", "ann:ben"),
                 ("", "https://a.exampleann")]  # fmt: skip
        people = [principal_of(*pair) for pair in pairs]
        lanes = [upstream.of(each) for each in people]
        assert len(set(people)) == len({lane.key for lane in lanes}) == len(set(map(id, lanes))) == len(pairs)
        assert len({at.app.live.profile("", each).key for each in people}) == len(pairs)


@requirement("trust:per-user")
async def test_a_machine_an_expired_token_and_one_for_others_get_nothing_of_the_server(tmp_path: Path) -> None:
    async with office(tmp_path) as at:
        await at.call(person("ann"), "mail__read")
        said = await at.call(bearer(ROBOT), "mail__read")
        assert "has shown none of the authorization server" in said and "box of" not in said
        assert await at.tools(bearer(ROBOT)) == set()
        for bad in (person("ann", exp=1), person("ann", aud="https://other.example"), person("ann", iss="https://b")):
            assert "error" in await at.ask(bad, "tools/list")
        assert len(at.trader.asked) == 1


@requirement("trust:per-user")
async def test_a_definition_that_was_written_for_somebody_else_is_shown_to_nobody_else(tmp_path: Path) -> None:
    ann, ben, cem = person("ann"), person("ben"), person("cem")
    async with office(tmp_path) as at:
        at.mail.tools["ann"] = [tool("read", "Reads the mail of Ann, whose project is HUSHHUSH")]
        at.mail.tools["ben"] = at.mail.tools["cem"] = [tool("read", "Reads the mail")]
        assert await at.tools(ann) == {"mail__read"}
        assert await at.tools(ben) == set()  # one text for each name: the one that was there first
        assert await at.tools(cem) == {"mail__read"}  # now most have another
        assert await at.tools(ben) == {"mail__read"} and await at.tools(ann) == set()
        for who in (ben, cem):
            for more in ({"task": "read the mail of a project"}, {"names": ["mail__read"]}):
                assert "HUSHHUSH" not in await at.call(who, "discover_tools", **more)
            assert "HUSHHUSH" not in json.dumps(await at.ask(who, "tools/list"))


@requirement("trust:per-user")
async def test_instructions_prompts_and_resources_of_such_a_server_reach_nobody(tmp_path: Path) -> None:
    ann = person("ann")
    async with office(tmp_path) as at:
        await at.call(ann, "mail__read")
        for method in ("prompts/list", "resources/list", "server/discover"):
            assert "alone" not in json.dumps(await at.ask(ann, method))
        headers = {**JSON_AND_EVENTS, **person("ben")}
        assert "alone" not in (await at.http.post("/mcp", json=INITIALIZE, headers=headers)).text
        assert "Unknown prompt" in json.dumps(await at.ask(ann, "prompts/get", name="mail__secret"))


GRANT = {"authorization_endpoint": "https://login.example/authorize", "audience": ""}
SEAL = base64.b64encode(b"k" * 32).decode()


def link_in(said: str) -> dict[str, str]:
    found = re.search(r"https://login\.example/authorize\?\S+", said)
    assert found is not None, said
    return {name: values[0] for name, values in parse_qs(urlsplit(found[0]).query).items()}


async def come_back(at: Office, who: str, state: str) -> httpx2.Response:
    """What the browser of a person is sent to after the consent; it shows no token."""
    return await at.http.get("/connect/callback", params={"state": state, "code": f"code-of-{who}"})


def code_on(page: httpx2.Response) -> str:
    found = re.search(r"<b>([A-Z2-9-]+)</b>", page.text)
    assert page.status_code == 200 and found is not None, page.text
    return found[1]


@requirement("trust:per-user")
async def test_a_person_connects_a_server_uses_it_and_disconnects(tmp_path: Path) -> None:
    ann, ben = person("ann"), person("ben")
    async with office(tmp_path, GRANT, seal_keys=[SEAL], record="full") as at:
        assert await at.tools(ann) == set()
        said = await at.call(ann, "mail__read")
        assert "needs the consent of its user" in said and "connect_server" in said
        page = await come_back(at, "ann", link_in(said)["state"])
        assert page.headers["cache-control"] == "no-store" and "for-ann" not in page.text
        code = code_on(page)
        for thief in (ben, bearer(ROBOT)):
            assert "does not connect" in await at.call(thief, "connect_server", server="mail", code=code)
        bridged = {"name": "connect_server", "arguments": {"server": "mail", "code": code}}
        assert "is connected" in await at.call(ann, "call_tool", **bridged)
        assert "box of ann" in await at.call(ann, "mail__read") and await at.tools(ann) == {"mail__read", "mail__fire"}
        assert "box of" not in await at.call(ben, "mail__read") and await at.tools(ben) == set()
        assert set(at.mail.authorizations) == {"Bearer for-ann-1"}
        dumped = "\n".join(str(line) for line in at.store._database._connection.iterdump())  # type: ignore[attr-defined]
        assert "for-ann" not in dumped and "again-ann" not in dumped and b"for-ann".hex() not in dumped.lower()
        assert "is disconnected" in await at.call(ann, "connect_server", server="mail", disconnect=True)
        assert "needs the consent" in await at.call(ann, "mail__read")
        assert await at.tools(ann) == set()
        # What Ann has allowed and ended is kept, with `audit` off as well; the attempts of others changed nothing.
        kept = at.store.audit.find(AuditFilter(action="connect"))
        assert [(each.outcome, each.target) for each in kept] == [("disconnected", "mail"), ("connected", "mail")]
        ((principal, name),) = {(each.principal, each.name) for each in kept}
        assert principal.startswith("oauth:") and name == "ann"


@requirement("trust:per-user")
async def test_a_victim_who_opens_the_link_of_an_attacker_gives_nothing_away(tmp_path: Path) -> None:
    eve = person("eve")
    async with office(tmp_path, GRANT, seal_keys=[SEAL]) as at:
        state = link_in(await at.call(eve, "connect_server", server="mail"))["state"]
        shown = await come_back(at, "ann", state)  # in the browser of Ann
        assert "Give it to nobody else" in shown.text
        assert "box of" not in await at.call(eve, "mail__read")
        for wrong in ("", "AAAA-AAAA-AAAA", state):
            said = await at.call(eve, "connect_server", server="mail", code=wrong)
            assert "is connected" not in said
        for again in (state, "made-up", "", "<script>alert(1)</script>"):
            page = await come_back(at, "ann", again)
            assert page.status_code == 400 and "<script" not in page.text
        assert (await at.http.post("/connect/callback")).status_code == 401


async def test_without_a_server_that_asks_for_consent_there_is_no_such_path(tmp_path: Path) -> None:
    async with office(tmp_path) as at:
        assert (await at.http.get("/connect/callback?state=a&code=b")).status_code == 401
        assert "no server of this name" in await at.call(person("ann"), "connect_server", server="mail", code="x")
