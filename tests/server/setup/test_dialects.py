"""Each client's way to write a server becomes an entry of ours."""

from __future__ import annotations

from typing import Any

import pytest

from foretool.server.setup import dialects
from foretool.server.setup.dialects import Dialect, DialectError


@pytest.mark.parametrize(
    ("dialect", "written", "entry"),
    [
        (dialects.PLAIN, {"command": "uvx", "args": ["a"], "env": {}, "alwaysAllow": ["x"]},
         {"command": "uvx", "args": ["a"]}),
        (dialects.PLAIN, {"serverUrl": "https://a/mcp", "disabled": False}, {"url": "https://a/mcp"}),
        (dialects.PLAIN, {"url": "https://a", "headers": {"K": "${env:KEY}"}},
         {"url": "https://a", "headers": {"K": "${env:KEY}"}}),
        (dialects.PLAIN, {"command": "x", "args": ["${userHome}/a", "$5", "${workspaceRoot}"]},
         {"command": "x", "args": ["${HOME}/a", "$5", "${workspaceFolder}"]}),
        (dialects.STDIO, {"type": "stdio", "command": "x"}, {"command": "x"}),
        (dialects.STDIO, {"type": "http", "url": "https://a"}, {"url": "https://a", "type": "http"}),
        (dialects.GEMINI, {"url": "https://a/sse"}, {"url": "https://a/sse", "type": "sse"}),
        (dialects.GEMINI, {"httpUrl": "https://a", "headers": {"K": "$KEY"}, "timeout": 5000},
         {"url": "https://a", "headers": {"K": "${KEY}"}, "type": "http", "timeout_s": 5}),
        (dialects.CODEX, {"url": "https://a", "bearer_token_env_var": "T", "enabled": False},
         {"url": "https://a", "headers": {"Authorization": "Bearer ${T}"}, "disabled": True}),
        (dialects.CODEX, {"command": "x", "env_vars": ["A", {"name": "B"}], "startup_timeout_sec": 5},
         {"command": "x", "inherit": ["A", "B"]}),
        (dialects.CODEX, {"url": "https://a", "env_http_headers": {"X": "V"}},
         {"url": "https://a", "headers": {"X": "${V}"}}),
        (dialects.OPENCODE, {"type": "local", "command": ["npx", "-y", "s"], "environment": {"A": "{env:B}"}},
         {"command": "npx", "args": ["-y", "s"], "env": {"A": "${B}"}}),
        (dialects.ZED, {"command": {"path": "x", "args": ["a"], "env": {"A": "b"}}},
         {"command": "x", "args": ["a"], "env": {"A": "b"}}),
        (dialects.GOOSE, {"type": "stdio", "cmd": "npx", "args": ["s"], "envs": {"A": "b"}},
         {"command": "npx", "args": ["s"], "env": {"A": "b"}}),
        (dialects.GOOSE, {"enabled": True, "config": {"type": "streamable_http", "uri": "https://a"}},
         {"url": "https://a", "type": "http"}),
        (dialects.CONTINUE, {"name": "a", "type": "sse", "url": "https://a", "requestOptions": {"headers": {"K": "v"}}},
         {"url": "https://a", "headers": {"K": "v"}, "type": "sse"}),
    ],
)  # fmt: skip
def test_an_entry_is_read(dialect: Dialect, written: dict[str, Any], entry: dict[str, Any]) -> None:
    found, notes = dialect.read(written)
    assert found == entry and notes == []
    keys = list(found)
    assert keys == sorted(keys, key=lambda key: dialects._place(key))


def test_what_a_client_asked_its_user_for_becomes_a_variable() -> None:
    entry, notes = dialects.STDIO.read({"command": "x", "env": {"P": "${input:pg-password}"}})
    assert entry["env"] == {"P": "${PG_PASSWORD}"}
    assert notes == ["your client asked you for PG_PASSWORD: export a variable of this name"]


def test_what_we_have_no_key_for_is_noted() -> None:
    assert dialects.PLAIN.read({"command": "x", "sandbox": True})[1] == ['"sandbox" is left out']


@pytest.mark.parametrize(
    ("dialect", "written", "problem"),
    [
        (dialects.PLAIN, {"args": ["x"]}, "neither"),
        (dialects.PLAIN, {"command": 5}, "neither"),
        (dialects.PLAIN, {"type": "ws", "url": "ws://a"}, "WebSocket"),
        (dialects.GOOSE, {"type": "builtin", "name": "developer"}, "part of goose"),
    ],
)
def test_what_cannot_be_taken_over_is_said(dialect: Dialect, written: dict[str, Any], problem: str) -> None:
    with pytest.raises(DialectError, match=problem):
        dialect.read(written)


@pytest.mark.parametrize(
    "dialect", [dialects.PLAIN, dialects.STDIO, dialects.GEMINI, dialects.CODEX, dialects.COPILOT, dialects.OPENCODE,
                dialects.GOOSE, dialects.ZED, dialects.CONTINUE],
)  # fmt: skip
def test_what_is_written_reads_as_it_was_meant(dialect: Dialect) -> None:
    entry, notes = dialect.read(dialect.write("/bin/foretool", ("serve", "--config", "/a")))
    assert (entry["command"], entry["args"]) == ("/bin/foretool", ["serve", "--config", "/a"]) and notes == []
