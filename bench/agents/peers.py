"""Peers: other proxies with a search of their own, in front of the same servers, as arms.

    fastmcp          FastMCP, one proxy a server mounted under its name, behind its transform of a BM25 search
    graph_tool_call  the proxy of graph-tool-call
    slop_mcp         slop-mcp

Each has its defaults. The model is given its list as it changes and its `instructions`, and nothing else. Every
conversation starts a process; the home folder stays, so that a peer which keeps what it knows of the servers has it, as
foretool has its storage. The packages are installed into one folder:

    python -m venv FOLDER/v-fastmcp && FOLDER/v-fastmcp/bin/pip install fastmcp
    python -m venv FOLDER/v-gtc && FOLDER/v-gtc/bin/pip install "graph-tool-call[mcp]"
    npm install --ignore-scripts --prefix FOLDER/npm2 @standardbeagle/slop-mcp
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.agents.arms import TYPING_S, Proxied, ProxyClient, call
from bench.clients.messages import Json

Entries = Mapping[str, Mapping[str, Any]]
LOOKS: Final = ("get_tool_schema", "get_metadata")
"""Tools of peers that show definitions."""
PATIENCE_S: Final = 300.0
"""Some peers start every server before they list, and a model keeps the machine busy."""
ENDING_S: Final = 5.0
FASTMCP: Final = """
import json, sys
from fastmcp import FastMCP
from fastmcp.server import create_proxy
from fastmcp.server.transforms.search import BM25SearchTransform

proxy = FastMCP("proxy")
for name, entry in json.load(open(sys.argv[1]))["mcpServers"].items():
    proxy.mount(create_proxy({"mcpServers": {name: entry}}), namespace=name)
proxy.add_transform(BM25SearchTransform())
proxy.run(show_banner=False)
"""
"""One proxy over all servers, which is shorter, would start them all again for every request."""


class Peer(NamedTuple):
    """Another proxy."""

    name: str
    command: Sequence[str]
    """With the folder of the packages as `{}` in the first word; it runs in the folder of its config."""
    file: str
    """The name of its config."""
    write: Callable[[Entries], str]
    """Its config over these servers."""
    first_s: float = 0.0
    """How long it needs to get to know its servers, if it lists before they have started."""


def as_json(entries: Entries) -> str:
    """The config that most programs read."""
    return json.dumps({"mcpServers": entries})


def as_kdl(entries: Entries) -> str:
    """The config of slop-mcp."""
    return "".join(_node(name, entry) for name, entry in entries.items())


def _node(name: str, entry: Mapping[str, Any]) -> str:
    words = " ".join(map(json.dumps, entry["args"]))
    env = "".join(f"\n        {key} {json.dumps(value)}" for key, value in entry.get("env", {}).items())
    inner = ['type "stdio"', f"command {json.dumps(entry['command'])}", *([f"args {words}"] if words else [])]
    inner += [f"env {{{env}\n    }}"] if env else []
    return f"mcp {json.dumps(name)} {{\n    " + "\n    ".join(inner) + "\n}\n"


PEERS: Final[Mapping[str, Peer]] = {
    peer.name: peer
    for peer in (
        Peer("fastmcp", ("{}/v-fastmcp/bin/python", "-c", FASTMCP, "mcp.json"), "mcp.json", as_json),
        Peer("graph_tool_call", ("{}/v-gtc/bin/graph-tool-call", "proxy", "-c", "mcp.json"), "mcp.json", as_json),
        Peer(
            "slop_mcp",
            ("{}/npm2/node_modules/@standardbeagle/slop-mcp/binaries/slop-mcp-linux-amd64", "serve"),
            ".slop-mcp.kdl",
            as_kdl,
            first_s=60.0,
        ),
    )
}


class PeerClient(ProxyClient):
    """A client of a peer, with patience for its start."""

    async def ask(self, method: str, params: Json | None = None, patience_s: float = PATIENCE_S) -> Json:
        return await super().ask(method, params, patience_s)


class PeerArm(Proxied):
    """The arm of a peer, which has as long as foretool's until the user has typed."""

    async def prompt(self, task: str) -> str:
        await asyncio.sleep(TYPING_S)
        return task

    async def call(self, name: str, arguments: Json) -> str:
        try:
            return await call(self._client, name, arguments)
        except TimeoutError:
            return "Error: no answer in time"


def furnish(peer: Peer, folder: Path, config: Path) -> tuple[list[str], bool]:
    """Write a peer's config into its home; its command, and whether the home is new."""
    home = config.absolute().with_name(f"home-{peer.name}")
    is_first = not home.exists()
    home.mkdir(exist_ok=True)
    (home / peer.file).write_text(peer.write(json.loads(config.read_text("utf-8"))["mcpServers"]), "utf-8")
    program = peer.command[0].format(folder.absolute())
    return ["env", "-C", str(home), "-u", "XDG_CONFIG_HOME", f"HOME={home}", program, *peer.command[1:]], is_first


@asynccontextmanager
async def start_peer(peer: Peer, folder: Path, config: Path) -> AsyncIterator[PeerArm]:
    """Run a peer in front of the servers of foretool's config. `folder`: where the packages are."""
    command, is_first = furnish(peer, folder, config)
    if is_first and peer.first_s:
        async with _run(command):
            await asyncio.sleep(peer.first_s)
    async with _run(command) as arm:
        yield arm


@asynccontextmanager
async def _run(command: Sequence[str]) -> AsyncIterator[PeerArm]:
    client = await PeerClient.start(command)
    try:
        begun = await client.initialize()
        arm = PeerArm(client, begun.get("instructions") or "")
        await arm.tools()
        yield arm
    finally:
        await client.stop(ENDING_S)
