"""Why a server failed: one cause, one code and one piece of advice, whoever asks."""

from __future__ import annotations

import json
from pathlib import Path

import httpx2
import pytest
from command_fakes import echo, write_config

from foretool.server import doctor
from foretool.server.commands import first_start
from foretool.server.commands.group import run
from foretool.server.config import loader
from foretool.server.config.codes import Code
from foretool.server.config.servers import Server
from foretool.server.transports.upstream.base import LinkError
from foretool.server.transports.upstream.http_client import RequestFailed, follow
from foretool.server.transports.upstream.stdio import Child, _spawn
from foretool.server.upstreams.failures import explain_failure


def server(folder: Path, **entry: object) -> Server:
    return loader.load(write_config(folder, {"one": entry or {"command": "/bin/a"}})).servers["one"]


@pytest.mark.parametrize(
    ("error", "stderr", "code", "do"),
    [
        ("command 'npx' was not found", (), Code.PROGRAM_MISSING, "install Node.js"),
        ("command '/a/b' was not found", (), Code.PROGRAM_MISSING, "correct its command"),
        ("cwd '/a' is not a folder", (), Code.FILE_MISSING, 'correct "cwd"'),
        ("exited with code 1", ("GITHUB_TOKEN is not set",), Code.CREDENTIAL_MISSING, "GITHUB_TOKEN is not set here"),
        ("exited with code 1", ("Cannot connect to the Docker daemon",), Code.DOCKER_DOWN, "start Docker"),
        ("exited with code 1", (), Code.SERVER_FAILED, "start '/bin/a' with its args by hand"),
        ("its tools could not be listed: log in", (), Code.TOOLS_NOT_LISTED, "its documentation may say"),
        ("closed its output", (), Code.NOT_MCP, "its command may be no MCP server"),
    ],
)
def test_a_program_that_failed(
    error: str, stderr: tuple[str, ...], code: Code, do: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_TOKEN", raising=False)
    found = explain_failure(server(tmp_path), error, stderr)
    assert (found.code, found.do[: len(do)]) == (code, do)


def test_a_remote_server_is_never_told_of_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "x")
    found = explain_failure(server(tmp_path, url="https://h/mcp"), "answered HTTP 401: SECRET_TOKEN missing", ())
    assert (found.code, found.do) == (Code.CREDENTIAL_REFUSED, "check its headers, or make a new token")


def test_a_list_over_the_limit_names_the_setting_once_and_no_documentation(tmp_path: Path) -> None:
    reason = "its answer is larger than 32 MiB; raise max_message_mib to read it"
    found = explain_failure(server(tmp_path), f"its tools could not be listed: {reason}", ())
    assert found.code == Code.TOOLS_NOT_LISTED
    assert found.what == "its tools could not be listed: its answer is larger than 32 MiB"
    assert found.do == "raise max_message_mib to read it; it is asked again by itself"


@pytest.mark.parametrize("before", ["", "its tools could not be listed: "])
def test_a_sign_in_that_has_ended_is_named_also_where_the_tools_were_asked_for(before: str, tmp_path: Path) -> None:
    said = f"{before}its sign-in has ended: run `foretool login one` in a terminal"
    found = explain_failure(server(tmp_path, url="https://h/mcp"), said, ())
    assert (found.code, found.do) == (Code.SIGN_IN, "run `foretool login one` in a terminal")


@pytest.mark.parametrize("script", ["exit 3", "echo 'DEMO_KEY is not set' >&2; exit 1", "exit 0"])
def test_add_and_doctor_say_the_same_of_a_failed_start(script: str, tmp_path: Path) -> None:
    path = write_config(tmp_path, {"one": {"command": "/bin/sh", "args": ["-c", script]}})
    (added,) = first_start.start(path, ["one"], as_json=True)
    (found,) = [each for each in doctor.diagnose(loader.load(path)).findings if each.area == "upstream"]
    assert (found.what, found.code, found.do, found.lines) == (
        f"one: {added.error}",
        added.code,
        added.do,
        added.stderr,
    )


def test_add_and_doctor_say_the_same_of_an_entry_that_cannot_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path, {"one": {"command": "x", "env": {"A": "${FORETOOL_TEST_UNSET}"}}, "echo": echo()})
    (added,) = first_start.start(path, ["one"], as_json=True)
    assert run(["doctor", "--config", str(path), "--json"]) == 1
    (found,) = [each for each in json.loads(capsys.readouterr().out)["findings"] if each["severity"] == "error"]
    assert (found["what"], found["code"], found["do"]) == (f"one: {added.error}", added.code, added.do)


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        (
            {"command": "no-such-program"},
            "no-such-program is not on PATH [FT201]; install it, or write its full path",
        ),
        (
            {"command": "/no/such/program"},
            "there is no program /no/such/program [FT201]; correct its command, or install it",
        ),
        (
            {"command": "sh", "cwd": "/no/such"},
            "cwd '/no/such' is not a folder [FT309]; correct \"cwd\" of its entry, or make the folder",
        ),
    ],
)
def test_a_failed_start_is_said_with_its_advice_once(entry: dict[str, str], line: str, tmp_path: Path) -> None:
    one = server(tmp_path, **entry)
    with pytest.raises(LinkError) as failed:
        _spawn(Child(one.command, (), {}, entry.get("cwd")), "mark")
    assert ";" not in str(failed.value)
    assert explain_failure(one, str(failed.value), ()).line == line


def test_a_redirect_to_another_origin_is_a_wrong_address_with_one_way_out(tmp_path: Path) -> None:
    remote = server(tmp_path, url="https://one.example/mcp")
    with pytest.raises(RequestFailed) as refused:
        follow("POST", httpx2.URL(remote.url), 308, "https://two.example/mcp")
    assert explain_failure(remote, str(refused.value), ()).line == (
        "answered HTTP 308, a redirect to https://two.example, which is not followed, since credentials must not leave"
        " their origin [FT313]; set its url to where it leads, with the path that it has"
    )
