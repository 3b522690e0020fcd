"""An upstream that dies, hangs or forgets us: who asked hears at once what happened, and the next call works."""

from __future__ import annotations

import asyncio

import pytest
from fakes import BOTH, LEGACY, MODERN, FakeUpstream, proxy_over, said, tool
from requirements import requirement

from foretool.server.upstreams.upstream import State
from foretool.storage.records import Era

pytestmark = pytest.mark.anyio


def calc(eras: tuple[Era, ...] = LEGACY) -> FakeUpstream:
    return FakeUpstream("calc", ["slow", "add"], eras)


@requirement("death:in-flight")
@pytest.mark.parametrize("eras", [LEGACY, MODERN, BOTH])
@pytest.mark.parametrize("modern", [False, True])
async def test_calls_in_flight_fail_at_once_and_name_the_upstream(eras: tuple[Era, ...], modern: bool) -> None:
    upstream = calc(eras)
    upstream.hold("slow")
    async with proxy_over(upstream) as stage:
        client = stage.client.modern() if modern else stage.client
        loop = asyncio.get_running_loop()
        calls = [client.post("tools/call", {"name": "calc__slow"}) for _ in range(3)]
        await upstream.called("slow", 3)
        died = loop.time()
        upstream.die("was ended by SIGKILL; last stderr line: 'out of memory'")
        results = [await client.result(call) for call in calls]
        assert loop.time() == died
        outcomes = [(call.outcome, call.sent) for call in stage.calls()]
    for result in results:
        assert result["isError"] is True
        assert "server 'calc' did not answer 'calc__slow'" in said(result)
        assert "out of memory" in said(result)
        assert "it had been sent" in said(result)
    assert outcomes == [("lost", True)] * 3


@requirement("death:in-flight")
@pytest.mark.parametrize("risk", [{}, {"slow": "write"}])
async def test_a_lost_call_of_a_tool_that_only_reads_may_be_repeated(risk: dict[str, str]) -> None:
    slow = tool("slow", annotations={"readOnlyHint": True})
    upstream = FakeUpstream("calc", [slow], entry={"risk": risk})
    upstream.hold("slow")
    async with proxy_over(upstream) as stage:
        call = stage.client.post("tools/call", {"name": "calc__slow"})
        await upstream.called("slow")
        upstream.die()
        text = said(await stage.client.result(call))
    way_out = "it may have been carried out: check before calling again" if risk else "it only reads: call again"
    assert text.endswith(way_out)


async def test_of_a_long_last_line_a_client_reads_the_beginning_and_no_part_of_a_secret() -> None:
    secret = "sk-" + "0123456789" * 8
    upstream = FakeUpstream("calc", ["slow"], entry={"env": {"TOKEN": "${TOKEN}"}})
    upstream.hold("slow")
    async with proxy_over(upstream, environ={"TOKEN": secret}) as stage:
        call = stage.client.post("tools/call", {"name": "calc__slow"})
        await upstream.called("slow")
        upstream.die(f"exited with code 1; last stderr line: '{'too long ' * 20}{secret}{' and more' * 200}'")
        text = said(await stage.client.result(call))
    assert "exited with code 1; last stderr line: 'too long" in text
    assert len(text) < 450
    assert secret[:12] not in text


@requirement("death:reconnect")
async def test_the_next_call_reconnects_and_the_client_notices_nothing_else() -> None:
    upstream = calc()
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.call_tool("calc__add", {})
        loop = asyncio.get_running_loop()
        upstream.die()
        before = loop.time()
        assert said(await stage.client.call_tool("calc__add", {})) == "add"
        assert loop.time() - before < 0.2
    assert upstream.starts == 2
    assert stage.client.notices == []


@requirement("death:others-unaffected")
async def test_a_death_concerns_no_other_upstream() -> None:
    bad, good = calc(), FakeUpstream("good", ["slow"])
    for upstream in (bad, good):
        upstream.hold("slow")
    async with proxy_over(bad, good) as stage:
        client = stage.client
        await client.initialize()
        lost = client.post("tools/call", {"name": "calc__slow"})
        kept = client.post("tools/call", {"name": "good__slow"})
        await bad.called("slow")
        asked = await good.called("slow")
        bad.die()
        await client.result(lost)
        asked.reply({"content": [], "kept": True})
        assert (await client.result(kept))["kept"] is True
    assert good.starts == 1


@requirement("death:not-sent")
async def test_a_call_that_waited_for_a_failing_start_had_not_been_sent() -> None:
    upstream = calc()
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        upstream.missing = "command 'calc' was not found"
        upstream.die()
        result = await stage.client.call_tool("calc__add", {})
        (call,) = stage.calls()
    assert result["isError"] is True
    assert "'calc'" in said(result)
    assert "it had not been sent" in said(result)
    assert "was not found" in said(result)
    assert (call.outcome, call.sent) == ("lost", False)


@requirement("death:backoff")
async def test_an_upstream_that_dies_again_and_again_is_not_restarted_in_a_hurry() -> None:
    upstream = calc()
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()

        def dies_after_its_list(link: object, number: int, line: bytes) -> bool:
            if b'"tools"' in line and b"inputSchema" in line:
                asyncio.get_running_loop().call_later(0.01, upstream.die)
            return False

        upstream.saboteur = dies_after_its_list
        upstream.die()
        await asyncio.sleep(60)  # of the loop's own time
    assert upstream.starts < 20


@requirement("death:state")
async def test_the_state_of_each_upstream_is_visible() -> None:
    upstream, bad = calc(), FakeUpstream("bad", missing="command 'x' was not found")
    upstream.stderr.append("hello from calc")
    async with proxy_over(upstream, bad) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        upstream.link.deliver(b"not protocol")
        await asyncio.sleep(1)  # states are written twice a second
        states = {each.upstream: each for each in stage.store.serving.states()}
        assert (states["calc"].state, states["calc"].tools, states["calc"].era) == ("ready", 2, "legacy")
        assert states["calc"].stderr == ("hello from calc",)
        assert states["bad"].state == "retrying"
        assert states["bad"].last_error == "x is not on PATH [FT201]; install it, or write its full path"
        upstream.die("closed its output")
        await asyncio.sleep(1)
        await stage.client.call_tool("calc__add", {})
        await asyncio.sleep(1)
        states = {each.upstream: each for each in stage.store.serving.states()}
        assert (states["calc"].state, states["calc"].restarts, states["calc"].skipped_lines) == ("ready", 1, 1)
    assert upstream.count("initialize") == 2


@requirement("death:stop")
async def test_stopping_ends_every_connection_and_answers_what_is_in_flight() -> None:
    upstream = calc()
    upstream.hold("slow")
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        call = stage.client.post("tools/call", {"name": "calc__slow"})
        await upstream.called("slow")
        entry = stage.app.upstreams["calc"]
        await entry.stop()
        assert "'calc'" in said(await stage.client.result(call))
        assert entry.state is State.STOPPED
    assert upstream.links == []


@requirement("timeout:call")
async def test_a_call_without_an_answer_ends_after_its_time_and_is_cancelled_upstream() -> None:
    upstream = calc()
    upstream.entry["timeout_s"] = 0.000001
    upstream.hold("slow")
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        call = stage.client.post("tools/call", {"name": "calc__slow"})
        asked = await upstream.called("slow")
        result = await stage.client.result(call)  # housekeeping comes by about once a second
        cancelled = await upstream.asked("notifications/cancelled")
        asked.reply({"content": []})  # and what comes now is nobody's
        await stage.client.ask("ping")
        (record,) = stage.calls()
    assert "no answer within" in said(result)
    assert "it had been sent" in said(result)
    assert cancelled.params["requestId"] == asked.message.id
    assert (record.outcome, record.sent) == ("lost", True)
    assert [each["id"] for each in stage.client.messages].count(call) == 1


@requirement("timeout:asleep")
async def test_time_in_which_the_proxy_was_stopped_counts_for_no_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    for clock in ("monotonic", "perf_counter"):
        monkeypatch.setattr(f"time.{clock}", lambda: now)
    upstream = calc()
    upstream.entry["timeout_s"] = 5
    upstream.hold("slow")
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        calls = [stage.client.post("tools/call", {"name": "calc__slow"}) for _ in range(2)]
        stage.app.tick()
        answered = await upstream.called("slow")
        now += 600.0  # a machine sleeps, with its servers
        late = stage.client.post("tools/call", {"name": "calc__slow"})  # read before the clock is looked at
        await upstream.called("slow")
        await upstream.called("slow")
        stage.app.tick()
        now += 1.0
        stage.app.tick()
        answered.reply({"content": [], "awake": True})
        assert (await stage.client.result(calls[0]))["awake"] is True
        for _ in range(5):
            now += 1.0
            stage.app.tick()
        for call in (calls[1], late):
            assert "no answer within" in said(await stage.client.result(call))


@requirement("timeout:none")
async def test_no_time_out_is_set_with_zero() -> None:
    upstream = calc()
    upstream.entry["timeout_s"] = 0
    upstream.hold("slow")
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        call = stage.client.post("tools/call", {"name": "calc__slow"})
        asked = await upstream.called("slow")
        await asyncio.sleep(4)
        asked.reply({"content": [], "late": True})
        assert (await stage.client.result(call))["late"] is True


@requirement("timeout:silent-start")
async def test_an_upstream_that_never_greets_delays_the_list_by_the_deadline_alone() -> None:
    good, silent = calc(), FakeUpstream("silent", ["x"])
    silent.hold("initialize")
    async with proxy_over(good, silent, pin=["*"], cold_list_s=1) as stage:
        loop = asyncio.get_running_loop()
        await stage.client.initialize()
        began = loop.time()
        assert "calc__add" in await stage.client.list_tools()
        assert loop.time() - began <= 1.0
        assert said(await stage.client.call_tool("calc__add", {})) == "add"


@requirement("timeout:silent-lists")
@pytest.mark.parametrize("method", ["resources/list", "prompts/list", "resources/templates/list"])
async def test_an_upstream_that_never_greets_does_not_hold_up_the_other_lists(method: str) -> None:
    good, silent = calc(), FakeUpstream("silent", ["x"])
    silent.hold("initialize")
    async with proxy_over(good, silent, cold_list_s=1) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        await stage.client.ask(method)


@requirement("upstream:almost")
@pytest.mark.parametrize(
    ("noise", "least_s", "most_s", "reason"),
    [
        (
            "calc 1.0\nUsage: calc [--stdio]\n  --stdio",
            10,
            11,
            "wrote 'Usage: calc [--stdio]' to its output, which is not MCP, in place of an answer [FT315]",
        ),
        (
            '{"jsonrpc": "2.0", "id": 1}',
            10,
            11,
            """wrote '{"jsonrpc": "2.0", "id": 1}' to its output, which is not MCP, in place of an answer [FT317]""",
        ),
        (
            "Loading models...",
            60,
            62,
            "within 60 s; it wrote 'Loading models...' to its output, which is not MCP [FT317]",
        ),
    ],
)
async def test_what_an_upstream_writes_in_place_of_its_greeting_is_named(
    noise: str, least_s: float, most_s: float, reason: str
) -> None:
    upstream = FakeUpstream("calc", ["add"], noise=noise, entry={"timeout_s": 100})
    upstream.hold("initialize")
    async with proxy_over(upstream, cold_list_s=1) as stage:
        await stage.client.initialize()
        now = asyncio.get_running_loop().time
        began = now()
        request = stage.client.post("tools/call", {"name": "calc__add", "arguments": {}})
        reply = await stage.client.reply(request, 100)
    assert reason in said(reply["result"])
    assert least_s <= now() - began < most_s


@requirement("session:expired")
@pytest.mark.parametrize("eras", [LEGACY, BOTH])
async def test_an_expired_session_is_opened_anew_and_the_request_sent_again(eras: tuple[Era, ...]) -> None:
    upstream = calc(eras)
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        upstream.scripts["add"] = lambda asked: asked.link.expire(asked.message.id)  # type: ignore[arg-type]
        call = stage.client.post("tools/call", {"name": "calc__add", "arguments": {"n": 1}})
        await upstream.called("add")
        del upstream.scripts["add"]
        assert said(await stage.client.result(call)) == "add"
        (record,) = stage.calls()
    assert upstream.calls == [("add", {"n": 1})] * 2
    assert upstream.starts == 2
    assert record.outcome == "ok"


@requirement("session:expired")
async def test_a_session_that_expires_at_every_request_ends_in_an_error() -> None:
    upstream = calc()
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        upstream.scripts["add"] = lambda asked: asked.link.expire(asked.message.id)  # type: ignore[arg-type]
        result = await stage.client.call_tool("calc__add", {})
    assert result["isError"] is True
    assert "'calc'" in said(result)
    assert len(upstream.calls) < 5


@requirement("era:fallback")
async def test_a_legacy_process_that_is_silent_to_the_modern_probe_is_greeted_the_old_way() -> None:
    upstream = calc()
    upstream.pid = 4711
    upstream.hold("server/discover")
    async with proxy_over(upstream, cold_list_s=1000) as stage:
        call = stage.client.modern().post("tools/call", {"name": "calc__add"})
        await asyncio.sleep(30)  # of the loop's own time: longer than the probe waits
        assert said(await stage.client.result(call)) == "add"
    greeting = await upstream.asked("initialize")
    assert upstream.starts == 1
    assert "_meta" not in greeting.params


@requirement("era:fallback")
@pytest.mark.parametrize(("eras", "modern"), [(LEGACY, True), (MODERN, False)])
async def test_an_upstream_of_the_other_era_serves_all_the_same(eras: tuple[Era, ...], modern: bool) -> None:
    upstream = calc(eras)
    async with proxy_over(upstream) as stage:
        client = stage.client.modern() if modern else stage.client
        result = await client.call_tool("calc__add", {})
    assert said(result) == "add"
    assert ("resultType" in result) is modern


@requirement("era:each-its-own")
async def test_an_upstream_of_both_eras_is_spoken_to_in_the_clients_own() -> None:
    upstream = calc(BOTH)
    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.call_tool("calc__add", {})
        await stage.connect().modern().call_tool("calc__add", {})
    called = [each for each in upstream.requests if each.method == "tools/call"]
    assert ["io.modelcontextprotocol/protocolVersion" in each.meta for each in called] == [False, True]


@requirement("upstream:strange-messages")
@pytest.mark.parametrize(
    "line",
    [
        b"plain text",
        b"",
        b"{",
        b'{"level":"info","msg":"started"}',
        b'{"id":1,"method":"GET","path":"/"}',
        b'{"jsonrpc":"2.0","method":"notifications/resources/updated","params":[1]}',
        b'{"jsonrpc":"2.0","method":"notifications/message","params":7}',
        b'{"jsonrpc":"2.0","method":"notifications/progress","params":[]}',
        b'{"jsonrpc":"2.0","method":"notifications/progress"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":5}',
        b'{"jsonrpc":"2.0","method":"notifications/unheard-of","params":{"a":"\\ud800"}}',
        b'{"jsonrpc":"2.0","id":"x","method":"no/such"}',
        b'{"jsonrpc":"2.0","id":"x","method":"sampling/createMessage","params":5}',
        b'{"jsonrpc":"2.0","id":999,"result":{}}',
        b'{"jsonrpc":"2.0","id":"1","result":{}}',
        b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}',
        b"[" * 50_000,
    ],
)
async def test_what_is_no_sensible_message_does_no_harm(line: bytes) -> None:
    upstream = calc()
    upstream.hold("slow")
    async with proxy_over(upstream) as stage:
        client = stage.client
        await client.initialize()
        call = client.post("tools/call", {"name": "calc__slow"})
        asked = await upstream.called("slow")
        for _ in range(3):
            upstream.link.deliver(line)
        asked.reply({"content": [], "mine": True})
        assert (await client.result(call))["mine"] is True
    assert upstream.starts == 1
    assert client.notices == []


@requirement("upstream:strange-results")
@pytest.mark.parametrize(
    "result", [b"5", b"null", b'["isError"]', b'"isError"', b"{}", b'{"isError":"yes"}', b'{"content":5}']
)
@pytest.mark.parametrize("modern", [False, True])
async def test_a_result_of_the_wrong_shape_is_answered_somehow_and_once(result: bytes, modern: bool) -> None:
    upstream = calc(BOTH)
    upstream.results["add"] = result
    async with proxy_over(upstream) as stage:
        client = stage.client.modern() if modern else stage.client
        reply = await client.reply(client.post("tools/call", {"name": "calc__add"}))
        await client.call_tool("calc__slow", {})
        assert len(stage.calls()) == 2
    assert ("result" in reply) != ("error" in reply)
    assert upstream.starts <= 2


@requirement("death:logged-once")
async def test_a_server_that_does_not_start_is_logged_once_until_it_has_worked(
    caplog: pytest.LogCaptureFixture,
) -> None:
    upstream = FakeUpstream("calc", ["add"], missing="command 'calc' was not found")

    def told() -> int:
        return sum("upstream 'calc'" in record.message for record in caplog.records)

    async with proxy_over(upstream) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        await asyncio.sleep(30)  # of the tests' own clock
        assert stage.app.upstreams["calc"].starts > 3 and told() == 1
        upstream.missing = ""
        assert said(await stage.client.call_tool("calc__add", {})) == "add"
        upstream.missing = "command 'calc' was not found"
        upstream.die("was ended by SIGKILL")
        await asyncio.sleep(200)
        assert told() == 3, "how it ended, and why it does not come back"
