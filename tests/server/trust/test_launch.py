"""A command line is kept for comparison, without what is secret in it."""

from __future__ import annotations

import json

from fakes import FakeUpstream, config_of

from foretool.server.trust.launch import launch_of, of_launch
from foretool.storage.records import Definition


def test_a_command_line_is_kept_without_its_secrets() -> None:
    entry = {"command": "npx", "args": ["-y", "w@1", "--token=abcdef", "--api-key", "abcdef"], "env": {"KEY": "abcdef"}}
    (server,) = config_of(FakeUpstream("w", entry=entry)).servers.values()
    assert json.loads(launch_of(server).value) == {
        "command": "npx -y w@1 --token=[...] --api-key [...]", "env": ["KEY"],
    }  # fmt: skip
    remote = {"command": None, "url": "https://me:abcdef@x.example/mcp?key=abcdef"}
    (server,) = config_of(FakeUpstream("w", entry=remote)).servers.values()
    assert json.loads(launch_of(server).value) == {"url": "https://x.example/mcp"}


def test_a_definition_carries_how_its_server_was_reached() -> None:
    (server,) = config_of(FakeUpstream("w")).servers.values()
    launch = launch_of(server)
    assert of_launch(Definition("w", "tool", "a", "h", b""), launch).fingerprint == launch.hash
