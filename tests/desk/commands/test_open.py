"""`foretool open`: a copy in Datasette that one person can see, and the way to Datasette where it is missing."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import stat
from pathlib import Path

import pytest
from command_fakes import fill, write_config

from foretool.server.commands.group import run
from foretool.server.config.loader import load
from foretool.storage.opening import copy_store
from foretool.storage.stores import StorageError

QUERIES = re.findall(
    r"```sql\n(.+?)```", (Path(__file__).parents[3] / "docs" / "data.md").read_text("utf-8"), re.DOTALL
)
RECORDER = """#!/bin/sh
[ "$1" = --version ] && echo "datasette, version $VERSION" && exit
for word; do
    case "$word" in
        *foretool.db) cp "$word" "$KEPT"; stat -c %a "$word" "$(dirname "$word")" > "$KEPT.modes";;
        *metadata.json) cp "$word" "$KEPT.json";;
    esac
done
echo "$@" > "$KEPT.words"
"""


def test_without_datasette_the_ways_to_it_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert run(["open", "--config", str(write_config(tmp_path))]) == 1
    assert "uv tool install datasette" in capsys.readouterr().err


@pytest.mark.parametrize(("version", "option"), [("0.65.5", "--metadata"), ("1.0a2", "--config")])
def test_datasette_gets_a_private_copy_and_lets_one_person_in(
    version: str, option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, program, kept = write_config(tmp_path), tmp_path / "bin" / "datasette", tmp_path / "kept"
    fill(path).close()
    program.parent.mkdir()
    program.write_text(RECORDER)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("KEPT", str(kept))
    monkeypatch.setenv("VERSION", version)
    assert run(["open", "--no-browser", "--port", "0", "--config", str(path)]) == 0
    words = (tmp_path / "kept.words").read_text().split()
    assert {"--immutable", "--root", option} <= set(words) and "--open" not in words
    assert words[words.index("--host") + 1] == "127.0.0.1"
    assert json.loads((tmp_path / "kept.json").read_text())["allow"] == {"id": "root"}
    assert (tmp_path / "kept.modes").read_text().split() == ["600", "700"]
    assert sqlite3.connect(kept).execute("SELECT count(*) FROM calls").fetchone()[0] > 0
    assert not Path(words[words.index("--immutable") + 1]).exists()


def test_the_page_has_five_queries() -> None:
    assert len(QUERIES) == 5


@pytest.mark.parametrize("query", QUERIES)
def test_each_query_of_the_page_finds_something(query: str, tmp_path: Path) -> None:
    import time

    from bench.storage.ledger import write_ledger
    from foretool.server.recording.costs import add_next
    from foretool.storage.opening import open_store

    config = write_ledger(tmp_path / "log", 500, 50, 20.0, time.time())
    with open_store(load(config).storage) as store:
        while add_next(store, time.time(), 200):
            pass
    copy = tmp_path / "copy.db"
    copy_store(load(config).storage, copy)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    found = sqlite3.connect(copy).execute(query)
    assert len(found.fetchall()) > 0 or "best" in query  # of these records each search has found its tool
    assert {name for name, *_ in found.description}


def test_a_copy_never_replaces_a_file(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    fill(path).close()
    (tmp_path / "mine").write_text("mine")
    with pytest.raises(StorageError, match="cannot be copied"):
        copy_store(load(path).storage, tmp_path / "mine")
    assert (tmp_path / "mine").read_text() == "mine"
