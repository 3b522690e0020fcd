"""`foretool add`: a new server from what people have at hand; it is shown, written, started once, and taken back."""

from __future__ import annotations

import io
import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from command_fakes import echo, write_config
from registry_fakes import item, npm, registry
from requirements import requirement

from foretool.server.commands.group import run


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(tmp_path, {"calc": {"command": "calc", "prefix": "sums"}})


def servers(config: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(config.read_text())["mcpServers"]
    return found


def add(config: Path, *words: str) -> int:
    return run(["add", "--config", str(config), "--no-start", *words])


@requirement("manage:add")
def test_a_command_is_added_started_and_taken_back(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, entry = config.read_bytes(), echo()
    assert run(["add", "--config", str(config), "echo", "--", entry["command"], *entry["args"]]) == 0
    out, error = capsys.readouterr()
    assert "echo works: 2 tools," in out and "Starting echo once" in error
    assert servers(config)["echo"] == entry
    assert run(["add", "--undo", "--config", str(config)]) == 0
    assert config.read_bytes() == before


def test_a_server_that_fails_stays_and_says_why(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["add", "--config", str(config), "bad", "--", "no-such-program-at-all", "--token", "t0p"]) == 1
    out, error = capsys.readouterr()
    assert "bad does not work yet:" in out and "foretool remove bad" in out
    assert "bad" in servers(config) and "t0p" not in out + error


def test_the_first_server_makes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "mcp.json"
    assert add(path, "https://mcp.linear.app/mcp") == 0
    assert servers(path) == {"linear": {"url": "https://mcp.linear.app/mcp"}}
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(
    ("words", "name", "entry"),
    [
        (["x", "--env", "A=1", "--", "uvx", "y", "--env", "B=2"], "x",
         {"command": "uvx", "args": ["y", "--env", "B=2"], "env": {"A": "1"}}),
        (["x", "--", "sh", "--", "y"], "x", {"command": "sh", "args": ["--", "y"]}),
        (["x", "uvx", "y"], "x", {"command": "uvx", "args": ["y"]}),
        (["https://h.example/sse", "-H", "A: b", "--name", "x"], "x",
         {"url": "https://h.example/sse", "type": "sse", "headers": {"A": "b"}}),
        (["x", "https://h.example/mcp", "-t", "sse"], "x", {"url": "https://h.example/mcp", "type": "sse"}),
        (shlex.split("claude mcp add -s user x -e K=1 -- npx -y z"), "x",
         {"command": "npx", "args": ["-y", "z"], "env": {"K": "1"}}),
        (["claude mcp add x -- npx -y z"], "x", {"command": "npx", "args": ["-y", "z"]}),
        (['{"mcpServers": {"x": {"command": "y"}}}'], "x", {"command": "y"}),
        (["x", '{"command": "y"}'], "x", {"command": "y"}),
    ],
)  # fmt: skip
def test_each_form_is_read(words: list[str], name: str, entry: dict[str, Any], config: Path) -> None:
    assert add(config, *words) == 0
    assert servers(config)[name] == entry


def test_json_comes_from_stdin(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('{"servers": {"x": {"command": "y"}, "z": {"url": "https://h"}}}'))
    assert add(config, "-") == 0
    assert list(servers(config)) == ["calc", "x", "z"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "say what to add"),
        (["time"], "For a command: foretool add time -- COMMAND"),
        (["--", "uvx"], "expected one name before --"),
        (["npx", "-y", "@x/y"], "'npx' is a program; write a name and -- before it: foretool add NAME -- npx ..."),
        (["uvx", "mcp-server-time"], "foretool add NAME -- uvx ..."),
        (["python3", "server.py"], "foretool add NAME -- python3 ..."),
        (['{"mcpServers": {"x": '], "expected a value, found the end of the file"),
        (["x", "--"], "expected one name before --"),
        (["x", "-H", "A: b", "--", "y"], "belong to an address"),
        (["x", "https://h", "-e", "A=1"], "--env belongs to a command"),
        (["ftp://h/x"], "expected an address that starts with http"),
        (["x", '{"command": "y", "args": "z"}'], "args: expected"),
        (["calc", "--", "other"], "exists and is another one (calc); add --replace"),
        (["CALC", "--", "other"], "would be taken for the server 'calc'"),
        (["sums", "--", "other"], "would be taken for the server 'calc'"),
        (["s-ums", "--", "other"], "would be taken for the server 'calc'"),
        (["discover_tools", "--", "x"], "is a name of foretool's own"),
    ],
)
def test_what_is_wrong_is_one_line_and_changes_nothing(
    words: list[str], said: str, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = config.read_bytes()
    assert add(config, *words) == 2
    error = capsys.readouterr().err
    assert said.lower() in error.lower() and error.count("\n") == 1 and config.read_bytes() == before


def test_other_settings_of_a_server_that_is_there_are_not_lost_without_a_word(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = json.dumps({"calc": {"command": "calc", "timeout_s": 90, "include": ["add"]}})
    assert add(config, entry) == 0
    assert "calc is there already: to change its timeout_s, include, add --replace." in capsys.readouterr().out
    assert add(config, entry, "--replace") == 0
    assert servers(config)["calc"]["include"] == ["add"] and add(config, entry) == 0
    assert "calc is there already: nothing to add." in capsys.readouterr().out


@requirement("trust:manage:secrets")
def test_a_secret_of_the_command_line_is_never_printed(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["x", "-e", "API_KEY=k3y", "--", "npx", "y", "--token", "t0k", "postgres://u:pw9@h/d?a=q5"]
    assert add(config, *words) == 0
    assert add(config, "https://h.example/?key=q7", "-H", "Authorization: Bearer b8r", "--name", "z", "--json") == 0
    out, error = capsys.readouterr()
    assert not any(secret in out + error for secret in ("k3y", "t0k", "pw9", "q7", "b8r"))
    assert "API_KEY stands in the file as you typed it" in out and "'${API_KEY}'" in out
    assert "k3y" in config.read_text()


@requirement("manage:registry")
def test_a_server_of_the_registry_is_shown_and_added(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs = [{"name": "WEATHER_KEY", "isRequired": True, "isSecret": True, "description": "From\nweather.example"}]
    with registry(item(packages=[npm(environmentVariables=needs)])) as answer:
        assert add(config, "io.github.ann/weather", "--registry", answer.url, "--yes") == 0
    out = capsys.readouterr().out
    assert "runs     npx -y weather-mcp@1.2.3" in out and "needs    WEATHER_KEY (secret): From weather.example" in out
    assert servers(config)["weather"] == {
        "command": "npx", "args": ["-y", "weather-mcp@1.2.3"], "env": {"WEATHER_KEY": "${WEATHER_KEY}"},
    }  # fmt: skip


@requirement("trust:manage:registry")
def test_nothing_of_the_registry_is_run_without_a_yes(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = config.read_bytes()
    with registry(item(packages=[npm()])) as answer:
        for more in ([], ["--json"]):
            assert add(config, "io.github.ann/weather", "--registry", answer.url, *more) == 2
        assert add(config, "io.github.ann/weather", "--registry", answer.url, "--dry-run") == 0
    out, error = capsys.readouterr()
    assert config.read_bytes() == before and "there is nobody to ask" in error and "Nothing was written." in out


@requirement("trust:manage:registry")
@pytest.mark.parametrize("name", ["io.github.ann/calc", "io.github.ann/sums", "io.github.ann/foretool"])
def test_a_name_of_the_registry_shadows_no_server(name: str, config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = config.read_bytes()
    with registry(item(name, packages=[npm()])) as answer:
        assert add(config, name, "--registry", answer.url, "--yes") == 2
    assert config.read_bytes() == before and "--name" in capsys.readouterr().err


@requirement("trust:manage:registry")
def test_no_text_of_the_registry_controls_the_terminal(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = "\x1b[2J\u202eevil\r\nio.github.ann/safe"
    hostile = item(
        description=evil * 50, version=evil, repository={"url": evil}, packages=[npm(), npm(evil)],
        remotes=[{"type": evil, "url": evil}],
    )  # fmt: skip
    with registry(hostile) as answer:
        assert add(config, "io.github.ann/weather", "--registry", answer.url, "--yes") == 0
        assert add(config, "--search", "weather", "--registry", answer.url) == 0
    out, error = capsys.readouterr()
    assert all(each.isprintable() for each in (out + error).split("\n"))
    assert not any(each.startswith("io.github.ann/safe") for each in out.split("\n"))


def test_servers_of_the_registry_are_looked_for(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with registry(item(packages=[npm()]), item("io.github.bo/none")) as answer:
        assert add(config, "--search", "weather", "--registry", answer.url) == 0
        assert add(config, "--search", "weather", "--registry", answer.url, "--json") == 0
        answer.body = b'{"servers": []}'
        assert add(config, "--search", "weather", "--registry", answer.url) == 1
    out = capsys.readouterr().out
    assert "io.github.ann/weather\n  1.2.3 (npm): Says the weather." in out and "cannot be added" in out
    assert "No server's name contains 'weather'" in out


def test_an_unreachable_registry_is_one_line(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with registry() as answer:
        pass
    assert add(config, "io.github.ann/weather", "--registry", answer.url) == 1
    error = capsys.readouterr().err
    assert "cannot be reached" in error and error.count("\n") == 1
