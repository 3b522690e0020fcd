"""Who gets to the page under `/ui`: the rules of tokens hold, and one profile never sees another one's."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import pytest
from requirements import requirement

from foretool.desk.page.gate import COOKIE, PageGate
from foretool.desk.page.process import PageProcess
from foretool.server.config.settings import TokenEntry
from foretool.server.config.tokens import digest
from foretool.server.transports.client.access import Access
from foretool.server.transports.client.door import WRONG_TOKENS, Door
from foretool.server.transports.client.http_request import CONNECTION, Bodies, HttpRequest
from foretool.server.transports.client.http_rules import HttpLimits, HttpRules

pytestmark = pytest.mark.anyio

HOME = "http://127.0.0.1:8399"
PROFILES = ("", "work", "home")
TOKENS = {"owner": ("*",), "agent": ("*",), "clerk": ("work",), "both": ("work", "home"), "main": ("default",)}


def make_rules(names: tuple[str, ...] = tuple(TOKENS), *, is_open: bool = False) -> HttpRules:
    entries = [
        TokenEntry(
            name=name, sha256=digest(f"{name}-token"), profiles=TOKENS[name], may_decide=name in ("owner", "clerk")
        )
        for name in names
    ]
    return HttpRules(Access(entries, PROFILES, is_open=is_open))


class Page:
    """Stands for the process: keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, Mapping[str, Any], bytes]] = []

    async def forward(
        self, method: str, path: str, query: bytes, headers: Any, viewer: Mapping[str, Any], body: bytes, receive: Any,
        send: Any,
    ) -> None:  # fmt: skip
        self.asked.append((method, path, viewer, body))
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"the page", "more_body": False})


class Stage:
    """The gate as a browser reaches it; `rules` may be changed at any time."""

    def __init__(self, rules: HttpRules) -> None:
        self.door = Door(rules)
        self.page = Page()
        self.known: list[str] = []
        self._roots: dict[httpx2.AsyncClient, str] = {}
        self._bodies = Bodies(1 << 20)
        self._gate = PageGate(cast("PageProcess", self.page))

    async def app(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        connection = SimpleNamespace(recognise=self.known.append, source="192.0.2.7", principal=None)
        extended = {**scope, "extensions": {CONNECTION: {CONNECTION: connection}}}
        request = HttpRequest(extended, receive, send, 1 << 20, self._bodies, lambda: None)
        await self._gate(self.door, request)
        request.close()

    def browser(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=cast("Any", self.app)), base_url=HOME)

    async def sign_in(self, client: httpx2.AsyncClient, name: str) -> httpx2.Response:
        sent = await client.post("/ui/open", data={"token": f"{name}-token"}, headers={"origin": HOME})
        if sent.status_code == 303:
            self._roots[client] = sent.headers["location"].rstrip("/")
        return sent

    def at(self, client: httpx2.AsyncClient, path: str) -> str:
        """Where a browser that was let in finds a path of the page."""
        return f"{self._roots[client]}{path.removeprefix('/ui') or '/'}"


async def test_a_token_opens_the_page_by_a_form_and_is_kept_from_scripts() -> None:
    stage = Stage(make_rules())
    async with stage.browser() as client:
        first = await client.get("/ui")
        assert first.status_code == 401 and 'type="password"' in first.text
        sent = await stage.sign_in(client, "owner")
        root = sent.headers["location"]
        assert sent.status_code == 303 and re.fullmatch(r"/ui/[\w-]{16}/", root)
        written = sent.headers["set-cookie"]
        assert (
            "HttpOnly" in written
            and "SameSite=Strict" in written
            and f"Path={root};" in written
            and "token" not in written
        )
        assert (await client.get(stage.at(client, "/ui"))).headers["location"] == stage.at(client, "/ui/all/")
        assert (await client.get(stage.at(client, "/ui/all/misses/3"))).text == "the page"
    method, path, viewer, _ = stage.page.asked[0]
    assert (method, path, viewer["profile"], viewer["may_decide"]) == ("GET", "/misses/3", None, True)
    assert len(viewer["form_key"]) > 30 and stage.known


@requirement("trust:http:cookie")
async def test_no_other_port_of_this_machine_is_sent_the_cookie() -> None:
    """Browsers send a cookie to each port of its host; only its path keeps it from the servers of other users."""
    stage = Stage(make_rules())
    async with stage.browser() as client, stage.browser() as other:
        await stage.sign_in(client, "owner")
        await stage.sign_in(other, "owner")
        (cookie,) = client.cookies.jar
        for path in ("/ui", "/ui/", "/ui/all/", "/ui/open", "/ui/profile/work/", stage.at(other, "/ui/all/")):
            assert not path.startswith(cookie.path)
            stolen = {"cookie": f"{cookie.name}={cookie.value}"}
            answer = await client.request("GET", path, headers=stolen)
            assert answer.status_code == 401, path
        assert (await client.get(stage.at(client, "/ui/all/"))).status_code == 200
    assert len(stage.page.asked) == 1


@pytest.mark.parametrize("junk", ["c%d=v", "foretool_u%d", 'c%d="', "c%d=;", "foretool_ui=;%d", " " * 8 + "%d"])
async def test_thousands_of_cookies_of_whoever_comes_take_a_moment_and_hide_none_of_ours(junk: str) -> None:
    stage = Stage(make_rules())
    crowd = "; ".join(junk % number for number in range(4000))
    async with stage.browser() as client:
        await stage.sign_in(client, "owner")
        (ours,) = client.cookies.jar
        client.cookies.clear()
        sent = [f"{crowd}; {ours.name}={ours.value}", crowd]
        began = time.thread_time()
        answers = [await client.get(stage.at(client, "/ui/all/"), headers={"cookie": each}) for each in sent * 10]
        assert time.thread_time() - began < 0.15
    assert [each.status_code for each in answers] == [200, 401] * 10


async def test_nobody_without_a_token_of_the_config_learns_anything() -> None:
    stage = Stage(make_rules())
    async with stage.browser() as client:
        for path in ("/ui", "/ui/all/", "/ui/profile/work/", "/ui/none", "/ui/all/static/page.css"):
            answer = await client.get(path)
            assert answer.status_code == 401 and "work" not in answer.text, path
        wrong = await client.post("/ui/open", data={"token": "<script>"}, headers={"origin": HOME})
        assert wrong.status_code == 401 and "set-cookie" not in wrong.headers and "<script>" not in wrong.text
        for cookie in ("", "x", "owner-token"):
            assert (await client.get("/ui/all/", headers={"cookie": f"{COOKIE}={cookie}"})).status_code == 401
        assert (await client.get("/ui/all/", headers={"authorization": "Bearer no"})).status_code == 401
    assert stage.page.asked == []


async def test_the_token_of_a_profile_reaches_that_profile_alone() -> None:
    stage = Stage(make_rules())
    async with stage.browser() as client:
        await stage.sign_in(client, "clerk")
        assert (await client.get(stage.at(client, "/ui"))).headers["location"] == stage.at(client, "/ui/profile/work/")
        assert (await client.get(stage.at(client, "/ui/profile/work/misses?profile=home"))).status_code == 200
        for path in (
            "/ui/all/", "/ui/profile/home/", "/ui/profile/default/", "/ui/profile//", "/ui/profile/work",
            "/ui/profile/none/", "/ui/profile/WORK/", "/ui/all", "/ui/x/",
        ):  # fmt: skip
            answer = await client.get(stage.at(client, path))
            assert answer.status_code == 404, path
            assert "home" not in answer.text
        # Whatever follows the profile in the address, the viewer stays that of the profile.
        await client.get(stage.at(client, "/ui/profile/work/%2e%2e/%2e%2e/all/misses"))
    assert {viewer["profile"] for _, _, viewer, _ in stage.page.asked} == {"work"}
    # A token of one profile changes nothing for all, whatever its entry says.
    assert {viewer["may_decide"] for _, _, viewer, _ in stage.page.asked} == {False}


async def test_a_token_of_several_profiles_chooses_among_them() -> None:
    stage = Stage(make_rules())
    async with stage.browser() as client:
        await stage.sign_in(client, "both")
        chosen = (await client.get(stage.at(client, "/ui"))).text
        for name in ("home", "work"):
            assert f'href="{stage.at(client, f"/ui/profile/{name}/")}">{name}<' in chosen
        await stage.sign_in(client, "main")
        assert (await client.get(stage.at(client, "/ui"))).headers["location"] == stage.at(
            client, "/ui/profile/default/"
        )
        assert (await client.get(stage.at(client, "/ui/profile/default/"))).status_code == 200
    assert stage.page.asked[-1][2]["profile"] == ""


async def test_an_agents_token_reads_and_a_program_may_send_it_as_a_header() -> None:
    stage = Stage(make_rules())
    async with stage.browser() as client:
        answer = await client.get("/ui/all/", headers={"authorization": "Bearer agent-token"})
        assert answer.status_code == 200 and "set-cookie" not in answer.headers
    assert stage.page.asked[0][2]["may_decide"] is False


async def test_a_token_that_was_taken_back_opens_nothing_any_more() -> None:
    stage = Stage(make_rules())
    async with stage.browser() as client:
        await stage.sign_in(client, "clerk")
        assert (await client.get(stage.at(client, "/ui/profile/work/"))).status_code == 200
        stage.door.follow(make_rules(("owner",)))
        assert (await client.get(stage.at(client, "/ui/profile/work/"))).status_code == 401


async def test_other_hosts_and_other_sites_are_refused() -> None:
    """DNS rebinding, and pages of other sites or of other ports of this machine."""
    stage = Stage(make_rules(is_open=True, names=()))
    async with stage.browser() as client:
        assert (await client.get("/ui/all/")).status_code == 200
        for host in ("evil.example", "evil.example:8399", "0.0.0.0:8399"):
            assert (await client.get("/ui/all/", headers={"host": host})).status_code == 421
        assert (await client.get("/ui/all/", headers={"origin": "http://evil.example"})).status_code == 403
        for site in ("cross-site", "same-site"):
            assert (await client.get("/ui/all/", headers={"sec-fetch-site": site})).status_code == 403
    stage.door.follow(make_rules())
    async with stage.browser() as client:
        for origin in ("http://127.0.0.1:1234", "null", "http://localhost:8399"):
            sent = await client.post("/ui/open", data={"token": "owner-token"}, headers={"origin": origin})
            assert sent.status_code == 403 and "set-cookie" not in sent.headers
        assert (await client.post("/ui/open", data={"token": "owner-token"})).status_code == 403
    assert len(stage.page.asked) == 1


async def test_where_no_token_is_needed_everybody_reads_and_nobody_decides() -> None:
    stage = Stage(make_rules(is_open=True, names=()))
    async with stage.browser() as client:
        assert (await client.get("/ui")).headers["location"] == "/ui/all/"
        await client.get("/ui/all/")
    assert stage.page.asked[0][2]["may_decide"] is False


async def test_every_answer_has_the_headers_and_large_forms_are_refused() -> None:
    stage = Stage(make_rules())
    async with stage.browser() as client:
        for answer in (await client.get("/ui"), await client.get("/ui/x"), await stage.sign_in(client, "owner")):
            assert "default-src 'none'" in answer.headers["content-security-policy"]
            assert answer.headers["cache-control"] == "no-store"
        assert (await client.post(stage.at(client, "/ui/all/review/x"), content=b"x" * 300_000)).status_code == 413
    assert stage.page.asked == []


@requirement("trust:http:one-door", "trust:http:bodies")
async def test_a_form_without_a_token_is_read_up_to_a_few_kilobytes() -> None:
    stage = Stage(make_rules())
    async with stage.browser() as client:
        sent = await client.post("/ui/open", content=b"token=" + b"x" * 9_000, headers={"origin": HOME})
    assert sent.status_code == 413


@requirement("trust:http:one-door")
async def test_requests_per_minute_hold_for_the_page() -> None:
    rules = make_rules()
    stage = Stage(HttpRules(rules.access, rules.guards, HttpLimits(requests_per_minute=5)))
    async with stage.browser() as client:
        await stage.sign_in(client, "owner")
        statuses = [(await client.get(stage.at(client, "/ui/all/"))).status_code for _ in range(6)]
        assert statuses == [200, 200, 200, 200, 429, 429]
        agent = {"authorization": "Bearer agent-token"}
        answers = [await client.get("/ui/profile/work/", headers=agent) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 200, 200, 429]
    assert int(answers[-1].headers["retry-after"]) > 0


@requirement("trust:http:guesses", "trust:http:one-door")
async def test_after_many_wrong_tokens_a_guess_learns_nothing_and_who_was_in_stays_in() -> None:
    stage = Stage(make_rules())
    async with stage.browser() as client, stage.browser() as guesser:
        await stage.sign_in(client, "owner")
        guesses = [(await stage.sign_in(guesser, f"guess-{number}")).status_code for number in range(WRONG_TOKENS + 2)]
        assert guesses == [401] * WRONG_TOKENS + [429] * 2
        assert (await stage.sign_in(guesser, "clerk")).status_code == 429
        assert (await guesser.get("/ui/", headers={"authorization": "Bearer clerk-token"})).status_code == 429
        assert (await client.get(stage.at(client, "/ui/all/"))).status_code == 200
        assert (await stage.sign_in(client, "owner")).status_code == 303


@requirement("trust:http:sessions-share")
async def test_one_token_cannot_take_the_visits_of_the_others() -> None:
    stage = Stage(make_rules())
    async with stage.browser() as owner, stage.browser() as clerk:
        await stage.sign_in(owner, "owner")
        for _ in range(210):
            await stage.sign_in(clerk, "clerk")
        assert (await owner.get(stage.at(owner, "/ui/all/"))).status_code == 200
        assert (await clerk.get(stage.at(clerk, "/ui/profile/work/"))).status_code == 200
