"""The demo: real servers, a real client, foretool between them.

Every number in its output is computed by the run. Exit status 1 if a step failed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

import servers
from mcp import Client, StdioServerParameters
from mcp.client.session import ClientRequestContext
from mcp.client.stdio import stdio_client
from mcp.types import INVALID_REQUEST, CallToolResult, ErrorData, Implementation, ListRootsResult, TextContent, Tool

from foretool._version import __version__
from foretool.retrieval.tokens import count_tokens

FORETOOL = Path(sys.executable).with_name("foretool")
LOG = servers.ROOT / "demo.log"
"""The stderr of the servers and the proxy."""
PATIENCE_S = 60.0

TASK = "what time is it in Tokyo"
CLOCK = "time__get_current_time"
CLOCK_ARGUMENTS = {"timezone": "Asia/Tokyo"}
"""The arguments that a model would fill in; the demo has no model, so it searches with the task alone."""
REPOSITORY = {"repo_path": str(servers.REPOSITORY)}
SKILL_TASK = "write release notes from the latest commits"
HIDDEN: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "time",
        "time__convert_time",
        {"source_timezone": "Europe/Paris", "time": "12:00", "target_timezone": "Asia/Tokyo"},
    ),
    ("git", "call_tool", {"name": "git__git_log", "arguments": {**REPOSITORY, "max_count": 1}}),
    ("git", "call_tool_write", {"name": "git__git_reset", "arguments": REPOSITORY}),
)
"""Servers, the tool that is called without a search, and its arguments. The list names the first two without defining
them, which is no miss. It names no tool beforehand that takes something back, so the third is one."""

CLIENTS = ("claude-desktop", "claude-code", "cursor", "vscode")
"""The clients whose registration is shown."""


class StepFailed(Exception):
    """A step of the demo failed; the text says what was expected and what came."""


class Terminal:
    """Prints lines; on a terminal it keeps one changing line at the bottom."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._moves = out.isatty()

    def line(self, text: str = "") -> None:
        self._out.write(f"\r\x1b[K{text}\n" if self._moves else f"{text}\n")
        self._out.flush()

    def moving(self, text: str) -> None:
        if self._moves:
            self._out.write(f"\r\x1b[K{text}")
            self._out.flush()


def install(terminal: Terminal) -> list[servers.Installed]:
    """Install the servers; those that can be started. Raises StepFailed if there is none."""
    terminal.line("1  Real MCP servers, each in an environment of its own under .demo/")
    installed: list[servers.Installed] = []
    total = len(servers.PYTHON_SERVERS) + len(servers.NODE_SERVERS)
    terminal.moving(f"   installing {total} servers ...")
    for done, outcome in enumerate(servers.install_all(), 1):
        match outcome:
            case servers.Installed(server, version, _, took_s):
                installed.append(outcome)
                how = f"installed in {took_s:.0f} s" if took_s else "there already"
                terminal.line(f"   {server.name:<11} {server.package} {version}, {how}")
            case servers.LeftOut(server, reason, failed):
                said = "NOT INSTALLED" if failed else "left out"
                terminal.line(f"   {server.name:<11} {server.package} {said}: {reason}")
        terminal.moving(f"   {done} of {total} ready ...")
    if not installed:
        raise StepFailed("no server could be installed; is there a way to the package registry?")
    servers.write_config(installed)
    return installed


def prepare_search(terminal: Terminal) -> None:
    """Have foretool list and embed all tools, as a proxy does in its first minute: the demo searches at once."""
    terminal.moving("   preparing the search ...")
    run_foretool("search", TASK, capture=True)


async def all_definitions(upstreams: Sequence[servers.Installed], log: TextIO) -> list[Tool]:
    """The tools that a client would get with all these servers in its own config."""
    lists = await asyncio.gather(*(_definitions(each, log) for each in upstreams))
    return [tool for tools in lists for tool in tools]


async def _definitions(upstream: servers.Installed, log: TextIO) -> list[Tool]:
    program, *arguments = (*upstream.command, *upstream.server.arguments)
    async with connected(program, arguments, log) as client:
        return (await client.list_tools()).tools


def connected(program: str, arguments: Sequence[str], log: TextIO) -> Client:
    """The official SDK's client over stdio, without its cache, so that every answer comes from the server."""
    process = StdioServerParameters(command=program, args=list(arguments))
    us = Implementation(name="demo", version=__version__)
    # Some servers list more tools to a client that they may ask something, as most clients let them.
    return Client(
        stdio_client(process, errlog=log), read_timeout_seconds=PATIENCE_S, client_info=us, cache=None,
        sampling_callback=refuse, elicitation_callback=refuse, list_roots_callback=list_no_roots,
    )  # fmt: skip


async def refuse(context: ClientRequestContext, params: object) -> ErrorData:
    """Answer a server that asks the model or the user: the demo has neither."""
    return ErrorData(code=INVALID_REQUEST, message="the demo has no model and no user")


async def list_no_roots(context: ClientRequestContext) -> ListRootsResult:
    return ListRootsResult(roots=[])


async def list_when_complete(client: Client, total: int) -> list[Tool]:
    """foretool's list, once the servers behind it have started and told it all their tools.

    A first list never waits longer than two seconds for servers it has never seen; the demo wants to be the same each
    time. The summary in `discover_tools` counts the tools.
    """
    deadline = time.monotonic() + PATIENCE_S
    while True:
        listed = (await client.list_tools()).tools
        summary = next((tool.description or "" for tool in listed if tool.name == "discover_tools"), "")
        if re.search(rf"\b{total}\b", summary):
            return listed
        if time.monotonic() > deadline:
            raise StepFailed(f"expected {total} tools behind foretool; discover_tools says {summary!r}")
        await asyncio.sleep(0.2)


def compare(terminal: Terminal, direct: Sequence[Tool], listed: Sequence[Tool], upstreams: int) -> None:
    """Print what a client has to read, with and without foretool. Raises StepFailed unless foretool saves tokens."""
    before, after = count_tokens([definitions(direct), definitions(listed)])
    terminal.line(f"   without foretool  {len(direct):>3} tools of {upstreams} servers  {before:>6,} tokens")
    names = ", ".join(tool.name for tool in listed)
    saved = 1 - after / before
    terminal.line(f"   with foretool     {len(listed):>3} tools               {after:>6,} tokens   ({saved:.1%} less)")
    terminal.line(f"   listed: {names}")
    terminal.line(f"   (The demo sets list_tokens to {servers.LIST_TOKENS:,}, so that there is something to find.")
    terminal.line("   By default so few tools are all listed, and nothing is saved.)")
    if after >= before:
        raise StepFailed(f"the list is not smaller: {after} tokens against {before}")


async def discover(terminal: Terminal, client: Client, task: str, wanted: str) -> None:
    """Ask for a tool in words. Raises StepFailed unless `wanted` is found."""
    started = time.perf_counter()
    result = await client.call_tool("discover_tools", {"task": task, "structured": True})
    took_ms = (time.perf_counter() - started) * 1000
    found: Mapping[str, Any] = result.structured_content or {}
    matches = found.get("matches", [])
    size = count_tokens([text(result)])[0]
    terminal.line(f'   discover_tools(task="{task}")   {took_ms:.0f} ms, {size:,} tokens')
    terminal.line(f"   confidence {found.get('confidence')}, {len(matches)} matches")
    for place, match in enumerate(matches[:3], 1):
        terminal.line(f"   {place}. {match['name']}: {short(match['description'], 50)}  [{short(match['why'], 30)}]")
    names = [match["name"] for match in matches]
    if wanted not in names:
        raise StepFailed(f"{wanted} is not among the {len(names)} matches")


async def read_skill(terminal: Terminal, client: Client) -> None:
    """Find a skill of the user's own beside the tools, and read it. Raises StepFailed unless both succeed."""
    found = text(await client.call_tool("discover_tools", {"task": SKILL_TASK}))
    line = next((each for each in found.splitlines() if each.startswith("skill ")), "")
    uri = re.search(r"skill://[^\"]+", line)
    if uri is None:
        raise StepFailed(f"no skill was found for {SKILL_TASK!r}")
    terminal.line(f'   discover_tools(task="{SKILL_TASK}")')
    terminal.line(f"   -> {short(line, 96)}")
    read = text(await client.call_tool("discover_tools", {"names": [uri[0]]}))
    terminal.line(f'   discover_tools(names=["{uri[0]}"])')
    body = servers.SKILL.splitlines()[-1]
    if body not in read:
        raise StepFailed(f"{uri[0]} was not read: {read!r}")
    terminal.line(f"   -> {short(body, 96)}")


async def call(terminal: Terminal, client: Client, name: str, arguments: Mapping[str, Any]) -> None:
    """Call a tool and print its answer. Raises StepFailed if that is an error."""
    started = time.perf_counter()
    result = await client.call_tool(name, dict(arguments))
    took_ms = (time.perf_counter() - started) * 1000
    # Without the path of this checkout, which is long and says nothing.
    shown = json.dumps(arguments).replace(f"{servers.ROOT.parent}/", "")
    terminal.line(f"   {name}({shown})   {took_ms:.0f} ms")
    terminal.line(f"   -> {short(text(result), 96)}")
    if result.is_error:
        raise StepFailed(f"{name} answered with an error")


def run_foretool(*arguments: str, capture: bool = False) -> str:
    """Run our own command, which prints for itself unless captured. Raises StepFailed if it fails."""
    command = [str(FORETOOL), *arguments, "--config", str(servers.CONFIG)]
    out = subprocess.PIPE if capture else None
    done = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, text=True, timeout=PATIENCE_S, check=False)
    if done.returncode:
        raise StepFailed(f"foretool {arguments[0]} exited with {done.returncode}: {done.stderr.strip()}")
    return done.stdout or ""


def call_from_shell(terminal: Terminal) -> None:
    """Call a tool as a script does. Raises StepFailed if that fails."""
    arguments = [f"{name}={value}" for name, value in CLOCK_ARGUMENTS.items()]
    terminal.line(f"   foretool call {CLOCK} {' '.join(arguments)} --text")
    terminal.line(f"   -> {short(run_foretool('call', CLOCK, *arguments, '--text', capture=True), 96)}")


def print_registrations(terminal: Terminal) -> None:
    """Print one line to paste for some clients: its command, or the entry and the file it belongs into."""
    for client in CLIENTS:
        (each,) = json.loads(run_foretool("connect", client, "--json", capture=True))
        terminal.line(f"   {each['title']}" + ("" if each["command"] else f", in {each['file']}"))
        terminal.line(f"      {each['command'] or json.dumps(each['entry'])}")


def definitions(tools: Sequence[Tool]) -> str:
    """The tools as they stand in a `tools/list`."""
    plain = [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in tools]
    return json.dumps(plain, separators=(",", ":"), ensure_ascii=False)


def text(result: CallToolResult) -> str:
    return "\n".join(part.text for part in result.content if isinstance(part, TextContent))


def short(long: str, width: int) -> str:
    line = " ".join(long.split())
    return line if len(line) <= width else f"{line[: width - 3]}..."


async def converse(terminal: Terminal, upstreams: Sequence[servers.Installed], log: TextIO) -> None:
    """Steps 2 to 5: one client, from its first list to its last call."""
    direct = await all_definitions(upstreams, log)
    async with connected(str(FORETOOL), ["serve", "--config", str(servers.CONFIG)], log) as client:
        listed = await list_when_complete(client, len(direct))
        terminal.line()
        terminal.line(f"2  What a client has to read before it can work (protocol {client.protocol_version})")
        compare(terminal, direct, listed, len(upstreams))
        terminal.line()
        terminal.line("3  A tool found from a task in words, and called")
        await discover(terminal, client, TASK, CLOCK)
        await call(terminal, client, CLOCK, CLOCK_ARGUMENTS)
        terminal.line()
        terminal.line("4  Tools that the list does not define, called by name and through the bridge")
        names = {each.server.name for each in upstreams}
        for tool, arguments in ((tool, arguments) for server, tool, arguments in HIDDEN if server in names):
            if (arguments.get("name") or tool) in {each.name for each in listed}:
                raise StepFailed(f"{tool} {arguments}: expected a tool that is not listed; choose another one here")
            await call(terminal, client, tool, arguments)
        terminal.line()
        terminal.line("5  A skill, found beside the tools and read")
        await read_skill(terminal, client)


def main() -> int:
    terminal = Terminal(sys.stdout)
    # Each run begins with an empty record.
    for old in (*servers.ROOT.glob(f"{servers.STORAGE.name}*"), *servers.ROOT.glob(LOG.name)):
        old.unlink()
    try:
        show(terminal)
    except Exception as error:  # noqa: BLE001  (the boundary: whatever a server or the SDK raised, in words and in the log)
        return fail(terminal, error)
    return 0


def show(terminal: Terminal) -> None:
    """Run all steps. Raises StepFailed, alone or in groups, or what a server or the SDK raised."""
    upstreams = install(terminal)
    prepare_search(terminal)
    # The SDK's warnings as well: it cannot validate results of tools that were not listed, which is our point.
    logging.basicConfig(filename=LOG)
    with LOG.open("a", encoding="utf-8") as log:
        asyncio.run(converse(terminal, upstreams, log))
    terminal.line()
    terminal.line("6  A call from a shell: foretool call")
    call_from_shell(terminal)
    terminal.line()
    terminal.line("7  The record of needed tools that were hidden: foretool misses --all")
    run_foretool("misses", "--all")
    terminal.line()
    terminal.line("8  How this demo's config would be registered with a client; `foretool init` does it for yours")
    print_registrations(terminal)


def fail(terminal: Terminal, error: BaseException) -> int:
    """Print what went wrong; the exit status."""
    innermost = error
    while isinstance(innermost, BaseExceptionGroup):
        innermost = innermost.exceptions[0]
    if isinstance(innermost, StepFailed):
        terminal.line(f"   FAILED: {innermost}")
        return 1
    with LOG.open("a", encoding="utf-8") as log:
        traceback.print_exception(error, file=log)
    terminal.line(f"   FAILED: {type(innermost).__name__}: {innermost}; more in {LOG.relative_to(servers.ROOT.parent)}")
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
