"""Each client's way to write a server, as its documentation has it, becomes an entry of ours."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from requirements import requirement

from foretool.server.config.loader import parse
from foretool.server.setup import dialects
from foretool.server.setup.dialects import Dialect, DialectError
from foretool.server.upstreams import connection

ALL = [
    dialects.PLAIN, dialects.CLAUDE_CODE, dialects.CLINE, dialects.CODEX, dialects.CONTINUE, dialects.COPILOT,
    dialects.GEMINI, dialects.GOOSE, dialects.OPENCODE, dialects.VSCODE, dialects.ZED,
]  # fmt: skip


FULL = dict.fromkeys(("B", "HOME", "KEY", "T", "V"), "/value")


@requirement("setup:dialects")
@pytest.mark.parametrize(
    ("dialect", "written", "entry"),
    [
        # Claude Desktop, Cursor, Windsurf, Junie
        (dialects.PLAIN, {"command": "uvx", "args": ["a"], "env": {}, "alwaysAllow": []},
         {"command": "uvx", "args": ["a"]}),
        (dialects.PLAIN, {"serverUrl": "https://a/mcp", "disabled": False, "disabledTools": ["x"]},
         {"url": "https://a/mcp", "exclude": ["x"]}),
        (dialects.PLAIN, {"url": "https://a", "headers": {"K": "${env:KEY}"}},
         {"url": "https://a", "headers": {"K": "${env:KEY}"}}),
        (dialects.PLAIN, {"url": "https://a", "auth": {"CLIENT_ID": "i", "CLIENT_SECRET": "s", "scopes": ["r", "w"]}},
         {"url": "https://a", "oauth": {"client_id": "i", "client_secret": "s", "scopes": ["r", "w"]}}),
        (dialects.PLAIN, {"command": "x", "args": ["${userHome}/a", "$5", "${workspaceRoot}"], "env": {"A": "pa$word"}},
         {"command": "x", "args": ["${HOME}/a", "$5", "${workspaceFolder}"], "env": {"A": "pa$word"}}),
        (dialects.PLAIN,
         {"command": "x", "args": ["--port", 8080, 1.5, True, None], "env": {"N": 3, "F": 0.5, "Z": None}},
         {"command": "x", "args": ["--port", "8080", "1.5", "true"], "env": {"N": "3", "F": "0.5"}}),
        (dialects.PLAIN, {"command": "x", "timeout": 90, "cwd": "."},
         {"command": "x", "cwd": "${workspaceFolder}", "timeout_s": 90}),
        (dialects.PLAIN, {"command": "x", "include": ["a"], "pin": ["a"]},
         {"command": "x", "include": ["a"], "pin": ["a"]}),
        # Claude Code
        (dialects.CLAUDE_CODE, {"type": "stdio", "command": "x", "timeout": 600000},
         {"command": "x", "timeout_s": 600}),
        (dialects.CLAUDE_CODE, {"type": "http", "url": "https://a", "oauth": {"clientId": "i", "scopes": "r w"}},
         {"url": "https://a", "type": "http", "oauth": {"client_id": "i", "scopes": ["r", "w"]}}),
        (dialects.CLAUDE_CODE, {"command": "x", "args": ["${CLAUDE_PROJECT_DIR:-.}/s.py"]},
         {"command": "x", "args": ["${workspaceFolder}/s.py"]}),
        # VS Code
        (dialects.VSCODE, {"type": "http", "url": "https://a", "oauth": {"clientId": "i"}, "gallery": "g"},
         {"url": "https://a", "type": "http", "oauth": {"client_id": "i"}}),
        # Cline
        (dialects.CLINE, {"command": "x", "timeout": 1800, "autoApprove": []}, {"command": "x", "timeout_s": 1800}),
        (dialects.CLINE, {"transport": {"type": "streamableHttp", "url": "https://a"}, "disabled": True,
                          "oauthClient": {"clientId": "i"}, "metadata": {"a": 1}},
         {"url": "https://a", "type": "http", "disabled": True, "oauth": {"client_id": "i"}}),
        (dialects.CLINE, {"url": "https://a/sse"}, {"url": "https://a/sse", "type": "sse"}),
        # Codex
        (dialects.CODEX, {"url": "https://a", "bearer_token_env_var": "T", "enabled": False, "scopes": ["r"]},
         {"url": "https://a", "headers": {"Authorization": "Bearer ${T}"}, "disabled": True,
          "oauth": {"scopes": ["r"]}}),
        (dialects.CODEX, {"command": "x", "env_vars": ["A", {"name": "B", "source": "local"}],
                          "startup_timeout_sec": 20, "tool_timeout_sec": 2.5, "enabled_tools": ["a"],
                          "disabled_tools": ["b"]},
         {"command": "x", "inherit": ["A", "B"], "timeout_s": 2.5, "include": ["a"], "exclude": ["b"]}),
        (dialects.CODEX, {"url": "https://a", "http_headers": {"A": "b"}, "env_http_headers": {"X": "V"}},
         {"url": "https://a", "headers": {"A": "b", "X": "${V}"}}),
        (dialects.CODEX, {"url": "https://a", "oauth": {"client_id": "i", "callback_url": "http://127.0.0.1/callback"}},
         None),
        # Gemini CLI and Qwen Code
        (dialects.GEMINI, {"httpUrl": "https://a", "headers": {"K": "$KEY"}, "timeout": 5000, "trust": False},
         {"url": "https://a", "headers": {"K": "${KEY}"}, "type": "http", "timeout_s": 5}),
        (dialects.GEMINI, {"command": "x", "args": ["$HOME/a"], "includeTools": ["a"], "excludeTools": ["b"],
                           "authProviderType": "dynamic_discovery"},
         {"command": "x", "args": ["${HOME}/a"], "include": ["a"], "exclude": ["b"]}),
        (dialects.GEMINI,
         {"url": "https://a/sse", "oauth": {"enabled": True, "redirectUri": "http://localhost:7777/o"}},
         {"url": "https://a/sse", "type": "sse", "oauth": {"redirect_port": 7777}}),
        (dialects.GEMINI, {"command": "python", "cwd": "./servers"},
         {"command": "python", "cwd": "${workspaceFolder}/servers"}),
        # Copilot CLI
        (dialects.COPILOT, {"type": "local", "command": "x", "tools": ["a", "b"], "timeout": 30000, "env": {"A": "$B"}},
         {"command": "x", "env": {"A": "${B}"}, "include": ["a", "b"], "timeout_s": 30}),
        (dialects.COPILOT, {"type": "local", "command": "x", "tools": ["*"]}, {"command": "x"}),
        (dialects.COPILOT, {"type": "local", "command": "x", "tools": []}, {"command": "x", "exclude": ["*"]}),
        (dialects.COPILOT, {"type": "http", "url": "https://a", "oauthClientId": "i", "oauthPublicClient": True},
         {"url": "https://a", "type": "http", "oauth": {"client_id": "i"}}),
        # opencode
        (dialects.OPENCODE, {"type": "local", "command": ["npx", "-y", "s"], "environment": {"A": "{env:B}"},
                             "timeout": 10000},
         {"command": "npx", "args": ["-y", "s"], "env": {"A": "${B}"}, "timeout_s": 10}),
        (dialects.OPENCODE, {"type": "remote", "url": "https://a", "oauth": {"clientId": "i", "scope": "r w"}},
         {"url": "https://a", "type": "http", "oauth": {"client_id": "i", "scopes": ["r", "w"]}}),
        (dialects.OPENCODE, {"type": "remote", "url": "https://a", "oauth": False,
                             "timeout": {"startup": 1000, "request": 20000}},
         {"url": "https://a", "type": "http", "timeout_s": 20}),
        # Zed
        (dialects.ZED, {"command": {"path": "x", "args": ["a"], "env": {"A": "b"}}},
         {"command": "x", "args": ["a"], "env": {"A": "b"}}),
        (dialects.ZED, {"source": "custom", "enabled": False, "url": "https://a", "timeout": 120,
                        "oauth": {"client_id": "i", "client_secret": "s"}},
         {"url": "https://a", "disabled": True, "timeout_s": 120, "oauth": {"client_id": "i", "client_secret": "s"}}),
        # goose
        (dialects.GOOSE, {"type": "stdio", "cmd": "npx", "args": ["s"], "envs": {"A": "b"}, "timeout": 300,
                          "available_tools": []},
         {"command": "npx", "args": ["s"], "env": {"A": "b"}, "timeout_s": 300}),
        (dialects.GOOSE, {"enabled": True, "config": {"type": "streamable_http", "uri": "https://a",
                                                      "envs": {"T": "s"}, "headers": {"A": "Bearer $T"}}},
         {"url": "https://a", "headers": {"A": "Bearer s"}, "type": "http"}),
        # Continue
        (dialects.CONTINUE, {"name": "a", "type": "sse", "url": "https://a", "connectionTimeout": 5000,
                             "requestOptions": {"headers": {"K": "v"}, "clientCertificate": {"cert": "c", "key": "k"}}},
         {"url": "https://a", "headers": {"K": "v"}, "type": "sse", "client_cert": "c", "client_key": "k"}),
        (dialects.CONTINUE, {"name": "a", "url": "https://a", "apiKey": "s"},
         {"url": "https://a", "headers": {"Authorization": "Bearer s"}}),
    ],
)  # fmt: skip
def test_an_entry_is_read(dialect: Dialect, written: dict[str, Any], entry: dict[str, Any] | None) -> None:
    found, notes = dialect.read(written)
    if entry is None:  # an address without a port says nothing that could be ours
        assert notes == ['left out: "oauth.callback_url"']
        return
    assert found == entry and notes == []
    keys = list(found)
    assert keys == sorted(keys, key=dialects._place)
    config = parse(msgspec.json.encode({"mcpServers": {"a": {**found, "disabled": False}}}), Path("mcp.json"), FULL)
    assert (config.broken, config.warnings) == ({}, ())


@requirement("setup:dialects")
@pytest.mark.parametrize(
    ("dialect", "more", "notes"),
    [
        (dialects.PLAIN, {"sandbox": True}, ['left out: "sandbox"']),
        (dialects.PLAIN, {"timeout": 1800}, ['left out: "timeout" (seconds or milliseconds? Write "timeout_s")']),
        (dialects.PLAIN, {"envFile": "${workspaceFolder}/.env"},
         ['left out: "envFile" (put its variables into "env", or export them)']),
        (dialects.PLAIN, {"alwaysAllow": ["a"], "trust": True, "icon": "i"},
         ['left out: "alwaysAllow", "trust" (clients ask themselves)']),
        (dialects.CLAUDE_CODE, {"timeout": 30, "headersHelper": "h", "alwaysLoad": True},
         ['left out: "timeout", "headersHelper" (write what that program prints into "headers"), '
          '"alwaysLoad" ("pin": ["*"] lists its tools always)']),
        (dialects.CODEX, {"startup_timeout_sec": 120, "required": True, "tools": {"a": {"approval_mode": "approve"}}},
         ['left out: "startup_timeout_sec" (a start has 60 s here, the next 300), "required", "tools" '
          "(clients ask themselves)"]),
        (dialects.VSCODE, {"sandboxEnabled": True, "sandbox": {"network": {}}},
         ['left out: "sandboxEnabled", "sandbox" (it runs without that sandbox)']),
        (dialects.GEMINI, {"authProviderType": "google_credentials", "targetAudience": "x"},
         ['left out: "authProviderType", "targetAudience"']),
        (dialects.COPILOT, {"oauthGrantType": "client_credentials", "filterMapping": "none"},
         ['left out: "oauthGrantType", "filterMapping"']),
        (dialects.CLINE, {"oauth": {"tokens": {"access_token": "s"}}},
         ['left out: "oauth" (sign in again: foretool login)']),
        (dialects.ZED, {"remote": True}, ['left out: "remote"']),
        (dialects.OPENCODE, {"oauth": {"authorizationEndpoint": "https://a"}},
         ['left out: "oauth.authorizationEndpoint"']),
        (dialects.CONTINUE, {"requestOptions": {"verifySsl": False, "proxy": "http://p"}},
         ['left out: "requestOptions.verifySsl" (certificates are checked here), "requestOptions.proxy"']),
        (dialects.PLAIN, {"args": ["."]},
         ['its paths begin in the folder of your client: write them in full, or add "cwd": "${workspaceFolder}"']),
    ],
)  # fmt: skip
def test_what_is_not_carried_is_said(dialect: Dialect, more: dict[str, Any], notes: list[str]) -> None:
    assert dialect.read({"command": "x", **more}) == (
        {"command": "x", **({"args": ["."]} if "args" in more else {})},
        notes,
    )


def test_variables_of_a_remote_server_are_said_to_do_nothing() -> None:
    found = dialects.PLAIN.read({"url": "https://a", "env": {"A": "b"}})
    assert found == ({"url": "https://a"}, ['left out: "env" (a remote server gets no variables)'])


def test_of_a_command_and_an_address_the_type_says_which_one_is_used() -> None:
    both = {"command": "x", "url": "https://a"}
    assert dialects.CLINE.read(both) == ({"command": "x"}, ['left out: "url" (one of both is used)'])
    entry, notes = dialects.CLINE.read({**both, "type": "streamableHttp"})
    assert (entry, notes) == ({"url": "https://a", "type": "http"}, ['left out: "command" (one of both is used)'])


def test_a_registered_client_with_a_port_needs_our_redirect_address() -> None:
    _, notes = dialects.CLAUDE_CODE.read({"url": "https://a", "oauth": {"clientId": "i", "callbackPort": 8123}})
    assert notes == ["oauth: its client has to allow the redirect address http://127.0.0.1:8123/callback"]


@requirement("setup:dialects")
@pytest.mark.parametrize(
    ("dialect", "value", "ours", "note"),
    [
        (dialects.VSCODE, "${input:pg-password}", "${PG_PASSWORD}",
         "your client asked you for PG_PASSWORD; foretool reads the variable of this name"),
        (dialects.OPENCODE, "{file:~/.secrets/api-key}", "${API_KEY}",
         "your client read ~/.secrets/api-key: put what that file holds into a variable API_KEY"),
        (dialects.PLAIN, "Bearer ${file:/run/token}", "Bearer ${TOKEN}",
         "your client read /run/token: put what that file holds into a variable TOKEN"),
        (dialects.CONTINUE, "${{ secrets.BRAVE }}", "${BRAVE}",
         "your client kept BRAVE; foretool reads the variable of this name"),
    ],
)  # fmt: skip
def test_what_only_the_client_could_read_becomes_a_variable(dialect: Dialect, value: str, ours: str, note: str) -> None:
    assert dialect.read({"command": "x", "env": {"P": value}}) == ({"command": "x", "env": {"P": ours}}, [note])


def test_what_goose_keeps_in_its_keyring_becomes_a_variable() -> None:
    entry, notes = dialects.GOOSE.read({"type": "stdio", "cmd": "x", "env_keys": ["A", "B"], "envs": {"B": "b"}})
    assert entry["env"] == {"B": "b", "A": "${A}"}
    assert notes == ["goose keeps A in its keyring; foretool reads the variable of this name"]


@requirement("setup:dialects")
@pytest.mark.parametrize(
    ("written", "entry"),
    [
        ({"command": "./run.sh"}, {"command": "./run.sh", "cwd": "/home/ann/shop"}),
        ({"command": "python3", "args": ["tools/s.py"]},
         {"command": "python3", "args": ["tools/s.py"], "cwd": "/home/ann/shop"}),
        ({"command": "node", "args": ["s.js"], "cwd": "mcp"},
         {"command": "node", "args": ["s.js"], "cwd": "/home/ann/shop/mcp"}),
        ({"command": "node", "args": ["${workspaceFolder}/s.js"], "cwd": "/opt"},
         {"command": "node", "args": ["/home/ann/shop/s.js"], "cwd": "/opt"}),
        ({"url": "https://a"}, {"url": "https://a"}),
    ],
)  # fmt: skip
def test_a_server_of_a_project_starts_in_its_folder(written: dict[str, Any], entry: dict[str, Any]) -> None:
    assert dialects.PLAIN.read(written, "/home/ann/shop") == (entry, [])


@pytest.mark.parametrize(
    ("dialect", "written", "problem"),
    [
        (dialects.PLAIN, {"args": ["x"]}, "neither"),
        (dialects.PLAIN, {"command": 5}, "neither"),
        (dialects.PLAIN, {"command": "x", "args": "y z"}, "args: expected a list"),
        (
            dialects.PLAIN,
            {"command": "x", "disabledTools": "a"},
            "exclude: expected a list, found a string",
        ),
        (dialects.PLAIN, {"url": "localhost:3000"}, "url: expected an address that starts with http"),
        (dialects.PLAIN, {"type": "ws", "url": "ws://a"}, "WebSocket"),
        (dialects.VSCODE, {"type": "http", "url": "unix:///tmp/s.sock"}, "socket file"),
        (dialects.GOOSE, {"type": "builtin", "name": "developer"}, "part of goose"),
        (dialects.ZED, {"source": "extension", "settings": {"a": 1}}, "extension of Zed"),
    ],
)
def test_what_cannot_be_taken_over_is_said(dialect: Dialect, written: dict[str, Any], problem: str) -> None:
    with pytest.raises(DialectError, match=problem):
        dialect.read(written)


@pytest.mark.parametrize("dialect", ALL)
def test_what_is_written_reads_as_it_was_meant(dialect: Dialect) -> None:
    entry, notes = dialect.read(dialect.write("/bin/foretool", ("serve", "--config", "/a")))
    assert (entry["command"], entry["args"]) == ("/bin/foretool", ["serve", "--config", "/a"]) and notes == []


def test_a_start_has_the_time_that_notes_promise() -> None:
    assert dialects.HANDSHAKE_S == connection.HANDSHAKE_S
    assert dialects.LONG_HANDSHAKE_S == connection.LONG_HANDSHAKE_S
