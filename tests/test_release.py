"""What is published besides the wheel: the bundle, the plugin, the registry's entry, the image."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
import zipfile
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import node
import pytest

from foretool.server.commands.group import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
PACKAGING = ROOT / "packaging"

pytestmark = pytest.mark.skipif(not PACKAGING.is_dir(), reason="needs a checkout")


def load(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, PACKAGING / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def read(path: str) -> Any:
    return json.loads((PACKAGING / path).read_text(encoding="utf-8"))


def test_nothing_but_the_owner_keeps_a_release_back_and_that_does() -> None:
    problems = load("release").find_problems()
    assert [problem.partition(";")[0] for problem in problems] == [
        "packaging/server.json: name: 'owner-to-be-chosen' stands for the owner"
    ]
    done = subprocess.run([sys.executable, str(PACKAGING / "release.py")], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines() == problems


@pytest.mark.parametrize(
    ("path", "old", "new", "found"),
    [
        (
            "packaging/server.json",
            '"version": "0.1.0"',
            '"version": "0.0.9"',
            "expected the version 0.1.0, found 0.0.9",
        ),
        ("packaging/mcpb/manifest.json", '"version": "0.1.0"', '"version": "2"', "manifest.json: expected the version"),
        ("packaging/server.json", "One MCP server", "One MCP server " * 9, "description: expected 1 to 100 characters"),
        ("README.md", "<!-- mcp-name: ", "<!-- ", "has no line <!-- mcp-name: "),
    ],
)
def test_a_stale_or_wrong_entry_is_found(tmp_path: Path, path: str, old: str, new: str, found: str) -> None:
    shutil.copytree(PACKAGING, tmp_path / "packaging")
    (tmp_path / "foretool").mkdir()
    shutil.copy(ROOT / "foretool" / "_version.py", tmp_path / "foretool")
    shutil.copy(ROOT / "README.md", tmp_path)
    text = (tmp_path / path).read_text(encoding="utf-8")
    assert old in text
    (tmp_path / path).write_text(text.replace(old, new), encoding="utf-8")
    assert any(found in problem for problem in load("release").find_problems(tmp_path))


BUNDLE = {
    "registryType": "mcpb",
    "identifier": "https://github.com/o/foretool/releases/download/v1/foretool.mcpb",
    "version": "1",
    "fileSha256": "0" * 64,
    "transport": {"type": "stdio"},
}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"$schema": "https://elsewhere/"}, "$schema: expected"),
        ({"name": "foretool"}, "name: expected a name such as"),
        ({"name": "io.github.o/-foretool"}, "name: expected a name such as"),
        ({"name": "io.github.o/fore/tool"}, "name: expected a name such as"),
        ({"title": " "}, "title: expected 1 to 100 characters"),
        ({"description": ""}, "description: expected 1 to 100 characters"),
        ({"version": "latest"}, "version: expected one version"),
        ({"version": "^1.2.3"}, "version: expected one version"),
        ({"version": "1.2.x"}, "version: expected one version"),
        ({"version": "1 - 2"}, "version: expected one version"),
        ({"packages": [BUNDLE | {"registryType": "apt"}]}, "packages[0].registryType"),
        ({"packages": [BUNDLE | {"identifier": "a b"}]}, "packages[0].identifier"),
        ({"packages": [BUNDLE | {"identifier": "http://github.com/mcp"}]}, "packages[0].identifier"),
        ({"packages": [BUNDLE | {"identifier": "https://github.com/o/foretool.zip"}]}, "packages[0].identifier"),
        ({"packages": [BUNDLE | {"fileSha256": "F" * 64}]}, "packages[0].fileSha256"),
        ({"packages": [{key: BUNDLE[key] for key in BUNDLE if key != "fileSha256"}]}, "packages[0].fileSha256"),
        ({"packages": [BUNDLE | {"version": ">=1"}]}, "packages[0].version"),
        ({"packages": [BUNDLE | {"transport": {"type": "stdio", "url": "https://h"}}]}, "packages[0].transport"),
        ({"packages": [BUNDLE | {"registryType": "pypi", "registryBaseUrl": "https://test.pypi.org"}]}, "registryBase"),
        ({"packages": [BUNDLE | {"runtimeArguments": []}]}, "packages[0].runtimeHint"),
        ({"packages": [BUNDLE | {"packageArguments": [{"value": "serve"}]}]}, "packageArguments[0]: expected the type"),
        ({"packages": [BUNDLE | {"packageArguments": [{"type": "positional"}]}]}, "expected value or valueHint"),
        ({"packages": [BUNDLE | {"packageArguments": [{"type": "named", "name": "--a b"}]}]}, "a name without blanks"),
        ({"packages": [BUNDLE | {"packageArguments": [{"type": "named", "name": "-a", "value": "-a=1"}]}]}, "repeats"),
        ({"packages": [BUNDLE | {"environmentVariables": [{"format": "path"}]}]}, "environmentVariables[0]"),
    ],
)  # fmt: skip
def test_what_the_registry_would_refuse_is_found(change: dict[str, Any], problem: str) -> None:
    entry = read("server.json")
    assert load("release").find_entry_problems(entry | {"packages": [*entry["packages"], BUNDLE]}) == []
    assert [each for each in load("release").find_entry_problems(entry | change) if problem in each]


def test_every_command_that_is_started_exists() -> None:
    server = read("claude-code/.mcp.json")["mcpServers"]["foretool"]
    (hook,) = read("claude-code/hooks/hooks.json")["hooks"]["UserPromptSubmit"][0]["hooks"]
    bundle = read("mcpb/manifest.json")["server"]["mcp_config"]["args"]
    (published,) = read("server.json")["packages"][0]["packageArguments"]
    started = {server["args"][0], hook["command"].split()[1], bundle[bundle.index("foretool") + 1], published["value"]}
    assert started == {"serve", "hint"}
    assert started <= set(COMMANDS)


def test_a_bundle_has_the_wheel_and_a_project_that_names_it(tmp_path: Path) -> None:
    wheel = tmp_path / "foretool-1.2.3-py3-none-any.whl"
    wheel.write_bytes(b"wheel")
    load("bundle").pack(wheel, tmp_path / "foretool.mcpb")
    with zipfile.ZipFile(tmp_path / "foretool.mcpb") as packed:
        assert sorted(packed.namelist()) == ["LICENSE", wheel.name, "main.py", "manifest.json", "pyproject.toml"]
        assert json.loads(packed.read("manifest.json"))["server"]["entry_point"] in packed.namelist()
        assert f'path = "{wheel.name}"' in packed.read("pyproject.toml").decode()


def test_the_image_runs_without_root_and_writes_to_its_volume_alone() -> None:
    text = (PACKAGING / "Dockerfile").read_text(encoding="utf-8")
    instructions = [line for line in text.splitlines() if re.match("[A-Z]+ ", line)]
    last = text.rpartition("FROM ")[2]
    assert "USER 10001" in last
    assert last.index("USER ") > last.index("useradd")
    assert {line.split()[0] for line in instructions} <= {
        "FROM", "WORKDIR", "COPY", "RUN", "USER", "ENV", "VOLUME", "EXPOSE", "ENTRYPOINT", "CMD"
    }  # fmt: skip
    written = re.findall(r"(?:HOME|FORETOOL_STORAGE|FORETOOL_SOCKETS)=(\S+)", last)
    assert len(written) == 3
    assert all(path.startswith("/data") for path in written)


def test_the_entry_with_the_bundle_has_its_checksum_and_says_where_it_lies(tmp_path: Path) -> None:
    bundle = tmp_path / "foretool.mcpb"
    bundle.write_bytes(b"bundle")
    command = [sys.executable, str(PACKAGING / "release.py"), "--entry", str(bundle)]
    assert "wrote" in subprocess.run(command, capture_output=True, text=True, check=False).stdout
    written = json.loads((tmp_path / "server.json").read_text(encoding="utf-8"))
    wheel, packed = written["packages"]
    assert {**written, "packages": [wheel]} == read("server.json")
    assert packed["fileSha256"] == hashlib.sha256(b"bundle").hexdigest()
    assert packed["identifier"].endswith(f"/foretool/releases/download/v{written['version']}/foretool.mcpb")
    assert (packed["registryType"], packed["transport"]) == ("mcpb", {"type": "stdio"})


def test_the_formula_is_what_the_project_says(tmp_path: Path) -> None:
    made = load("formula")
    assert made.main(["--check"]) == 0, "stale; run python packaging/formula.py"
    text = made.FORMULA.read_text(encoding="utf-8")
    assert f"foretool-{read('server.json')['version']}.tar.gz" in text and made.NO_CHECKSUM in text
    assert text.count("\n  end") == text.count("  def ") + text.count(" do\n")
    sdist = tmp_path / "foretool.tar.gz"
    sdist.write_bytes(b"sdist")
    assert hashlib.sha256(b"sdist").hexdigest() in made.render(hashlib.sha256(b"sdist").hexdigest())
    started = re.findall(r'bin/?"?/?foretool[" ,]+([a-z]+|--\w+)\b', text)
    assert {each for each in started if not each.startswith("--")} <= set(COMMANDS)


def test_a_formula_that_brew_would_refuse_is_not_made(tmp_path: Path) -> None:
    (tmp_path / "foretool").mkdir()
    shutil.copy(ROOT / "foretool" / "_version.py", tmp_path / "foretool")
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8").replace("fore-sees the tool", "fore-sees " * 20)
    (tmp_path / "pyproject.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match="expected 80 characters"):
        load("formula").render(root=tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_image_builds_from_the_files_that_its_ignore_file_lets_in(tmp_path: Path) -> None:
    lines = (PACKAGING / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    allowed = [line[1:] for line in lines if line.startswith("!")]
    assert lines[0] == "*" and "pyproject.toml" in allowed
    for name in allowed:
        source, target = ROOT / name, tmp_path / "source" / name
        target.parent.mkdir(exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, target)
    build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(tmp_path / "source")]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        assert {"foretool/server/cli.py", "foretool/retrieval/gate.json"} <= {*packed.namelist()}


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.timeout(300)
def test_the_validator_of_bundles_takes_the_manifest(tmp_path: Path) -> None:
    validator = [node.package("@anthropic-ai/mcpb", "2.1.2", "mcpb"), "validate"]
    run = partial(subprocess.run, env=node.environment(), capture_output=True)
    run([*validator, str(PACKAGING / "mcpb" / "manifest.json")], check=True)
    manifest = read("mcpb/manifest.json")
    del manifest["server"]["entry_point"]
    (tmp_path / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    assert run([*validator, str(tmp_path / "manifest.json")], check=False).returncode != 0
