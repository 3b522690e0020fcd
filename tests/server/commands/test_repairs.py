"""`foretool doctor --fix`: what it changes, what it leaves to a person, and that it takes everything back."""

from __future__ import annotations

import difflib
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from command_fakes import echo, write_config
from homes import write_home
from requirements import requirement

from foretool.server.checks.clients import check_clients, find_registered
from foretool.server.commands import hint, repairs
from foretool.server.commands.group import run
from foretool.server.config.codes import Code
from foretool.server.config.loader import load
from foretool.server.diagnosis import Diagnosis, Finding, Repair, TokenSummary, note, warning
from foretool.server.setup.clients import ClientFile, Machine, client_files
from foretool.server.setup.documents import open_document
from foretool.server.setup.scan import scan

SUMMARY = TokenSummary(1, 1, 0, 0, None, None)
GONE = {"command": sys.executable, "args": ["/nowhere/server.py"]}


def doctor(path: Path, *more: str) -> int:
    return run(["doctor", "--config", str(path), *more])


def entry(path: Path, name: str = "one") -> dict[str, Any]:
    return dict(json.loads(path.read_text())["mcpServers"][name])


def fix(path: Path, *findings: Any, dry_run: bool = False) -> repairs.Fixed:
    diagnosis = Diagnosis(findings, (), SUMMARY)
    return repairs.fix(path, diagnosis, agreed=True, dry_run=dry_run, as_json=True)


def test_what_cannot_start_is_switched_off_and_files_are_closed_and_both_come_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_config(tmp_path, {"one": {**GONE, "env": {"API_TOKEN": "tok-0123456789"}}, "echo": echo()})
    path.chmod(0o644)
    before = path.read_bytes()
    assert doctor(path, "--fix", "--yes") == 0, "nothing is wrong any more"
    out = capsys.readouterr().out
    assert out.endswith("Checked again: no problem is left.\n")
    assert "one: switch it off, because a file or folder" in out or "one: switch it off, because the file" in out
    assert "mcp.json: let only you reach it (chmod 600)" in out and "tok-0123456789" not in out
    assert entry(path)["disabled"] is True and "disabled" not in entry(path, "echo")
    assert path.stat().st_mode & 0o777 == 0o600
    assert doctor(path) == 0
    capsys.readouterr()
    assert doctor(path, "--undo") == 0
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (before, 0o644)


def test_what_could_not_be_mended_is_left_and_said_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = {"command": "/bin/sh", "args": ["-c", "exit 3"]}
    path = write_config(tmp_path, {"one": GONE, "two": broken, "echo": echo()})
    assert doctor(path, "--fix", "--yes", "--json") == 1
    told = json.loads(capsys.readouterr().out)
    left = {each["server"] for each in told["left"] if each["severity"] == "error"}
    assert (told["is_well"], left, told["fixed"]["backup"] is None) == (False, {"two"}, False)
    assert doctor(path, "--undo") == 0
    assert doctor(path, "one", "--fix", "--yes") == 0, "the only one that was asked for is off"


def test_a_trial_changes_nothing_and_says_what_would_change(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_config(tmp_path, {"one": GONE, "echo": echo()})
    before = path.read_bytes()
    assert doctor(path, "--fix", "--dry-run", "--json") == 1
    fixed = json.loads(capsys.readouterr().out)["fixed"]
    assert [each.partition(",")[0] for each in fixed["what"]] == ["one: switch it off"]
    assert fixed["backup"] is None and any('"disabled"' in line for line in fixed["lines"])
    assert path.read_bytes() == before


def test_a_hostile_server_gets_no_variable_because_it_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI")
    script = "echo 'AWS_SECRET_ACCESS_KEY is not set' >&2; exit 1"
    path = write_config(tmp_path, {"one": {"command": "/bin/sh", "args": ["-c", script]}, "echo": echo()})
    before = path.read_bytes()
    assert doctor(path, "--fix", "--yes") == 1
    out = capsys.readouterr().out
    assert "one: asks for AWS_SECRET_ACCESS_KEY; only you can say whether it may have it" in out
    assert path.read_bytes() == before and "wJalrXUtnFEMI" not in out


def test_a_person_may_give_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_config(tmp_path, {"one": {"command": "/bin/a", "inherit": ["LANG"]}})
    asked: list[str] = []
    monkeypatch.setattr(repairs.sys, "stdin", type("Terminal", (), {"isatty": lambda self: True})())
    monkeypatch.setattr(repairs.output, "agrees", lambda text, **_: not asked.append(text))
    found = warning("upstream", Code.CREDENTIAL_MISSING, "one: it needs K", "", "one",
                    repair=Repair("inherit", ("one",), names=("K", "L")))  # fmt: skip
    repairs.fix(path, Diagnosis((found,), (), SUMMARY), agreed=False, dry_run=False, as_json=False)
    assert entry(path)["inherit"] == ["LANG", "K", "L"]
    assert asked[0].startswith("one asks for K") and len(asked) == 3


def test_servers_that_trust_no_certificate_here_are_given_the_files_after_one_question(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/ours.pem")
    script = "echo 'invalid peer certificate: UnknownIssuer' >&2; exit 1 #"
    path = write_config(
        tmp_path, {name: {"command": "/bin/sh", "args": ["-c", script + name]} for name in ("one", "two")}
    )
    asked: list[str] = []
    monkeypatch.setattr(repairs.sys, "stdin", type("Terminal", (), {"isatty": lambda self: True})())
    monkeypatch.setattr(repairs.output, "agrees", lambda text, **_: not asked.append(text))
    assert doctor(path, "--fix") == 1
    assert len(asked) == 2 and asked[0].startswith("one and two did not trust a certificate of this network; SSL_CERT")
    assert all("SSL_CERT_FILE" in entry(path, name)["inherit"] for name in ("one", "two"))


def test_programs_are_started_by_their_full_path(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"one": {"command": "a"}, "two": {"command": "a"}})
    fixed = fix(
        path, note("client", Code.PROGRAM_NOT_IN_CLIENT, "a is", repair=Repair("command", ("one", "two"), "/b/a"))
    )
    assert {entry(path, name)["command"] for name in ("one", "two")} == {"/b/a"}
    assert fixed.what == ["one, two: start /b/a by its full path, which every client finds"]


def test_a_second_entry_of_foretool_goes_and_comes_back_without_its_secrets_being_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_config(tmp_path, {"one": {"command": "a"}})
    file = tmp_path / ".cursor" / "mcp.json"
    file.parent.mkdir()
    own = {"command": "foretool", "args": ["serve"], "env": {"K": "ghp-secret-value"}}
    file.write_text(json.dumps({"mcpServers": {"foretool": own, "again": own}}, indent=2))
    before = file.read_bytes()
    monkeypatch.setattr(repairs, "this_machine", lambda: Machine("linux", tmp_path, {}, tmp_path))
    found = warning("client", Code.REGISTERED_TWICE, "Cursor starts foretool 2 times", "",
                    repair=Repair("unregister", path=str(file), names=("mcpServers", "again")))  # fmt: skip
    fixed = fix(path, found)
    assert list(json.loads(file.read_text())["mcpServers"]) == ["foretool"]
    assert any("again" in line for line in fixed.lines) and "ghp-secret-value" not in str(fixed)
    assert doctor(path, "--undo") == 0
    assert file.read_bytes() == before


HOME_CLIENTS = sorted({each.client for each in client_files(Machine("linux", Path("/nowhere"), {}, Path("/nowhere")))
                       if each.registers})  # fmt: skip


def break_entry(home: Path, client: str, words: list[str], **more: Any) -> tuple[ClientFile, bytes]:
    """Register foretool in a client of a home with such a command; return its file, and what it holds."""
    write_home(home)
    file = next(each for each in client_files(Machine("linux", home, {}, home)) if each.client == client)
    data = file.path.read_bytes() if file.path.is_file() else b""
    if client == "windsurf":
        data = b""  # the one of that home is broken
    document = open_document(data.decode(), file.kind)
    document.set((*file.keys, "foretool"), {**file.dialect.write(words[0], tuple(words[1:])), **more})
    file.path.parent.mkdir(parents=True, exist_ok=True)
    file.path.write_text(document.text())
    return file, file.path.read_bytes()


@pytest.mark.slow
@requirement("setup:mended")
@pytest.mark.parametrize("client", HOME_CLIENTS)
def test_an_entry_whose_program_is_gone_starts_this_one_again_in_every_format(
    client: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    path = write_config(tmp_path, {"echo": echo()})
    kept = {"envs" if client == "goose" else "environment" if client == "opencode" else "env": {"K": "s3cret-value-x"}}
    gone = ["/gone/bin/foretool", "serve", "--config", str(path), "--profile", "work"]
    file, before = break_entry(tmp_path, client, gone, **kept)
    assert doctor(path, "--fix", "--dry-run") in (0, 1)
    said = capsys.readouterr().out
    assert "cannot start foretool: /gone/bin/foretool is not a program" in said and "s3cret" not in said
    assert file.path.read_bytes() == before
    doctor(path, "--fix", "--yes")
    said = capsys.readouterr().out
    assert "have foretool start foretool again; then restart" in said and "s3cret" not in said
    (found,) = [each for each in scan([file])[0].servers if each.is_foretool]
    words = [found.entry["command"], *found.entry["args"]]
    assert words == [*hint.launcher(), "serve", "--config", str(path), "--profile", "work"]
    assert found.entry["env"] == {"K": "s3cret-value-x"}
    old, new = before.decode().splitlines(), file.path.read_text().splitlines()
    changed = [line for line in difflib.ndiff(old, new) if line[:1] in "+-" and line[2:].strip()]
    ours = ("foretool", "serve", "--config", str(path), "--profile", "work", '"-P"', '"-m"')
    assert all(any(word in line for word in ours) or line[2:].strip() in "[]," for line in changed), changed
    assert not [each for each in diagnose(path) if each.code is Code.REGISTRATION_BROKEN]
    assert doctor(path, "--undo") == 0
    assert file.path.read_bytes() == before


def diagnose(path: Path) -> list[Finding]:
    return list(check_clients(load(path), find_registered(path), os.environ))


@requirement("setup:mended")
def test_old_arguments_and_an_entry_of_one_project_are_mended_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "foretool").mkdir(parents=True)
    path = write_config(tmp_path / "config" / "foretool", {"echo": echo()})
    program = tmp_path / "bin" / "foretool"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    file = tmp_path / ".claude.json"
    (tmp_path / ".claude").mkdir()
    projects = {"/shop": {"mcpServers": {"tools": {"command": str(program), "args": []}}}}
    own = {"command": str(program), "args": ["serve", "--stdio", "--config", "/gone/mcp.json"], "alwaysLoad": True}
    file.write_text(json.dumps({"mcpServers": {"foretool": own}, "projects": projects}))
    assert [each.code for each in diagnose(path)].count(Code.REGISTRATION_BROKEN) == 2
    repairs.fix(path, Diagnosis(tuple(diagnose(path)), (), SUMMARY), agreed=True, dry_run=False, as_json=True)
    written = json.loads(file.read_text())
    assert written["mcpServers"]["foretool"] == {**own, "args": ["serve", "--config", str(path)]}
    assert written["projects"]["/shop"]["mcpServers"]["tools"]["args"] == ["serve"]
    assert diagnose(path) == []


@requirement("setup:mended")
def test_one_file_with_a_broken_and_a_second_entry_is_changed_once_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    path = write_config(tmp_path, {"echo": echo()})
    words = ["serve", "--config", str(path)]
    file, _ = break_entry(tmp_path, "cursor", ["/gone/foretool", *words])
    document = open_document(file.path.read_text(), "json")
    document.set(("mcpServers", "again"), {"command": sys.executable, "args": ["-m", "foretool", *words]})
    file.path.write_text(document.text())
    before = file.path.read_bytes()
    found = diagnose(path)
    assert {each.code for each in found} == {Code.REGISTRATION_BROKEN, Code.REGISTERED_TWICE}
    fixed = repairs.fix(path, Diagnosis(tuple(found), (), SUMMARY), agreed=True, dry_run=False, as_json=True)
    assert len(fixed.what) == 2 and diagnose(path) == []
    assert doctor(path, "--undo") == 0
    assert file.path.read_bytes() == before


def test_a_server_that_is_switched_off_is_not_mended_as_well(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"one": {"command": "a"}})
    off = warning("config", Code.SERVER_TWICE, "one: is two", "", "one", repair=Repair("disable", ("one",)))
    fixed = fix(path, off, note("client", Code.PROGRAM_NOT_IN_CLIENT, "a", repair=Repair("command", ("one",), "/b/a")))
    assert (len(fixed.what), entry(path)) == (1, {"command": "a", "disabled": True})


def test_permissions_that_somebody_has_changed_since_stay(tmp_path: Path) -> None:
    path = write_config(tmp_path, {"one": {"command": "a"}})
    store = tmp_path / "store"
    store.write_text("")
    store.chmod(0o666)
    fix(path, warning("storage", Code.STORAGE_EXPOSED, "", "", repair=Repair("protect", path=str(store), mode=0o600)))
    assert store.stat().st_mode & 0o777 == 0o600
    store.chmod(0o640)
    assert doctor(path, "--undo") == 1
    assert store.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize(
    ("words", "said"),
    [(["--fix"], "there is nobody to ask"), (["--yes"], "go with --fix"), (["--fix", "--json"], "nobody to ask")],
)
def test_nothing_is_examined_if_nobody_could_agree(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert doctor(write_config(tmp_path, {"one": echo()}), *words) == 2
    assert said in capsys.readouterr().err
