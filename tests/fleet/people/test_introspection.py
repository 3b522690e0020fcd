"""Which tokens are believed where the authorization server is asked about each of them."""

from __future__ import annotations

import asyncio
import time
from typing import Any
from urllib.parse import parse_qs

import pytest
from issuer_fakes import ISSUER, RESOURCE, access_entry
from requirements import requirement

from foretool.fleet.people import introspection
from foretool.fleet.people.credentials import CredentialError, Subjects
from foretool.fleet.people.introspection import OpaqueTokens, new_issuer
from foretool.server.transports.client.security import RequestRefused

pytestmark = pytest.mark.anyio
PROFILES = ("", "work", "home")
ANN = {"active": True, "sub": "ann", "aud": RESOURCE, "iss": ISSUER, "groups": ["developers"], "scope": "mcp home"}


class Server:
    """An introspection endpoint, and what it was asked."""

    def __init__(self, **tokens: Any) -> None:
        self.tokens: dict[str, Any] = tokens
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.is_away = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def post(self, url: str, headers: Any, content: bytes) -> tuple[int, dict[str, Any]]:
        assert url == "https://login.example.com/introspect"
        form = {name: values[0] for name, values in parse_qs(content.decode()).items()}
        assert form.pop("token_type_hint") == "access_token"
        token = form.pop("token")
        self.asked.append(token)
        self.headers.append(dict(headers))
        assert not form
        await self.may_answer.wait()
        if self.is_away:
            raise CredentialError("the authorization server at https://login.example.com cannot be asked")
        return self.status, self.tokens.get(token, {"active": False})


def opaque(server: Server, subjects: Subjects | None = None, **entry: Any) -> OpaqueTokens:
    where = "https://login.example.com/introspect"
    made = access_entry(introspection_endpoint=where, client_id="foretool", client_secret="s3cret", **entry)
    return OpaqueTokens(made, PROFILES, subjects, server.post)


async def refusal(issuer: OpaqueTokens, shown: str) -> RequestRefused:
    with pytest.raises(RequestRefused) as refused:
        await issuer.identify(shown)
    return refused.value


async def test_what_the_server_says_of_a_token_counts() -> None:
    server = Server(good=ANN)
    subjects = Subjects()
    subjects.wanted = True
    issuer = opaque(server, subjects, scopes=("mcp",))
    found = await issuer.identify("good")
    assert found.profiles == {"work", "home"} and found.name == "ann" and found.principal.startswith("oauth:")
    assert issuer.again(found) == found or issuer.again(found) is not None
    assert server.headers[0]["authorization"] == "Basic Zm9yZXRvb2w6czNjcmV0"
    assert subjects.find(found.principal) == "good"
    assert [await issuer.identify("good") for _ in range(5)] == [found] * 5 and server.asked == ["good"]


@requirement("trust:http:issuer")
@pytest.mark.parametrize(("changes", "said"), [
    ({"active": False}, "not active"),
    ({"aud": "https://other.example/mcp"}, "another audience"),
    ({"aud": None}, "another audience"),
    ({"aud": [1, None]}, "another audience"),
    ({"iss": "https://evil.example"}, "another issuer"),
    ({"sub": None}, "names nobody"),
    ({"sub": ""}, "names nobody"),
    ({"sub": ["ann"]}, "names nobody"),
    ({"exp": 1}, "has expired"),
    ({"exp": True}, "not well-formed"),
    ({"exp": "soon"}, "not well-formed"),
    ({"nbf": 4e9}, "not valid yet"),
    ({"token_type": "DPoP"}, "another purpose"),
    ({"cnf": {"jkt": "x"}}, "another purpose"),
])  # fmt: skip
async def test_a_token_that_is_not_for_us_is_refused_and_asked_for_once(changes: Any, said: str) -> None:
    server = Server(bad={**ANN, **changes})
    issuer = opaque(server)
    for _ in range(3):
        refused = await refusal(issuer, "bad")
        assert refused.status == 401 and said in str(refused) and "bad" not in str(refused)
    assert server.asked == ["bad"]


async def test_a_revoked_token_is_refused_once_the_answer_has_run_out() -> None:
    server = Server(good=ANN)
    issuer = opaque(server, introspection_s=5)
    found = await issuer.identify("good")
    assert 4 < found.expires_at - time.time() <= 5  # streams end with the answer
    server.tokens.clear()
    assert await issuer.identify("good") == found
    (digest,) = issuer._believed
    issuer._believed[digest] = introspection._Answer(time.monotonic() - 0.001, found)
    assert (await refusal(issuer, "good")).status == 401
    assert len(server.asked) == 2 and not issuer._believed


async def test_many_requests_with_one_token_wait_for_one_question() -> None:
    server = Server(good=ANN, other={**ANN, "sub": "ben"})
    issuer = opaque(server)
    server.may_answer.clear()
    waiting = [asyncio.create_task(issuer.identify(each)) for each in ["good", "other"] * 20]
    await asyncio.sleep(0)
    waiting[0].cancel()
    await asyncio.sleep(0)
    server.may_answer.set()
    found = await asyncio.gather(*waiting[1:])
    assert {each.name for each in found} == {"ann", "ben"} and sorted(server.asked) == ["good", "other"]


async def test_while_the_server_is_away_nothing_new_is_believed() -> None:
    server = Server(good=ANN)
    issuer = opaque(server)
    server.is_away = True
    refused = await refusal(issuer, "good")
    assert refused.status == 503 and refused.headers["retry-after"] == "10" and "\n" not in str(refused)
    server.is_away, server.status = False, 500
    assert (await refusal(issuer, "good")).status == 503
    server.status = 200
    server.tokens["odd"] = {"active": "true"}
    assert (await refusal(issuer, "odd")).status == 503
    assert (await issuer.identify("good")).name == "ann"


async def test_made_up_tokens_push_out_nobody_and_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(introspection, "MOST_KEPT", 3)
    monkeypatch.setattr(introspection, "MOST_ASKED", 4)
    server = Server(good=ANN)
    issuer = opaque(server)
    await issuer.identify("good")
    for number in range(10):
        await refusal(issuer, f"made-up-{number}")
    assert len(issuer._disbelieved) == 3 and (await issuer.identify("good")).name == "ann"
    assert server.asked.count("good") == 1
    server.may_answer.clear()
    waiting = [asyncio.create_task(refusal(issuer, f"more-{number}")) for number in range(6)]
    await asyncio.sleep(0.01)
    server.may_answer.set()
    assert sorted(each.status for each in await asyncio.gather(*waiting)) == [401] * 4 + [503] * 2
    for odd in ("", "a b\x00", "ä", "x" * 20_000):
        assert (await refusal(issuer, odd)).status == 401
    assert not any("x" * 100 in each for each in server.asked)
    await issuer.close()


async def test_the_config_says_which_way_is_used() -> None:
    entry = opaque(Server()).entry
    assert isinstance(new_issuer(entry, PROFILES, None), OpaqueTokens)
    assert not isinstance(new_issuer(access_entry(), PROFILES, None), OpaqueTokens)
