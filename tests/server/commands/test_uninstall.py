"""`foretool uninstall`: a home that init has set up becomes what it was."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
from homes import SECRET, write_home
from requirements import requirement

from foretool.server.commands import uninstall
from foretool.server.commands.group import run
from foretool.server.commands.uninstall import run_commands
from foretool.server.setup.installation import Installation

_SERVERS = '  "mcpServers": { "time": { "command": "uvx", "args": ["t"] } }\r\n'


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "FORETOOL_CONFIG", "CODEX_HOME", "CLAUDE_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PWD", str(tmp_path))
    monkeypatch.setattr(uninstall, "run_commands", lambda *given, **more: 0)
    return tmp_path


def contents(home: Path) -> dict[str, bytes]:
    ours = home / ".config/foretool"
    return {
        str(path): path.read_bytes() for path in home.rglob("*") if path.is_file() and not path.is_relative_to(ours)
    }


@requirement("manage:uninstall")
@pytest.mark.parametrize("hooks", [["--no-hook"], ["--hook", "--shell-hook"]], ids=["without hooks", "with hooks"])
def test_every_client_is_as_before_init(home: Path, capsys: pytest.CaptureFixture[str], hooks: list[str]) -> None:
    write_home(home)
    before = contents(home)
    assert run(["init", "--yes", "--no-start", *hooks]) == 0
    after = contents(home)
    assert run(["uninstall", "--dry-run"]) == 0 and run(["uninstall", "--json"]) == 0
    assert run(["uninstall"]) == 1 and contents(home) == after != before
    capsys.readouterr()
    assert run(["uninstall", "--yes"]) == 0
    left = contents(home)
    # init made files for clients that had none; they stay, without foretool.
    assert {path: left[path] for path in before} == before
    out, error = capsys.readouterr()
    assert "becomes what it was before foretool init" in out and f"Stays: {home}/.config/foretool" in out
    assert ("settings.json runs foretool hint at every prompt no more" in out) == ("--hook" in hooks)
    assert SECRET not in out + error and not any(b"foretool" in left[path] for path in left.keys() - before.keys())
    assert (home / ".config/foretool/mcp.json").exists()
    assert run(["uninstall", "--yes"]) == 0
    assert "No client has foretool." in capsys.readouterr().out and contents(home) == left


@requirement("manage:uninstall")
def test_comments_come_back_where_the_file_was_edited_since(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_home(home)
    paths = [home / name for name in (".codex/config.toml", ".config/zed/settings.json", ".claude.json")]
    edited = [
        path.read_text().replace(old, new)
        for path, (old, new) in zip(
            paths, (('"o4"', '"o5"'), ("One Dark", "Gruvbox"), ('numStartups": 12', 'numStartups": 13')), strict=True
        )
    ]
    assert run(["init", "--yes", "--no-start"]) == 0
    for path, (old, new) in zip(
        paths, (('"o4"', '"o5"'), ("One Dark", "Gruvbox"), ('numStartups": 12', 'numStartups": 13')), strict=True
    ):
        path.write_text(path.read_text().replace(old, new))
    assert run(["uninstall", "--yes"]) == 0
    assert [path.read_text() for path in paths] == edited
    out = capsys.readouterr().out
    assert "becomes what it was before foretool init, with your edits since" in out
    assert (
        "Their files with foretool are kept in ~/.config/foretool/backups" in out
        and "init --undo" not in out.split("Done.")[-1]
    )


@requirement("manage:uninstall", "setup:undo")
@pytest.mark.parametrize(
    "text",
    [
        "\ufeff// mine\r\n{\r\n" + _SERVERS + "}\r\n",
        "\ufeff{" + _SERVERS + "}",
        "\ufeff",
        "\ufeff \n",
        " \n",
    ],
    ids=["comment", "plain", "empty", "blank with a mark", "blank"],
)
def test_a_file_that_is_blank_or_begins_with_a_byte_order_mark_is_set_up_and_put_back(home: Path, text: str) -> None:
    """Some editors begin a file with the mark: init and uninstall ended with an internal error."""
    path = home / ".cursor/mcp.json"
    path.parent.mkdir()
    path.write_bytes(before := text.encode())
    for back in (["init", "--undo"], ["uninstall", "--yes"]):
        assert run(["init", "--yes", "--no-start", "--no-hook"]) == 0
        assert list(json.loads(path.read_text("utf-8-sig").replace("// mine", ""))["mcpServers"]) == ["foretool"]
        assert run(back) == 0 and path.read_bytes() == before
    assert run(["init", "--yes", "--no-start", "--no-hook"]) == 0
    path.write_bytes(path.read_bytes().rstrip() + b"\n\n")
    assert run(["uninstall", "--yes"]) == 0
    left = path.read_text()
    assert "foretool" not in left and (left.split() == text.split() or "{" not in text)


def test_what_foretool_made_for_the_machine_goes_and_records_stay_with_their_size(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sockets = home / "run"
    sockets.mkdir(mode=0o700)
    (sockets / "kept.answer").write_bytes(b"")
    monkeypatch.setenv("FORETOOL_SOCKETS", str(sockets))
    write_home(home)
    assert run(["init", "--yes", "--no-start"]) == 0
    state = home / ".local/state/foretool"
    (state / "encoders").mkdir(parents=True)
    (state / "encoders" / "o200k_base.ranks").write_bytes(b"x" * 2048)
    (state / "foretool.sqlite3").write_bytes(b"y" * 512)
    assert run(["uninstall", "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "Goes too: ~/.local/state/foretool/encoders (2.0 KiB" in said
    assert "(what foretool recorded and learned, 512 B)" in said
    assert (state / "encoders").is_dir() and (sockets / "kept.answer").exists()
    assert run(["uninstall", "--yes"]) == 0
    assert not (sockets / "kept.answer").exists()
    out = capsys.readouterr().out
    assert "Deleted: ~/.local/state/foretool/encoders" in out and not (state / "encoders").exists()
    assert "(what foretool recorded and learned, 512 B)" in out and (state / "foretool.sqlite3").exists()


@requirement("manage:uninstall")
@pytest.mark.parametrize("answer", ["y", "n"])
def test_what_goes_too_goes_with_the_yes_to_uninstall_where_no_client_has_foretool(
    home: Path, answer: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After `init --undo` there is one question alone; its yes left the folder that "goes too"."""
    made = home / ".local/state/foretool/encoders"
    made.mkdir(parents=True)
    (made / "o200k_base.ranks").write_bytes(b"x" * 2048)
    copy = Installation("pip", home, "", (("true",),))
    monkeypatch.setattr(uninstall, "this_installation", lambda: copy)
    monkeypatch.setattr(uninstall, "run_commands", run_commands)
    typed = io.StringIO(f"{answer}\n")
    monkeypatch.setattr(typed, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", typed)
    assert run(["uninstall"]) == (answer == "n")
    said = capsys.readouterr().out
    assert "Goes too: ~/.local/state/foretool/encoders" in said and "Run this?" in said
    assert made.exists() == ("Deleted: " not in said) == (answer == "n")


@requirement("manage:uninstall")
def test_it_names_the_servers_that_no_client_gets_back_whatever_their_names(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It named `time-claude-desktop`, which came back as `time`, and not the `time` that the user had mended."""
    desktop = {"time": {"command": "mcp-server-tiem"}, "git": {"command": "uvx", "args": ["git", "--key", SECRET]}}
    code = {"time": {"command": "mcp-server-time", "args": ["--zone"]}}
    for name, servers in ((".config/Claude/claude_desktop_config.json", desktop), (".claude.json", code)):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(json.dumps({"mcpServers": servers}))
    assert run(["init", "--yes", "--no-start"]) == 0
    own = home / ".config/foretool/mcp.json"
    names = set(json.loads(own.read_text())["mcpServers"])
    renamed = names - {"time", "git"}
    assert len(renamed) == 1 and json.loads(_report(capsys))["in_no_client"] == []
    text = own.read_text()
    # The program's whole path is no other server; another zone is one, under the same name.
    own.write_text(text.replace('"uvx"', '"/usr/bin/uvx"').replace('"--zone"', '"--zone", "utc"'))
    (changed,) = json.loads(_report(capsys))["in_no_client"]
    assert changed == next(name for name in names if "utc" in str(json.loads(own.read_text())["mcpServers"][name]))
    assert run(["uninstall", "--dry-run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"No client will have {changed} as ~/.config/foretool/mcp.json has it: it stays there alone." in said


def _report(capsys: pytest.CaptureFixture[str]) -> str:
    capsys.readouterr()
    assert run(["uninstall", "--json"]) == 0
    return capsys.readouterr().out


@requirement("manage:uninstall")
def test_what_stays_is_what_exists_and_no_folder_that_holds_other_things(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["uninstall", "--dry-run"]) == 0
    assert "Stays" not in capsys.readouterr().out
    assert run(["uninstall", "--json"]) == 0 and json.loads(capsys.readouterr().out)["data"] == {}
    (home / "encoders").mkdir()
    (home / "encoders/letter.txt").write_text("mine")
    for name in ("store.db", "store.db-wal"):
        (home / name).write_bytes(b"")
    mine = home / "servers.json"
    mine.write_text(json.dumps({"mcpServers": {}, "foretool": {"storage": str(home / "store.db")}}))
    assert run(["uninstall", "--dry-run", "--config", str(mine)]) == 0
    out = capsys.readouterr().out
    assert [line for line in out.splitlines() if "To delete it" in line] == [
        f"  To delete it: rm {home / name}" for name in ("servers.json", "store.db", "store.db-wal")
    ]
    assert run(["uninstall", "--yes", "--config", str(mine)]) == 0 and (home / "encoders/letter.txt").exists()
    assert "rm -r" not in out and f"Stays: {mine} (your config and copies" in out


@pytest.mark.parametrize(
    "text", ['{"version": 1}', '{"hooks": {}}\n', '{"version": 1, "hooks": {"beforeSubmitPrompt": []}}']
)
def test_a_file_of_hooks_that_nobody_edited_becomes_what_it_was(home: Path, text: str) -> None:
    file, config = home / ".cursor/hooks.json", home / ".config/foretool/mcp.json"
    for path, written in ((file, text), (config, '{"mcpServers": {}}')):
        path.parent.mkdir(parents=True)
        path.write_text(written)
    hint = ["hint", "--client", "cursor"]
    assert run([*hint, "--install"]) == run([*hint, "--remove"]) == 0 and file.read_text() == text
    assert run([*hint, "--install"]) == run([*hint, "--install", "--shell"]) == 0
    assert run([*hint, "--remove"]) == 0 and "hint --shell" in file.read_text()
    assert run([*hint, "--install"]) == run(["uninstall", "--yes"]) == 0 and "foretool" not in file.read_text()
    file.write_text(text)
    assert run([*hint, "--install"]) == run([*hint, "--install", "--shell"]) == 0
    assert run(["uninstall", "--yes"]) == 0 and file.read_text() == text
