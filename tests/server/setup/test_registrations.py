"""What registers foretool with a client works where it is pasted."""

from __future__ import annotations

import base64
import json
import shlex
import tomllib
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pytest
from ruamel.yaml import YAML

from foretool.server.config import jsonc
from foretool.server.setup.clients import ClientFile, Machine, client_files
from foretool.server.setup.registrations import Registration, registration

LAUNCH = ["/opt/it's my/foretool", "serve", "--config", "/a b/mcp.json"]
FILES = [each for each in client_files(Machine("linux", Path("/home/ann"), {}, Path("/home/ann"))) if each.registers]


def told(client: str) -> Registration:
    return registration(next(each for each in FILES if each.client == client), LAUNCH)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.title)
def test_the_lines_say_what_the_entry_says_and_start_foretool(file: ClientFile) -> None:
    found = registration(file, LAUNCH)
    read = {"json": jsonc.loads, "toml": tomllib.loads, "yaml": YAML(typ="safe").load}[file.kind]
    assert read(found.text) == found.entry
    inner = found.entry
    for key in file.keys:
        inner = inner[key]
    written = inner["foretool"] if isinstance(inner, dict) else inner[0]
    entry, _ = file.dialect.read(written)
    assert [entry["command"], *entry["args"]] == LAUNCH


@pytest.mark.parametrize("client", ["claude-code", "codex"])
def test_words_are_quoted_for_the_shell(client: str) -> None:
    words = shlex.split(told(client).command)
    assert words[words.index("--") + 1 :] == LAUNCH


def test_vs_code_takes_a_command_and_a_link() -> None:
    words = shlex.split(told("vscode").command)
    expected = {"name": "foretool", "command": LAUNCH[0], "args": LAUNCH[1:]}
    assert json.loads(words[2]) == expected
    assert json.loads(unquote(told("vscode").link.partition("?")[2])) == expected


def test_cursor_takes_a_link() -> None:
    asked = parse_qs(urlsplit(told("cursor").link).query)
    assert asked["name"] == ["foretool"]
    assert json.loads(base64.b64decode(asked["config"][0])) == {"command": LAUNCH[0], "args": LAUNCH[1:]}
