"""Attacks through files: pipes, devices, bombs of aliases, links and open folders where foretool reads or writes."""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from requirements import requirement

from foretool.server.commands.group import run
from foretool.server.setup.changes import FileChange, write_changes
from foretool.server.setup.documents import DocumentError, open_document
from foretool.storage.opening import open_store

BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 13)
)
MERGED = "a0: &a0 {x: 1}\n" + "".join(
    f"a{level}: &a{level}\n" + "".join(f"  k{key}: *a{level - 1}\n" for key in range(9)) for level in range(1, 13)
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "FORETOOL_CONFIG", "FORETOOL_STORAGE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.slow
@requirement("trust:files:odd")
@pytest.mark.parametrize("text", [BOMB, MERGED, "[" * 5_000], ids=["lists", "maps", "depth"])
def test_a_bomb_of_aliases_is_refused_before_it_is_written_out(text: str) -> None:
    with pytest.raises(DocumentError, match=r"its aliases|cannot be read as YAML"):
        open_document(text, "yaml").data()


@requirement("trust:files:odd")
def test_aliases_of_people_are_read() -> None:
    text = "base: &base {command: uvx}\nextensions: {time: *base, git: {<<: *base, args: [x]}}\n"
    found = open_document(text, "yaml").data()
    assert open_document("a: &a [*a]\n", "yaml").data() == {"a": [None]}
    assert found["extensions"] == {"time": {"command": "uvx"}, "git": {"command": "uvx", "args": ["x"]}}


@requirement("trust:files:odd")
def test_init_goes_on_beside_a_bomb_and_a_pipe(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    goose = home / ".config" / "goose"
    goose.mkdir(parents=True)
    (goose / "config.yaml").write_text(f"extensions:\n  x: {{}}\n{BOMB}")
    (home / ".codex").mkdir()
    os.mkfifo(home / ".codex" / "config.toml")
    (home / ".cursor").mkdir()
    (home / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": {"one": {"command": "true"}}}))
    assert run(["init", "--yes", "--no-start", "--no-hook"]) in (0, 1)
    own = json.loads((home / ".config" / "foretool" / "mcp.json").read_text())
    assert list(own["mcpServers"]) == ["one"]
    out = "".join(capsys.readouterr())
    assert "aliases" in out and "no regular file" in out
    assert stat.S_ISFIFO((home / ".codex" / "config.toml").stat().st_mode)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _endless(path: Path) -> None:
    path.symlink_to("/dev/zero")


def _folder(path: Path) -> None:
    path.mkdir()


def _huge(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


@requirement("trust:files:odd")
@pytest.mark.parametrize("make", [_pipe, _endless, _folder, _huge], ids=lambda make: make.__name__.strip("_"))
@pytest.mark.parametrize("command", [["status"], ["doctor"], ["misses"], ["list"], ["init", "--yes"]])
def test_a_config_that_is_no_file_is_one_line(
    make: Callable[[Path], None], command: list[str], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = home / ".config" / "foretool" / "mcp.json"
    path.parent.mkdir(parents=True)
    make(path)
    assert run(command) != 0
    err = capsys.readouterr().err
    assert "mcp.json" in err and "Traceback" not in err


def _no_text(path: Path) -> None:
    path.write_bytes(b'{"query": "\xff", "calls": []}\n')


def _nested(path: Path) -> None:
    path.write_bytes(b'{"query": "x", "calls": [], "more": %b1%b}\n' % (b'{"a":' * 100_000, b"}" * 100_000))


@pytest.mark.slow
@requirement("trust:files:odd")
def test_a_file_of_lines_that_cannot_be_read_is_one_line_with_its_name(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = home / "mcp.json"
    echo = {"command": sys.executable, "args": [str(Path(__file__).parents[1] / "support" / "echo_upstream.py")]}
    settings = {"encoder": "none", "storage": "store.sqlite3"}
    config.write_text(json.dumps({"mcpServers": {"echo": echo}, "foretool": settings}))
    run(["doctor", "--config", str(config)])  # from then on its tools are known
    capsys.readouterr()
    odd = ((_endless, "it is larger than 256 MiB; give a part of it"), (_no_text, "line 1: "), (_nested, "line 1: "))
    for make, said in odd:
        lines = home / f"{make.__name__}.jsonl"
        make(lines)
        for command in (["bench"], ["learn", "--from"]):
            assert run([*command, str(lines), "--config", str(config)]) == 1
            err = capsys.readouterr().err
            assert f"{lines}: {said}" in err
            assert len(err.splitlines()) == 1


@requirement("trust:files:odd")
@pytest.mark.usefixtures("open_umask")
def test_copies_of_files_are_closed_to_others_whatever_the_umask(tmp_path: Path) -> None:
    file = tmp_path / "own" / "mcp.json"
    write_changes([FileChange(file, None, b"{}", "is made")], tmp_path / "backups" / "edits")
    folders = [file.parent, tmp_path / "backups", *(tmp_path / "backups").glob("**/")]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}


@requirement("trust:files:odd")
@pytest.mark.usefixtures("open_umask")
def test_the_folders_of_a_store_are_closed_to_others_whatever_the_umask(tmp_path: Path) -> None:
    path = tmp_path / "state" / "foretool" / "store.sqlite3"
    open_store(path).close()
    assert {stat.S_IMODE(each.stat().st_mode) for each in (path.parent, path.parent.parent)} == {0o700}


@requirement("trust:files:odd")
def test_a_link_at_the_storage_path_changes_no_permissions_where_it_leads(tmp_path: Path) -> None:
    shared = tmp_path / "shared.sqlite3"
    open_store(shared).close()
    shared.chmod(0o644)
    link = tmp_path / "link.sqlite3"
    link.symlink_to(shared)
    open_store(link).close()
    assert stat.S_IMODE(shared.stat().st_mode) == 0o644
