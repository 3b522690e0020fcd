"""Servers have names of people's choice, with blanks and letters of every language."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_fakes import echo, write_config

from foretool.server.commands.group import run
from foretool.server.config import loader
from foretool.server.trust.approvals import hash_value
from foretool.storage.opening import open_store
from foretool.storage.records import Definition
from foretool.storage.steps import finish


def test_a_command_that_is_printed_can_be_typed_whatever_the_server_is_called(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`foretool remove my calc` would have taken out the servers `my` and `calc`."""
    off = {**echo("--off"), "disabled": True}
    path = write_config(
        tmp_path, {"my calc": echo(), "my calc 2": echo(), "my bad": {"command": "x${NO}"}, "off it": off}
    )
    data = json.dumps({"name": "sub", "description": "Subtracts.", "inputSchema": {"type": "object"}}).encode()
    with open_store(loader.load(path).storage) as store:
        launch = Definition("my calc", "launch", "", "f", b'{"command":"calc"}', "approved")
        finish(store.approvals.add_first([launch]))
        new = Definition(
            "my calc", "tool", "sub", hash_value(data), data, exposed="my_calc__sub", effect="new", seen_at=5.0
        )
        finish(store.approvals.hold("my calc", ["tool", "launch"], [new]))
    for command in (
        ["review", "my calc"], ["list"], ["status"], ["doctor"], ["doctor", "off it"],
    ):  # fmt: skip
        run([*command, "--config", str(path)])
    out, error = capsys.readouterr()
    said = " ".join((out + error).split())
    for each in (
        "foretool remove 'my calc 2'", "foretool enable 'off it'", "foretool review 'my calc' --approve",
        "approved this: foretool review 'my calc'", "see foretool review 'my calc'",
    ):  # fmt: skip
        assert each in said
    assert not [word for word in ("my", "off") for verb in ("remove", "review", "enable", "doctor", "login")
                if f"foretool {verb} {word} " in said]  # fmt: skip
