"""What the tests of the commands share: a config with a storage file of its own, records in it, one command run."""

import json
import sys
from pathlib import Path
from typing import Any

from limits import write_settings
from served import lay_ranks

from foretool.server.config import loader as configs
from foretool.server.config.loader import Config
from foretool.server.config.servers import fingerprint
from foretool.storage.opening import open_store
from foretool.storage.records import Call, Discovery, Exposure, Match, Miss, SessionRecord, Tool, ToolId, UpstreamRecord
from foretool.storage.steps import finish
from foretool.storage.store import Store

ECHO = Path(__file__).with_name("echo_upstream.py")
CALC, WEATHER = ToolId("calc__add"), ToolId("sky__forecast")


def echo(*options: str, **more: object) -> dict[str, Any]:
    """A server entry that starts the small echo server."""
    return {"command": sys.executable, "args": [str(ECHO), *options], **more}


def write_config(folder: Path, servers: dict[str, Any] | None = None, **settings: Any) -> Path:
    path = folder / "mcp.json"
    given = {"calc": {"command": "calc"}, "sky": {"command": "sky"}} if servers is None else servers
    if given:
        lay_ranks(folder)
    path.write_text(
        json.dumps(
            {
                "mcpServers": given,
                "foretool": write_settings(**{"storage": "foretool.sqlite3", **settings}),
            }
        )
    )
    return path


def definition(name: str, description: str) -> bytes:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return json.dumps({"name": name, "description": description, "inputSchema": schema}).encode()


def remember(config: Config, store: Store, upstream: str, tools: dict[str, str]) -> None:
    """As after a run in which the upstream has listed these tools (name and description)."""
    server = config.servers[upstream]
    record = UpstreamRecord(upstream, fingerprint(server), "legacy", "", "", '{"tools": {}}', 1.0)
    kept = [
        Tool(ToolId(f"{upstream}__{name}"), upstream, name, definition(name, text), f"{upstream}-{name}", 40)
        for name, text in tools.items()
    ]
    finish(store.catalog.save_upstream(record, kept))


def fill(path: Path) -> Store:
    """A log in which one client saw `calc__add` only, discovered `sky__forecast` and called it."""
    config = configs.load(path)
    store = open_store(config.storage)
    remember(config, store, "calc", {"add": "Adds two numbers."})
    remember(config, store, "sky", {"forecast": "Forecast of the weather for a city.", "moon": "Phase of the moon."})
    store.sessions.begin(SessionRecord("s1", "cursor", "1.2", "legacy", "stdio", "", 100.0))
    exposure = store.sessions.add_exposure(Exposure("s1", 101.0, "frozen", 1, (CALC,), 300, "list"))
    matches = (Match(WEATHER, 1, 2.5, {"lexical": 2.5}),)
    discovery = store.discoveries.add(Discovery("s1", 102.0, "weather in Paris", (), None, "high", matches, 80, 1.5))
    call = Call("s1", 103.0, WEATHER, "sky", "name", True, "ok", 12.0, True, "", discovery)
    miss = Miss(
        "s1", 103.0, WEATHER, "discovery", "budget", 1, 3, "weather in Paris", (CALC,), exposure, discovery,
        "pin sky__forecast", "discovered", 1, 80, call=1,
    )  # fmt: skip
    store.calls.record([call], [miss])
    return store
