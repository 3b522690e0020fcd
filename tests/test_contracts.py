"""The contracts on imports hold, and each of them fails where the code breaks it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from requirements import requirement

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("server", "retrieval", "storage", "learning", "desk", "fleet")

pytestmark = pytest.mark.skipif(not (ROOT / "pyproject.toml").is_file(), reason="needs the source tree")

BREACHES = [
    ("folders", "retrieval/words.py", "import foretool.server.config.jsonc"),
    ("rooms", "server/catalog/names.py", "import foretool.server.upstreams.eras"),
    ("rooms", "server/protocol/headers.py", "def late():\n    import foretool.server.clients.session"),
    ("circles", "server/protocol/jsonrpc.py", "import foretool.server.protocol.headers"),
    (
        "circles",
        "retrieval/ranking.py",
        "TYPE_CHECKING = False\nif TYPE_CHECKING:\n    import foretool.retrieval.corpus",
    ),
    ("pure-retrieval", "retrieval/scoring.py", "import time"),
    ("pure-retrieval", "retrieval/encoders/base.py", "import subprocess"),
    ("pure-retrieval", "retrieval/itr.py", "import foretool.storage.opening"),
    ("sql", "server/clients/session.py", "import sqlite3"),
    ("sql", "server/app.py", "import foretool.storage.sqlite.database"),
    ("papers", "server/discovery/agent_step.py", "import bench.papers.published.itr"),
    ("papers", "learning/training/dtdr.py", "import bench.papers.published.dtdr"),
    ("folders", "server/catalog/models.py", "import foretool.learning.rankers.dtdr"),
    ("folders", "server/ledger/fixes.py", "import foretool.desk.replay.effect"),
    ("folders", "learning/run.py", "import foretool.desk.replay.past"),
    ("folders", "server/serve.py", "def late():\n    import foretool.fleet.telemetry.watching"),
    ("folders", "retrieval/pipeline.py", "def late():\n    import foretool.learning.training.dtdr"),
    ("pure-retrieval", "learning/training/dtdr.py", "import sqlite3"),
]
"""Contract, a file, and the lines that break the contract there."""


def package(folder: Path, copied: str = "") -> Path:
    """The package as it is installed, made of links to the checkout; the file `copied` is a copy."""
    found = folder / "foretool"
    found.mkdir()
    for name in ("__init__.py", "__main__.py", "_version.py"):
        (found / name).symlink_to(ROOT / "foretool" / name)
    for name in FOLDERS:
        if copied.partition("/")[0] == name:
            shutil.copytree(ROOT / name, found / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (found / name).symlink_to(ROOT / name)
    return found


def contracts() -> list[dict[str, Any]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: list[dict[str, Any]] = project["tool"]["importlinter"]["contracts"]
    return found


def lint(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [Path(sys.executable).with_name("lint-imports"), "--no-logo", "--no-cache", *options]
    return subprocess.run(
        [*map(str, command), "--config", str(ROOT / "pyproject.toml")], cwd=folder, capture_output=True, text=True
    )


@requirement("layout")
def test_every_contract_has_a_breach_and_holds(tmp_path: Path) -> None:
    package(tmp_path)
    assert {each["id"] for each in contracts()} == {contract for contract, _, _ in BREACHES}
    done = lint(tmp_path)
    assert done.returncode == 0, done.stdout
    assert f"{len(contracts())} kept, 0 broken" in done.stdout


@pytest.mark.slow
@requirement("layout")
@pytest.mark.parametrize(("contract", "file", "lines"), BREACHES)
def test_a_breach_breaks_its_contract(contract: str, file: str, lines: str, tmp_path: Path) -> None:
    broken = package(tmp_path, file) / file
    broken.write_text(f"{broken.read_text(encoding='utf-8')}\n{lines}\n", encoding="utf-8")
    done = lint(tmp_path, "--contract", contract)
    assert done.returncode == 1, done.stdout
    assert "0 kept, 1 broken" in done.stdout


@requirement("layout")
def test_every_room_of_the_server_stands_in_the_contract() -> None:
    (rooms,) = (each for each in contracts() if each["id"] == "rooms")
    named = {room for layer in rooms["layers"] for room in layer.replace("|", " ").split()}
    found = {path.stem for path in (ROOT / "server").iterdir() if path.stem not in ("__init__", "__pycache__")}
    assert named == found
