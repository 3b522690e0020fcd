"""What browsers and callers are told of consents; whole ways stand in tests/attacks/test_per_user.py."""

from __future__ import annotations

from typing import Any, cast

import pytest
from fakes import FakeUpstream, proxy_over

from foretool.fleet.people import grants as identity
from foretool.fleet.people.connecting import MOST_QUERY, UnconfirmedGrants, come_back
from foretool.fleet.people.credentials import CredentialError

pytestmark = pytest.mark.anyio


class Grants:
    def __init__(self) -> None:
        self.asked: list[tuple[str, str, str]] = []

    async def come_back(self, state: str, code: str, error: str) -> str:
        self.asked.append((state, code, error))
        if state != "good":
            raise CredentialError("this is <not> known")
        return "ABCD-EFGH-JKLM"


async def test_the_page_shows_the_code_or_why_there_is_none() -> None:
    grants = Grants()
    status, page = await come_back(cast("Any", grants), "state=good&code=c&iss=https%3A%2F%2Fx")
    assert status == 200 and b"<b>ABCD-EFGH-JKLM</b>" in page
    status, page = await come_back(cast("Any", grants), "state=bad&error=%3Cscript%3E")
    assert status == 400 and b"this is &lt;not&gt; known" in page and b"<script" not in page
    for odd in ("", "&&&===", "state=" + "x" * MOST_QUERY):
        assert (await come_back(cast("Any", grants), odd))[0] == 400
    assert grants.asked[:2] == [("good", "c", ""), ("bad", "", "<script>")] and len(grants.asked) == 5


async def test_who_is_not_known_connects_nothing() -> None:
    async with proxy_over(FakeUpstream("git", ["push"])) as stage:
        await stage.client.initialize()
        for arguments in ({"server": "git", "code": "x"}, {"server": "none"}, {}, {"server": 1}):
            result = await stage.client.call_tool("connect_server", arguments)
            assert result["isError"] and "no server of this name wants the consent" in str(result)


async def test_what_was_never_confirmed_is_looked_for_from_time_to_time_where_people_allow_anything(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    looks: list[int] = []

    class Late:
        async def end_late(self) -> int:
            looks.append(1)
            return len(looks) - 1

    wanted = False
    caplog.set_level("INFO")
    late = UnconfirmedGrants(lambda: wanted, lambda: cast("Any", Late()))
    late.tick()
    assert not late.is_working
    wanted = True
    for _ in range(2):
        late.tick()
        late.tick()
        await late.finish()
    assert looks == [1] and not caplog.records
    monkeypatch.setattr(late, "_due", 0.0)
    monkeypatch.setattr(identity, "LATE_S", 0.0)
    late.tick()
    await late.finish()
    assert "1 grants that were allowed" not in caplog.text and "1 grant that was allowed" in caplog.text
