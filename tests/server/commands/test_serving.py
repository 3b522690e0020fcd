"""`serve` as it starts without click: its reading of the command line, its refusals, and the process."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import click
import pytest
from command_fakes import echo, write_config

from foretool.server.commands.group import root
from foretool.server.commands.serve import command as serve_command
from foretool.server.commands.serving import ON_TERMINAL, ServeOptions, options_of
from foretool.server.commands.window import read_options
from foretool.server.config.addresses import EXPECTED
from foretool.server.config.tokens import WAY_OUT

PLAIN: list[list[str]] = [
    [],
    ["--config", "a.json"],
    ["--config=a.json", "--profile", "work"],
    ["--http"],
    ["--http", "--config", "a.json"],
    ["--http", "127.0.0.1:1", "--config", "a.json"],
    ["--http=127.0.0.1:1"],
    ["--profile", "one", "--profile", "two"],
    ["--profile="],
    ["--profile", "--http"],
]


@pytest.mark.parametrize("arguments", PLAIN, ids=" ".join)
def test_serve_is_read_as_click_reads_it(arguments: list[str]) -> None:
    parent = click.Context(root, **root.context_settings)
    read = serve_command.make_context("serve", list(arguments), parent).params
    plain = read_options(["serve", *arguments])
    assert plain is not None
    assert options_of(plain) == ServeOptions(read["path"], read["profile"], read["http"])


@pytest.mark.parametrize("arguments", [[], ["status"], ["--help"], ["serves"]])
def test_other_commands_are_left_to_click(arguments: list[str]) -> None:
    assert read_options(arguments) is None


def foretool(*arguments: str, stdin: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "foretool", *arguments]
    env = {**os.environ, **environ}
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, env=env, check=False)


def refusal(*arguments: str, **environ: str) -> str:
    """The one line of a command that is refused with status 2."""
    done = foretool(*arguments, **environ)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.strip()


def test_a_malformed_config_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_text('{"mcpServers": {"a": }}')
    place = f"foretool: {path}:1:22: expected a value, found '}}'"
    assert refusal("serve", "--config", str(path)).startswith(place)


def test_a_missing_config_is_refused_saying_how_to_make_one(tmp_path: Path) -> None:
    said = refusal("serve", FORETOOL_CONFIG=str(tmp_path / "none.json"))
    assert said.startswith(f"foretool: {tmp_path / 'none.json'}: no such file; run foretool init or")


def test_an_unknown_profile_is_refused_naming_those_there_are(tmp_path: Path) -> None:
    path = write_config(tmp_path, {}, profiles={"work": {}})
    said = refusal("serve", "--config", str(path), "--profile", "play")
    assert said == f"foretool: {path}: no profile 'play'; it has: work [FT112]"


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("8399", f"--http: {EXPECTED}, found '8399'"),
        (
            "0.0.0.0:0",
            f"serve --http: no token is set, so other machines could call your tools at 0.0.0.0:0; {WAY_OUT}, or bind",
        ),
        ("[::1]:0", "serve --http: no token is set, so every program and user of this machine could call your tools"),
        ("unix:x", '--http: expected a full path behind "unix:", like "unix:/run/'),
    ],
)
def test_an_address_that_cannot_be_served_is_refused(address: str, said: str, tmp_path: Path) -> None:
    path = write_config(tmp_path, {}, log_level="error")
    assert refusal("serve", "--config", str(path), "--http", address).startswith(f"foretool: {said}")


def test_an_address_in_use_is_refused(tmp_path: Path) -> None:
    path = write_config(tmp_path, {}, log_level="error", insecure_loopback=True)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = refusal("serve", "--config", str(path), "--http", f"127.0.0.1:{port}")
    assert said.startswith(f"foretool: cannot listen on 127.0.0.1:{port}: ")


def test_a_profile_over_http_is_refused_naming_its_address(tmp_path: Path) -> None:
    path = write_config(tmp_path, {}, profiles={"work": {}})
    said = refusal("serve", "--config", str(path), "--http", "--profile", "work")
    assert said.endswith("/mcp/work; leave out --profile [FT114]")


def test_a_storage_file_of_another_kind_is_said_and_does_not_stop_serving(tmp_path: Path) -> None:
    path = write_config(tmp_path, {}, log_level="warning")
    (tmp_path / "foretool.sqlite3").write_text("this is no database, " * 100)
    done = foretool("serve", "--config", str(path))
    assert (done.returncode, done.stdout) == (0, "")
    assert len([line for line in done.stderr.splitlines() if "not a readable SQLite file" in line]) == 1


def lines(*messages: dict[str, Any]) -> str:
    return "".join(json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in messages)


HELLO = lines(
    {
        "id": 1,
        "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
    },
    {"method": "notifications/initialized"},
    {"id": 2, "method": "tools/list"},
)


NOISY = """
import os, sys
from foretool.server import cli
from foretool.server.catalog.catalog import Catalog

replace_in_steps = Catalog.replace_in_steps

def noisy(*args, **kwargs):
    print("a library prints", flush=True)
    os.write(1, b"a C library prints\\n")
    return replace_in_steps(*args, **kwargs)

Catalog.replace_in_steps = noisy
cli.main(sys.argv[1:])
"""


def test_stdout_carries_nothing_but_protocol_whatever_prints(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"echo": echo("--noise")}, policy="full")
    command = [sys.executable, "-c", NOISY, "serve", "--config", str(path)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as proxy:
        assert proxy.stdin and proxy.stdout
        proxy.stdin.write(HELLO)
        proxy.stdin.flush()
        answers = [json.loads(proxy.stdout.readline()) for _ in range(2)]
        proxy.stdin.close()
        rest = [json.loads(line) for line in proxy.stdout]
        assert proxy.stderr and "a C library prints" in proxy.stderr.read()
    assert [each["id"] for each in answers] == [1, 2]
    assert "echo__weather" in {tool["name"] for tool in answers[1]["result"]["tools"]}
    assert all(each["jsonrpc"] == "2.0" for each in rest)
    assert proxy.returncode == 0


IMPORTED = """
import sys
from foretool.server import cli
try:
    cli.main(sys.argv[1:])
except SystemExit as end:
    sys.stderr.write("\\n".join(sorted(name.partition(".")[0] for name in sys.modules)))
    sys.exit(end.code)
"""


def test_serving_imports_nothing_of_the_other_commands(tmp_path: Path) -> None:
    path = write_config(tmp_path, {})
    command = [sys.executable, "-c", IMPORTED, "serve", "--config", str(path)]
    done = subprocess.run(command, input=HELLO, capture_output=True, text=True, timeout=60, check=True)
    heavy = {"click", "rich", "pydantic", "mcp", "numpy", "httpx2", "uvicorn", "sqlite_utils", "argparse"}
    # A new storage file is migrated with sqlite-utils; only a second start shows what serving takes.
    done = subprocess.run(command, input=HELLO, capture_output=True, text=True, timeout=60, check=True)
    assert heavy & set(done.stderr.split()) == set()


def test_clients_are_served_over_http_until_a_signal(tmp_path: Path) -> None:
    path = write_config(tmp_path, {}, profiles={"work": {}}, insecure_loopback=True)
    command = [sys.executable, "-m", "foretool", "serve", "--config", str(path), "--http", "127.0.0.1:0"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as proxy:
        assert proxy.stderr
        address = next(found[0] for line in proxy.stderr if (found := re.search(r"http://\S+/mcp", line)))
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        body = HELLO.splitlines()[0].encode()
        for endpoint in (address, f"{address}/work"):
            asked = urllib.request.Request(endpoint, body, headers)
            with urllib.request.urlopen(asked, timeout=30) as answer:
                assert b'"serverInfo"' in answer.read()
        proxy.send_signal(signal.SIGTERM)
        assert proxy.wait(timeout=30) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_person_who_types_serve_reads_what_it_is_and_what_to_do(tmp_path: Path) -> None:
    import pty

    path = write_config(tmp_path, {})
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "foretool", "serve", "--config", str(path)]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        os.close(theirs)
        assert process.stderr is not None
        said = process.stderr.readline() + process.stderr.readline()
        os.close(ours)
        process.communicate(timeout=30)
    assert said == ON_TERMINAL
