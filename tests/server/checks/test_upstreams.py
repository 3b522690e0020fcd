"""What is said of a server that was started once, by how it failed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from command_fakes import write_config

from foretool.server.checks.programs import check_upstreams
from foretool.server.config import loader
from foretool.server.config.codes import Code
from foretool.server.diagnosis import Finding, UpstreamCheck

FAILED = UpstreamCheck("one", "/bin/a", is_well=False, error="exited with code 1")


def told(folder: Path, check: UpstreamCheck, **entry: object) -> Finding:
    config = loader.load(write_config(folder, {"one": entry or {"command": "/bin/a"}}))
    (found,) = check_upstreams([check], config, 30.0)
    return found


def test_the_last_five_lines_are_shown_and_the_telling_one_is_the_reason(tmp_path: Path) -> None:
    lines = ("starting", "TypeError: it broke", "    at a.js:1", "", "b", "c", "Node.js v20.20.2")
    found = told(tmp_path, replace(FAILED, error="exited with code 1; last stderr line: 'Node.js v20'", stderr=lines))
    assert found.what == "one: exited with code 1: TypeError: it broke"
    assert found.lines == ("starting", "TypeError: it broke", "b", "c")
    assert found.code is Code.SERVER_FAILED


def test_what_is_no_mcp_server_is_told(tmp_path: Path) -> None:
    silent = told(tmp_path, replace(FAILED, error="exited with code 0"))
    noisy = told(tmp_path, replace(FAILED, error="no answer to initialize within 30 s", skipped_lines=7))
    assert {silent.code, noisy.code} == {Code.NOT_MCP}
    assert "7 lines that are not MCP" in noisy.what


@pytest.mark.parametrize(
    ("error", "code", "do"),
    [
        ("wants you to sign in: run `foretool login one` in a terminal", Code.SIGN_IN, "run `foretool login one`"),
        ("HTTP 401: it wants another Authorization; put a valid one into headers of this server in the config",
         Code.CREDENTIAL_REFUSED, "put a valid one into headers of this server in the config"),
        ("HTTP 403: refused: its credentials in headers do not suffice", Code.CREDENTIAL_REFUSED, "check its headers"),
        ("HTTP 404: nothing is served there: check the path of url", Code.ADDRESS_WRONG, "check its url"),
        ("cannot be reached: connection refused", Code.NETWORK_DOWN, "check its url"),
        ("no answer to initialize within 30 s", Code.SERVER_SLOW, "check its url"),
    ],
)  # fmt: skip
def test_a_remote_server_says_what_to_do_by_its_status(error: str, code: Code, do: str, tmp_path: Path) -> None:
    found = told(tmp_path, replace(FAILED, error=error), url="https://example.com/mcp")
    assert found.code is code and found.do.startswith(do) and do not in found.what
