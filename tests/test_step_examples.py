"""The two examples of the library, run as a reader runs them: over a real server, one before a stub of an endpoint."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from requirements import requirement

from foretool.storage.opening import open_store

ROOT = Path(__file__).parents[1]
ECHO = ROOT / "tests" / "support" / "echo_upstream.py"

Json = dict[str, Any]


def write_config(folder: Path) -> Path:
    path = folder / "mcp.json"
    servers = {"echo": {"command": sys.executable, "args": [str(ECHO), "--tools", "40"]}}
    path.write_text(json.dumps({"mcpServers": servers, "foretool": {"storage": "store.sqlite3", "encoder": "none"}}))
    return path


def run(script: str, *arguments: str, **environ: str) -> str:
    """What it printed. Everything that it started has ended with it."""
    command = [sys.executable, str(ROOT / "demo" / script), *arguments]
    env = {**os.environ, **environ}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env, start_new_session=True
    ) as process:
        out, error = process.communicate(timeout=60)
    assert process.returncode == 0, error
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)
    return out


class Endpoint(ThreadingHTTPServer):
    """Answers completions from a script, and keeps what it was asked."""

    def __init__(self, *replies: Json) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies = list(replies)
        self.asked: list[Json] = []
        self.keys: list[str | None] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


class _Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        assert self.path == "/v1/chat/completions"
        self.server.keys.append(self.headers["Authorization"])
        self.server.asked.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        body = json.dumps({"choices": [{"message": self.server.replies.pop(0)}]}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving(*replies: Json) -> Iterator[Endpoint]:
    endpoint = Endpoint(*replies)
    thread = threading.Thread(target=endpoint.serve_forever)
    thread.start()
    try:
        yield endpoint
    finally:
        endpoint.shutdown()
        endpoint.server_close()
        thread.join()


def calls(name: str, arguments: str) -> Json:
    call = {"id": "call-1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


@pytest.mark.slow
@requirement("library:examples")
def test_an_agent_before_an_endpoint_widens_calls_and_answers(tmp_path: Path) -> None:
    config = write_config(tmp_path)
    asks = (
        calls("discover_tools", '{"task": "echo the text", "sufficiency": 0.1}'),
        calls("echo__echo", "no json"),
        calls("echo__echo", '{"text": "hello"}'),
        {"role": "assistant", "content": "It said hello."},
    )
    with serving(*asks) as endpoint:
        out = run(
            "step_with_endpoint.py", "echo hello", "--model", "stub", "--config", str(config),
            OPENAI_BASE_URL=endpoint.url, OPENAI_API_KEY="key-of-the-test",
        )  # fmt: skip
    assert out.splitlines()[-1] == "It said hello."
    assert set(endpoint.keys) == {"Bearer key-of-the-test"}
    first, second, third, last = endpoint.asked
    assert first["model"] == "stub"
    assert [message["role"] for message in first["messages"]] == ["system", "user"]
    assert "discover_tools" in [tool["function"]["name"] for tool in first["tools"]]
    assert "echo__echo" in [tool["function"]["name"] for tool in second["tools"]]
    assert second["messages"][-1]["content"].startswith("confidence: ")
    assert third["messages"][-1]["content"] == "the arguments were not a JSON object; call again"
    assert last["messages"][-1] == {"role": "tool", "tool_call_id": "call-1", "content": '{"text": "hello"}'}
    with open_store(tmp_path / "store.sqlite3") as store:
        assert [(call.tool, call.outcome) for call in store.calls.recent(-1)] == [("echo__echo", "ok")]
        assert [step.sufficiency for step in store.tasks.steps()][::-1][:3] == [None, None, 0.1]


@requirement("library:examples")
def test_a_step_without_a_model_is_shown(tmp_path: Path) -> None:
    out = run(
        "step_without_model.py",
        "weather forecast for my city",
        "--config",
        str(write_config(tmp_path)),
        "--shape",
        "mcp",
    )
    assert out.startswith("confidence ") and '"name": "echo__weather"' in out
