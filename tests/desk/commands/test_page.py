"""`foretool page`: what a person reads on the terminal."""

import socket
from pathlib import Path

import pytest
from command_fakes import write_config

from foretool.server.commands.group import run


def test_a_port_that_is_taken_is_said_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert run(["page", "--port", str(port), "--config", str(write_config(tmp_path))]) == 1
    assert capsys.readouterr().err.count("\n") == 1
