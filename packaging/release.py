"""Says what keeps a release from being published; exits with 1 while there is anything.

`python packaging/release.py` before `mcp-publisher publish`, a push to a registry or a submission of the plugin.
`python packaging/release.py --entry dist/foretool.mcpb` also writes `dist/server.json`: the entry of the MCP Registry
with the bundle, whose address and checksum are known only once it is built.
"""

from __future__ import annotations

import json
import re
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PLACEHOLDER: Final = "owner-to-be-chosen"
"""Stands for the owner of the repository, who is not known here."""
MOST_DESCRIPTION: Final = 100
"""Characters that the MCP Registry takes."""


def find_problems(root: Path = ROOT) -> list[str]:
    """Return what is wrong or still open, one line each."""
    version = re.search(r'__version__ = "(.+)"', _read(root / "foretool/_version.py"))
    assert version is not None
    entry = json.loads(_read(root / "packaging/server.json"))
    written = {
        "packaging/server.json": [entry["version"], *(each["version"] for each in entry["packages"])],
        "packaging/mcpb/manifest.json": [json.loads(_read(root / "packaging/mcpb/manifest.json"))["version"]],
        "packaging/claude-code/.claude-plugin/plugin.json": [
            json.loads(_read(root / "packaging/claude-code/.claude-plugin/plugin.json"))["version"]
        ],
    }
    problems = [
        f"{path}: expected the version {version[1]}, found {each}; correct it"
        for path, versions in written.items()
        for each in versions
        if each != version[1]
    ]
    if f"<!-- mcp-name: {entry['name']} -->" not in _read(root / "README.md"):
        problems.append(
            f"README.md: has no line <!-- mcp-name: {entry['name']} -->; the MCP Registry looks for it on PyPI"
        )
    if len(entry["description"]) > MOST_DESCRIPTION:
        problems.append(
            f"packaging/server.json: description: expected at most {MOST_DESCRIPTION} characters; shorten it"
        )
    if PLACEHOLDER in entry["name"]:
        problems.append(
            f"packaging/server.json: name: {PLACEHOLDER!r} stands for the owner; write yours here and in the README"
        )
    return problems


def with_bundle(entry: dict[str, Any], bundle: bytes) -> dict[str, Any]:
    """Return an entry of the MCP Registry that also offers a bundle, which the release on GitHub has."""
    owner = entry["name"].removeprefix("io.github.").partition("/")[0]
    package = {
        "registryType": "mcpb",
        "identifier": f"https://github.com/{owner}/foretool/releases/download/v{entry['version']}/foretool.mcpb",
        "version": entry["version"],
        "fileSha256": sha256(bundle).hexdigest(),
        "transport": {"type": "stdio"},
    }
    return {**entry, "packages": [*entry["packages"], package]}


def write_entry(bundle: Path) -> Path:
    """Write the entry beside the bundle, and return where."""
    entry = json.loads(_read(ROOT / "packaging/server.json"))
    path = bundle.with_name("server.json")
    path.write_text(json.dumps(with_bundle(entry, bundle.read_bytes()), indent=2) + "\n", encoding="utf-8")
    return path


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Say what is open, and write the entry if that is asked for. Returns the exit status."""
    if "--entry" in arguments:
        sys.stdout.write(f"wrote {write_entry(Path(arguments[arguments.index('--entry') + 1]))}\n")
    problems = find_problems()
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
