"""The library: steps, calls, the loop with its second pass, and its end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import FakeUpstream, config_of, text, tool
from library_fakes import Faked, mail
from requirements import requirement
from stored_records import calls_of

from bench.servers import echo
from foretool import CallFailed, Foretool, Reply, Step
from foretool.server.config.errors import ConfigError
from foretool.storage.opening import open_store

pytestmark = pytest.mark.anyio

MANY = [tool(f"letter{number}", f"Sends letter {number}") for number in range(30)]
OTHERS = FakeUpstream("others", [tool(f"other{number}", f"Computes thing {number}") for number in range(300)])


@requirement("library:step")
async def test_a_step_has_prompt_tools_confidence_and_calls_them(tmp_path: Path) -> None:
    upstream = mail()
    async with Faked(tmp_path, upstream) as ft:
        step = await ft.step("send a letter")
        result = await step.call("mail__send_now", {"to": "Ada"})
    assert step.tools.names == ["mail__send_now", "mail__read", "discover_tools"]
    assert "discover_tools" in step.system_prompt
    assert step.confidence in ("high", "medium", "low") and 0.0 < step.probability < 1.0
    assert (result.text, result.structured, result.is_error) == ("sent", {"id": 7}, False)
    assert upstream.calls == [("send.now", {"to": "Ada"})]


@requirement("library:shapes")
async def test_tools_come_in_the_shapes_of_three_apis(tmp_path: Path) -> None:
    async with Faked(tmp_path, mail()) as ft:
        tools = (await ft.step("send a letter")).tools
    schema = {"type": "object", "properties": {"to": {"type": "string"}}}
    about = "Sends a letter to somebody"
    assert tools.mcp[0] == {"name": "mail__send_now", "description": about, "inputSchema": schema}
    assert tools.openai[0] == {
        "type": "function",
        "function": {"name": "mail__send_now", "description": about, "parameters": schema},
    }
    assert tools.anthropic[0] == {"name": "mail__send_now", "description": about, "input_schema": schema}
    assert len(tools) == len(tools.openai) == len(tools.anthropic) == len(list(tools)) == 3


@requirement("library:widen")
async def test_a_step_is_widened_below_the_threshold_only(tmp_path: Path) -> None:
    async with Faked(tmp_path, FakeUpstream("many", MANY), OTHERS) as ft:
        step = await ft.step("sends letter")
        assert await step.widen(0.7) is step
        wider = await step.widen(0.69)
    assert (len(step.tools), len(wider.tools), wider.fallback) == (13, 25, "expand")


@requirement("library:loop")
async def test_the_loop_asks_again_where_the_model_finds_its_tools_wanting(tmp_path: Path) -> None:
    seen: list[int] = []

    async def model(step: Step) -> Reply[str]:
        seen.append(len(step.tools))
        return Reply(f"pass {len(seen)}", 0.3)

    async with Faked(tmp_path, FakeUpstream("many", MANY), OTHERS) as ft:
        value, step = await ft.answer("sends letter", model)
    assert (value, seen, step.fallback) == ("pass 2", [13, 25], "expand")
    with open_store(tmp_path / "store.sqlite3") as store:
        assert [(each.sufficiency, each.fallback) for each in store.tasks.steps()] == [(0.3, "expand"), (None, "none")]


@requirement("itr:telemetry")
async def test_what_a_model_raises_is_on_record_and_goes_on(tmp_path: Path) -> None:
    async def model(step: Step) -> Reply[str]:
        raise TimeoutError("no answer")

    async with Faked(tmp_path, mail()) as ft:
        with pytest.raises(TimeoutError):
            await ft.answer("send a letter", model)
    with open_store(tmp_path / "store.sqlite3") as store:
        assert [each.error for each in store.tasks.steps()] == ["TimeoutError", ""]


@requirement("library:record")
async def test_steps_and_calls_are_on_record_as_a_clients_are(tmp_path: Path) -> None:
    async with Faked(tmp_path, mail(), FakeUpstream("calc", ["add"])) as ft:
        step = await ft.step("send a letter")
        await step.call("mail__send_now")
        await ft.call("calc__add")
    with open_store(tmp_path / "store.sqlite3") as store:
        (session,) = store.sessions.recent()
        called = [(call.tool, call.hidden, call.outcome) for call in calls_of(store, session.key)]
        (miss,) = store.calls.misses(0.0)
        (discovery,) = store.discoveries.recent(-1)
    assert (session.client, session.ended_at is not None) == ("foretool library", True)
    assert called == [("mail__send_now", False, "ok"), ("calc__add", True, "ok")]
    assert (miss.tool, miss.noticed, discovery.task) == ("calc__add", "call", "send a letter")


@requirement("library:errors")
async def test_an_unknown_tool_is_an_error_and_a_failed_one_a_result(tmp_path: Path) -> None:
    upstream = mail()
    upstream.results["read"] = text("no such letter", isError=True)
    async with Faked(tmp_path, upstream) as ft:
        with pytest.raises(CallFailed, match="Unknown tool: mail__nothing"):
            await ft.call("mail__nothing")
        result = await ft.call("mail__read")
    assert (result.text, result.is_error) == ("no such letter", True)


async def test_discover_tools_is_called_like_any_tool(tmp_path: Path) -> None:
    async with Faked(tmp_path, mail()) as ft:
        step = await ft.step("weather")
        result = await step.call("discover_tools", {"task": "read a letter", "structured": True})
    assert result.structured["matches"][0]["name"] == "mail__read"


async def test_what_a_model_searched_for_is_in_the_next_steps_of_the_task(tmp_path: Path) -> None:
    async with Faked(tmp_path, mail(), OTHERS) as ft:
        before = await ft.step("computes thing 7")
        found = await before.call("discover_tools", {"task": "read a letter"})
        after = await ft.step("computes thing 7")
        again = await ft.step("computes thing 7")
        other = await ft.step("say what the weather will be")
    assert "mail__read" not in before.tools.names
    # It has no bridges: what it found is called by its own name.
    assert "mail__read" in found.text and "call_tool" not in found.text
    assert after.tools.names[0] == "mail__read" and {*before.tools.names[:5]} <= {*after.tools.names}
    assert again.tools.names == after.tools.names and "mail__read" not in other.tools.names


async def test_the_steps_follow_a_search_that_passes_on_the_handle_of_the_one_before(tmp_path: Path) -> None:
    async with Faked(tmp_path, mail(), OTHERS) as ft:
        await ft.step("computes thing 7")
        found = await ft.call("discover_tools", {"task": "send a letter now"})
        await ft.call("mail__send_now", {"to": "Ada"})
        handle = found.text.rpartition("handle: ")[2].split()[0]
        await ft.call("discover_tools", {"task": "computes thing 250", "handle": handle})
        step = await ft.step("computes thing 7")
    assert step.tools.names[0] == "others__other250"


async def test_what_was_found_is_a_miss_of_the_step_before_it_and_keeps_the_budget(tmp_path: Path) -> None:
    async with Faked(tmp_path, mail(), OTHERS) as ft:
        step = await ft.step("computes thing 7")
        await step.call("discover_tools", {"names": ["mail__send_now"]})
        step = await ft.step("computes thing 7", budget=700)
        await step.call("mail__send_now", {"to": "Ada"})
    assert step.tools.names[0] == "mail__send_now" and step.tokens <= 700
    with open_store(tmp_path / "store.sqlite3") as store:
        assert [(miss.tool, miss.recovered) for miss in store.calls.misses(0.0)] == [("mail__send_now", "discovered")]


async def test_a_cancelled_call_is_cancelled_at_the_upstream(tmp_path: Path) -> None:
    upstream = mail()
    upstream.hold("read")
    async with Faked(tmp_path, upstream) as ft:
        call = asyncio.create_task(ft.call("mail__read"))
        await upstream.called("read")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await upstream.asked("notifications/cancelled")


async def test_a_cancelled_call_leaves_a_later_one_alone(tmp_path: Path) -> None:
    upstream = mail()
    upstream.hold("read")
    async with Faked(tmp_path, upstream) as ft:
        call = asyncio.create_task(ft.call("mail__read"))
        await upstream.called("read")
        upstream.hold("send.now")
        later = asyncio.create_task(ft.call("mail__send_now", {"to": "Ada"}))
        asked = await upstream.called("send.now")
        call.cancel()
        await upstream.asked("notifications/cancelled")
        asked.reply({"content": [{"type": "text", "text": "sent"}]})
        assert (await later).text == "sent"


@requirement("library:errors")
async def test_a_call_that_is_open_at_the_end_fails(tmp_path: Path) -> None:
    upstream = mail()
    upstream.hold("read")
    with pytest.raises(KeyError):
        async with Faked(tmp_path, upstream) as ft:
            call = asyncio.create_task(ft.call("mail__read"))
            await upstream.called("read")
            raise KeyError
    with pytest.raises(CallFailed, match="ended before the answer came"):
        await call


@requirement("library:errors")
async def test_it_works_inside_its_block_only(tmp_path: Path) -> None:
    ft = Faked(tmp_path, mail())
    with pytest.raises(RuntimeError, match="inside `async with` only"):
        await ft.step("x")
    async with ft:
        pass
    with pytest.raises(RuntimeError, match="entered once"):
        await ft.__aenter__()
    with pytest.raises(ConfigError, match="no profile 'work'; it has: none"):
        Foretool(config_of(mail()), profile="work")


@requirement("library:light")
def children() -> set[str]:
    """The ids of this process's children."""
    return {id for task in Path("/proc/self/task").iterdir() for id in (task / "children").read_text().split()}


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no /proc that names children")
async def test_no_process_of_it_runs_after_its_block(tmp_path: Path) -> None:
    entry = {"command": sys.executable, "args": ["-S", "-E", echo.__file__, "--name", "files", "--count", "2"]}
    settings = {"storage": str(tmp_path / "store.sqlite3"), "encoder": "none"}
    before = children()
    async with Foretool({"mcpServers": {"files": entry}, "foretool": settings}) as ft:
        await ft.call("files__files_echo", {"text": "hi"})
        assert children() > before
    assert children() <= before


def test_importing_foretool_imports_nothing_of_it() -> None:
    code = "import sys, foretool; print([m for m in sys.modules if m.startswith('foretool.')]); foretool.Foretool"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
    with pytest.raises(AttributeError, match="no attribute 'Nothing'"):
        __import__("foretool").Nothing  # noqa: B018
