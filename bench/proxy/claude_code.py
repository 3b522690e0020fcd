"""Shows what Claude Code does with foretool's lists, offline: `python -m bench.proxy.claude_code --claude PROGRAM`.

PROGRAM is `claude` of `npm install @anthropic-ai/claude-code`, any version. It runs in its own home folder and talks to
a stub of the model's API on loopback. The stub answers with the tool calls of a script: `discover_tools`, then the tool
that was found, by its own name, then another tool through `call_tool_write` with the handle of the answer.

The output is one JSON object for each policy and transport: the tools that every request to the model carried (so one
sees whether the client listed again within the turn, what is deferred, whether pins stay), the calls that reached the
upstreams, and what foretool has on record.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import processes
from bench.options import add_foretool, make_parser
from bench.servers import loopback
from foretool.storage.opening import open_store

Json = dict[str, Any]

PREFIX = "mcp__foretool__"
RUN_S = 120.0
READY_S = 30.0
TASK = "compress a folder"
FOUND, BRIDGED, PINNED = "disk__zip_folder", "mail__send_letter", "disk__list_folder"
TOOLS = {
    "disk": {"zip_folder": "Compress a folder into an archive", "list_folder": "List what is in a folder"},
    "mail": {"send_letter": "Send a letter to somebody", "read_letter": "Read a letter"},
}
_HANDLE = re.compile(r'handle[\\": ]+([A-Za-z0-9_-]{22})')
"""The handle in the text of an answer, or in its structure, which is JSON within JSON here."""


class Model:
    """The stub of the model: answers the n-th request that has tools with the n-th step, and keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[Json] = []
        self._turn = threading.Lock()

    def answer(self, request: Json) -> list[Json]:
        """The content blocks of the answer."""
        if not request.get("tools"):
            return [{"type": "text", "text": "a title"}]  # a request beside the conversation
        with self._turn:
            self.requests.append(request)
            step = len(self.requests)
        return self._step(step, json.dumps(request["messages"]))

    def _step(self, step: int, said: str) -> list[Json]:
        handles = _HANDLE.findall(said)
        if step == 1:
            return [_use(step, "discover_tools", {"task": TASK})]
        if step == 2:
            return [_use(step, FOUND, {"text": "by its own name"})]
        if step == 3:
            arguments: Json = {"name": BRIDGED, "arguments": {"text": "through the bridge"}}
            return [_use(step, "call_tool_write", arguments | ({"handle": handles[-1]} if handles else {}))]
        return [{"type": "text", "text": "done"}]


def _use(step: int, name: str, arguments: Json) -> Json:
    return {"type": "tool_use", "id": f"toolu_{step}", "name": PREFIX + name, "input": arguments}


def events(model: str, blocks: Sequence[Json]) -> Iterator[tuple[str, Json]]:
    """The events of a streamed message of the Messages API."""
    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "usage": usage}
    yield "message_start", {"message": {**head, "stop_reason": None, "stop_sequence": None}}
    for place, block in enumerate(blocks):
        is_text = block["type"] == "text"
        begun = {**block, "text": ""} if is_text else {**block, "input": {}}
        text = block["text"] if is_text else json.dumps(block["input"])
        part = {"type": "text_delta", "text": text} if is_text else {"type": "input_json_delta", "partial_json": text}
        yield "content_block_start", {"index": place, "content_block": begun}
        yield "content_block_delta", {"index": place, "delta": part}
        yield "content_block_stop", {"index": place}
    reason = "tool_use" if blocks[-1]["type"] == "tool_use" else "end_turn"
    yield "message_delta", {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 1}}
    yield "message_stop", {}


@contextmanager
def serve_stub(model: Model) -> Iterator[str]:
    """Serve the stub on loopback; yields its URL."""

    class Stub(loopback.Handler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
            if not self.path.partition("?")[0].endswith("/messages"):
                self.say(b'{"input_tokens":1}', "application/json")
                return
            blocks = model.answer(request)
            if request.get("stream"):
                said = events(request["model"], blocks)
                lines = (f"event: {name}\ndata: {json.dumps({'type': name, **data})}\n\n" for name, data in said)
                self.say("".join(lines).encode(), "text/event-stream")
            else:
                usage = {"input_tokens": 1, "output_tokens": 1}
                whole = {"id": "msg_1", "type": "message", "role": "assistant", "model": request["model"]}
                whole |= {"content": blocks, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}
                self.say(json.dumps(whole).encode(), "application/json")

        def do_HEAD(self) -> None:
            self.say(b"", "application/json")

        do_GET = do_HEAD

    with loopback.serve(Stub) as url:
        yield url


def write_config(folder: Path, policy: str) -> Path:
    """Write foretool's config over two upstreams of two tools each, with one tool pinned."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    catalogs = {
        name: [{"name": tool, "description": said, "inputSchema": schema} for tool, said in tools.items()]
        for name, tools in TOOLS.items()
    }
    return processes.write_config(
        folder, processes.serve_tools(folder, catalogs), policy=policy, pin=[PINNED], share=True
    )


@contextmanager
def server_entry(command: Sequence[str], path: Path, transport: str) -> Iterator[Json]:
    """The config entry by which Claude Code reaches foretool; over HTTP foretool runs as long as the block."""
    if transport == "stdio":
        yield {"type": "stdio", "command": command[0], "args": [*command[1:], "serve", "--config", str(path)]}
        return
    port = processes.free_port()
    serving = [*command, "serve", "--config", str(path), "--http", f"127.0.0.1:{port}"]
    process = subprocess.Popen(serving, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        end = time.monotonic() + READY_S
        while "serving on" not in process.stderr.readline():
            if process.poll() is not None or time.monotonic() > end:
                raise SystemExit("foretool serve --http did not start")
        yield {"type": "http", "url": f"http://127.0.0.1:{port}/mcp"}
    finally:
        process.terminate()
        process.communicate()


def converse(claude: str, server: Json, home: Path, url: str, prompt: str = "Do it.") -> Json:
    """Give the program one prompt, answer its requests, and return what it prints at the end."""
    mcp = home / "servers.json"
    mcp.write_text(json.dumps({"mcpServers": {"foretool": server}}), "utf-8")
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "dummy",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
    }
    options = ["--mcp-config", str(mcp), "--strict-mcp-config", "--allowedTools", PREFIX.rstrip("_")]
    command = [claude, "-p", prompt, *options, "--output-format", "json"]
    done = subprocess.run(command, env=env, cwd=home, capture_output=True, text=True, timeout=RUN_S, check=False)
    try:
        said: Json = json.loads(done.stdout)
    except ValueError:
        raise SystemExit(f"{claude} ended with {done.returncode}: {done.stdout[-500:]}{done.stderr[-500:]}") from None
    return said


def carried(request: Json) -> Json:
    """Our tools in a request to the model: loaded, deferred, or only announced by name in its messages."""
    ours = {tool["name"].removeprefix(PREFIX): tool for tool in request["tools"] if tool["name"].startswith(PREFIX)}
    deferred = sorted(name for name, tool in ours.items() if tool.get("defer_loading"))
    named = set(re.findall(PREFIX + r"([A-Za-z0-9_]+)", json.dumps([_client_blocks(request), request.get("system")])))
    return {
        "others": len(request["tools"]) - len(ours),
        "loaded": sorted(ours.keys() - set(deferred)),
        "deferred": deferred,
        "announced": sorted(named - ours.keys()),
    }


def _client_blocks(request: Json) -> list[Any]:
    """The blocks that the client itself wrote: neither the model's calls nor their results."""
    blocks = [block for message in request["messages"] for block in _blocks(message["content"])]
    return [block for block in blocks if block["type"] not in ("tool_use", "tool_result")]


def _blocks(content: str | list[Json]) -> list[Json]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def recorded(path: Path) -> Json:
    """What foretool has on record."""
    with open_store(path) as store:
        sessions = store.sessions.recent()
        exposures = [each for session in sessions[::-1] for each in store.sessions.exposures(session.key)]
        handles = {each.handle for each in store.discoveries.recent(-1)} - {""}
        return {
            "client": [f"{each.client} {each.version} {each.era}" for each in sessions],
            "lists": [[each.policy, each.reason, len(each.tools)] for each in exposures],
            "calls": [
                [call.tool, call.via, "hidden" if call.hidden else "listed", call.outcome, call.handle in handles]
                for call in store.calls.recent(-1)[::-1]
            ],
            "relisted": [[each.announced, each.relisted, round(each.relist_ms, 1)] for each in store.clients.all()],
        }


def measure(claude: str, command: Sequence[str], policy: str, transport: str) -> Json:
    """The row of one conversation."""
    model = Model()
    with tempfile.TemporaryDirectory(prefix="bench-claude-") as place, serve_stub(model) as url:
        folder = Path(place)
        home = folder / "home"
        home.mkdir()
        path = write_config(folder, policy)
        with server_entry(command, path, transport) as server:
            said = converse(claude, server, home, url)
        return {
            "test": "claude_code",
            "policy": policy,
            "transport": transport,
            "requests": [carried(request) for request in model.requests],
            "result": said.get("result"),
            **recorded(folder / "foretool.sqlite3"),
        }


def version(claude: str, env: Mapping[str, str]) -> str:
    """The version that the program prints."""
    return subprocess.run([claude, "--version"], env=env, capture_output=True, text=True, check=True).stdout.strip()


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and converse."""
    parser = make_parser("bench.proxy.claude_code", __doc__)
    parser.add_argument("--claude", required=True, help="the program")
    parser.add_argument("--policies", default="growing,frozen,full", help="default %(default)s")
    parser.add_argument("--transports", default="stdio,http", help="default %(default)s")
    add_foretool(parser)
    arguments = parser.parse_args(argv)
    claude = str(Path(arguments.claude).absolute())
    command = processes.installed(arguments.foretool)
    with tempfile.TemporaryDirectory(prefix="bench-claude-") as home:
        sys.stderr.write(version(claude, {"PATH": os.environ["PATH"], "HOME": home}) + "\n")
    for policy in arguments.policies.split(","):
        for transport in arguments.transports.split(","):
            print(json.dumps(measure(claude, command, policy, transport)), flush=True)


if __name__ == "__main__":
    main()
