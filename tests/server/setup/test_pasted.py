"""What people have at hand becomes a server: a command, an address, a line for another client, JSON."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from requirements import requirement

from foretool.server.setup import pasted
from foretool.server.setup.pasted import NewServer, PasteError


def line(text: str) -> NewServer:
    words = pasted.split_line(text)
    assert pasted.is_line(words)
    (found,) = pasted.of_line(words)
    return found


@pytest.mark.parametrize(
    ("text", "name", "entry"),
    [
        ("claude mcp add time -- uvx mcp-server-time --tz UTC", "time",
         {"command": "uvx", "args": ["mcp-server-time", "--tz", "UTC"]}),
        ("claude mcp add -s user -e A=1 B=2 air -- npx -y air", "air",
         {"command": "npx", "args": ["-y", "air"], "env": {"A": "1", "B": "2"}}),
        ("claude mcp add air --env A=x=y -- npx air -e C=1", "air",
         {"command": "npx", "args": ["air", "-e", "C=1"], "env": {"A": "x=y"}}),
        ("claude mcp add --transport http notion https://mcp.notion.com/mcp", "notion",
         {"url": "https://mcp.notion.com/mcp"}),
        ("claude mcp add -t sse asana https://mcp.asana.com/x -H 'A: b: c' 'D: e'", "asana",
         {"url": "https://mcp.asana.com/x", "type": "sse", "headers": {"A": "b: c", "D": "e"}}),
        ("claude mcp add play npx @playwright/mcp@latest", "play",
         {"command": "npx", "args": ["@playwright/mcp@latest"]}),
        ("claude mcp add-json gh '{\"type\":\"http\",\"url\":\"https://h/mcp\"}'", "gh",
         {"url": "https://h/mcp", "type": "http"}),
        ("codex mcp add docs --url https://h/mcp --bearer-token-env-var TOKEN", "docs",
         {"url": "https://h/mcp", "headers": {"Authorization": "Bearer ${TOKEN}"}}),
        ("code --add-mcp '{\"name\":\"x\",\"command\":\"uvx\",\"args\":[\"y\"]}'", "x",
         {"command": "uvx", "args": ["y"]}),
        ("claude mcp add crm https://h/mcp --client-id registered --callback-port 8123", "crm",
         {"url": "https://h/mcp", "oauth": {"client_id": "registered", "redirect_port": 8123}}),
        ("gemini mcp add -t http git https://h/mcp --timeout 30000 --include-tools a,b --exclude-tools c", "git",
         {"url": "https://h/mcp", "include": ["a", "b"], "exclude": ["c"], "timeout_s": 30}),
        ("claude mcp add-json gh '{\"url\":\"https://h/mcp\",\"timeout\":600000}'", "gh",
         {"url": "https://h/mcp", "timeout_s": 600}),
        ("claude mcp add time \\\n  -- uvx \\\n  x", "time", {"command": "uvx", "args": ["x"]}),
    ],
)  # fmt: skip
def test_lines_for_other_clients_are_read(text: str, name: str, entry: dict[str, Any]) -> None:
    found = line(text)
    assert (found.name, found.entry) == (name, entry)


def test_what_means_nothing_here_is_said() -> None:
    assert line("claude mcp add --scope project a -- b").notes == (
        "--scope project means nothing here: foretool has one file",
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("claude mcp add", "expected a name"),
        ("claude mcp add x", "expected a command or an address"),
        ("claude mcp add --frobnicate x -- y", "--frobnicate' is not known"),
        ("claude mcp add x --env", "--env needs a value"),
        ("claude mcp add x --env sk-123 -- y", "expected NAME=VALUE"),
        ("claude mcp add --transport ws x https://h", "expected stdio, http or sse"),
        ("claude mcp add-json x", "expected `claude mcp add-json NAME JSON`"),
        ("claude mcp add foretool -- x", "is a name of foretool's own"),
        ("claude mcp add ft -- foretool serve", "would then start itself"),
    ],
)
def test_a_wrong_line_is_refused_without_its_values(text: str, said: str) -> None:
    with pytest.raises(PasteError) as found:
        pasted.of_line(shlex.split(text))
    assert said in str(found.value) and "sk-123" not in str(found.value)


@pytest.mark.parametrize(
    "text",
    [
        '{"mcpServers": {"a": {"command": "x"}}}',
        '{"servers": {"a": {"command": "x"}}, "inputs": []}',
        '{"mcp": {"servers": {"a": {"command": "x"}}}}',
        '{"mcp": {"a": {"type": "local", "command": ["x"]}}}',
        '{"context_servers": {"a": {"command": "x"}}}',
        '{"a": {"command": "x"}}',
        '"a": {"command": "x"}',
        '"mcpServers": {\n  // one\n  "a": {"command": "x",},\n},',
        '{"name": "a", "command": "x"}',
    ],
)
def test_json_of_every_client_is_read(text: str) -> None:
    assert pasted.of_json(text) == [NewServer("a", {"command": "x"})]


def test_one_entry_takes_the_name_before_it() -> None:
    assert pasted.of_json('{"command": "x"}', "b")[0].name == "b"
    assert pasted.of_json('{"url": "https://mcp.linear.app/sse"}')[0].name == "linear"
    with pytest.raises(PasteError, match="one server without a name"):
        pasted.of_json('{"command": "x"}')
    with pytest.raises(PasteError, match="holds 2 servers"):
        pasted.of_json('{"a": {"command": "x"}, "b": {"command": "y"}}', "c")


@pytest.mark.parametrize("text", ["{", "[1]", "{}", '{"a": 1}', '{"a": {"args": []}}', '{"a": {"command": {"x": 1}}}'])
def test_json_without_a_server_is_refused(text: str) -> None:
    with pytest.raises(PasteError):
        pasted.of_json(text)


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://mcp.linear.app/mcp", "linear"),
        ("https://api.githubcopilot.com/mcp/", "githubcopilot"),
        ("https://mcp.example.co.uk/x", "example"),
        ("http://localhost:3000/mcp", "localhost"),
        ("https://mcp.com", "mcp"),
        ("http://127.0.0.1:1", "127.0.0.1"),
        ("http://[::1]:1", "1"),
    ],
)
def test_an_address_names_its_service(url: str, name: str) -> None:
    assert pasted.of_url("", url).name == name


def test_sse_is_known_by_the_path() -> None:
    assert pasted.of_url("", "https://mcp.linear.app/sse").entry["type"] == "sse"
    assert "type" not in pasted.of_url("", "https://mcp.linear.app/sse", (), "http").entry


@pytest.mark.parametrize("hidden", ["\u202e", "\u200b", "\x1b[2J", "\U000e0041", "\x00"])
@pytest.mark.parametrize("place", ["command", "args", "env", "url"])
def test_an_invisible_character_is_refused_and_named(hidden: str, place: str) -> None:
    values: dict[str, Any] = {"args": [f"a{hidden}b"], "env": {"A": f"a{hidden}b"}}
    entry = {"command": "x", place: values.get(place, f"https://a{hidden}b")}
    if place == "url":
        entry.pop("command")
    with pytest.raises(PasteError, match="invisible character") as found:
        pasted.checked(NewServer("a", entry))
    assert str(found.value).isprintable()


@pytest.mark.parametrize(
    ("name", "wanted"), [("My Server", "My-Server"), ("@a/b", "a-b"), ("a__b", "a_b"), ("\u202e", "server")]
)
def test_a_name_becomes_letters_and_digits(name: str, wanted: str) -> None:
    found = pasted.checked(NewServer(name, {"command": "x"}))
    assert found.name == wanted and found.notes[0].isprintable()


def test_only_secrets_that_stand_there_are_named() -> None:
    entry = {"env": {"A_TOKEN": "x", "B_TOKEN": "${B}", "TZ": "UTC"}, "headers": {"Authorization": "Bearer ${C}"}}
    assert pasted.plain_secrets(entry) == ["A_TOKEN"]


def test_an_open_quote_is_refused() -> None:
    with pytest.raises(PasteError, match="not closed"):
        pasted.split_line("claude mcp add 'x")


@requirement("setup:dialects")
@pytest.mark.parametrize(
    ("written", "entry"),
    [
        ({"context_servers": {"a": {"command": "x", "timeout": 1800}}}, {"command": "x", "timeout_s": 1800}),
        ({"mcp": {"a": {"type": "local", "command": ["x"], "timeout": 5000}}}, {"command": "x", "timeout_s": 5}),
        ({"extensions": {"a": {"type": "stdio", "cmd": "x", "timeout": 1200}}}, {"command": "x", "timeout_s": 1200}),
        ({"mcpServers": {"a": {"httpUrl": "https://h", "timeout": 5000}}},
         {"url": "https://h", "type": "http", "timeout_s": 5}),
        ({"mcpServers": {"a": {"type": "local", "command": "x", "tools": ["t"]}}}, {"command": "x", "include": ["t"]}),
        ({"mcpServers": {"a": {"command": "x", "args": [8080], "include": ["t"]}}},
         {"command": "x", "args": ["8080"], "include": ["t"]}),
    ],
)  # fmt: skip
def test_json_of_a_client_means_what_it_means_there(written: dict[str, Any], entry: dict[str, Any]) -> None:
    (found,) = pasted.of_json(json.dumps(written))
    assert (found.entry, found.notes) == (entry, ())
