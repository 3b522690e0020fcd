"""Says what keeps a release from being published; exits with 1 while there is anything.

`python packaging/release.py` before `mcp-publisher publish`, a push to a registry or a submission of the plugin.
`python packaging/release.py --entry dist/foretool.mcpb` also writes `dist/server.json`: the entry of the MCP Registry
with the bundle, whose address and checksum are known only once it is built.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PLACEHOLDER: Final = "owner-to-be-chosen"
"""Stands for the owner of the repository, who is not known here."""
SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
"""What the entry is written for. Its rules that matter here are in `find_entry_problems`, with those that the MCP
Registry checks beside it: names, versions, and where a bundle lies."""
MOST: Final = {"name": 200, "title": 100, "description": 100, "version": 255}
"""Characters that the MCP Registry takes."""
_NAME: Final = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9.-]*[a-zA-Z0-9]/[a-zA-Z0-9][a-zA-Z0-9._-]*[a-zA-Z0-9]")
_RANGE: Final = re.compile(r"latest|[\^~<>=].*|.* - .*|.*\|\|.*|(?:[\dv]+\.)*[xX*](?:\..*)?")
_FORMATS: Final = ("string", "number", "boolean", "filepath")


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
    problems += (f"packaging/server.json: {each}; correct it" for each in find_entry_problems(entry))
    if PLACEHOLDER in entry["name"]:
        problems.append(
            f"packaging/server.json: name: {PLACEHOLDER!r} stands for the owner; write yours here and in the README"
        )
    return problems


def find_entry_problems(entry: dict[str, Any]) -> list[str]:
    """Return what the MCP Registry would refuse in an entry, one line each."""
    problems = []
    if entry.get("$schema") != SCHEMA:
        problems.append(f"$schema: expected {SCHEMA}")
    for key, most in MOST.items():
        value = entry.get(key, "" if key != "title" else "-")
        if not isinstance(value, str) or not value.strip() or len(value) > most:
            problems.append(f"{key}: expected 1 to {most} characters")
    if not _NAME.fullmatch(str(entry.get("name", ""))):
        problems.append("name: expected a name such as io.github.owner/name")
    if _RANGE.fullmatch(str(entry.get("version", ""))):
        problems.append("version: expected one version, found a range")
    for index, package in enumerate(entry.get("packages", [])):
        problems += (f"packages[{index}].{each}" for each in _find_package_problems(package))
    return problems


def _find_package_problems(package: dict[str, Any]) -> Iterator[str]:
    kind, identifier = package.get("registryType"), package.get("identifier")
    if kind not in ("pypi", "mcpb"):
        yield f"registryType: expected pypi or mcpb, found {kind}"
    if not isinstance(identifier, str) or not identifier or re.search(r"\s", identifier):
        yield "identifier: expected a name or an address without blanks"
    elif kind == "mcpb" and not re.match(r"https://(?:github|gitlab)\.com/(?=.*mcp)", identifier):
        yield "identifier: expected the https address of a release that says mcp"
    if kind == "pypi" and package.get("registryBaseUrl", "https://pypi.org") != "https://pypi.org":
        yield "registryBaseUrl: expected https://pypi.org"
    if not package.get("version") or _RANGE.fullmatch(str(package["version"])):
        yield "version: expected one version"
    checksum = package.get("fileSha256")
    if (kind == "mcpb" or checksum is not None) and not re.fullmatch("[a-f0-9]{64}", str(checksum)):
        yield "fileSha256: expected 64 hexadecimal digits"
    if package.get("transport") != {"type": "stdio"}:
        yield 'transport: expected {"type": "stdio"}'
    yield from _find_input_problems(package)


def _find_input_problems(package: dict[str, Any]) -> Iterator[str]:
    if "runtimeArguments" in package and "runtimeHint" not in package:
        yield "runtimeHint: is missing beside runtimeArguments"
    for key in ("runtimeArguments", "packageArguments"):
        for index, argument in enumerate(package.get(key, [])):
            if problem := _argument_problem(argument):
                yield f"{key}[{index}]: {problem}"
    for index, variable in enumerate(package.get("environmentVariables", [])):
        if not variable.get("name") or variable.get("format", "string") not in _FORMATS:
            yield f"environmentVariables[{index}]: expected a name, and one of the formats {', '.join(_FORMATS)}"


def _argument_problem(argument: dict[str, Any]) -> str:
    if argument.get("type") == "positional":
        return "" if "value" in argument or "valueHint" in argument else "expected value or valueHint"
    if argument.get("type") != "named":
        return "expected the type positional or named"
    name = argument.get("name", "")
    if not name or re.search(r"[<> $]", name):
        return "expected a name without blanks, <, > and $"
    starts = [key for key in ("value", "default") if str(argument.get(key, "")).startswith(name)]
    return f"{starts[0]} repeats the name" if starts else ""


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
    problems: list[str] = []
    if "--entry" in arguments:
        written = write_entry(Path(arguments[arguments.index("--entry") + 1]))
        sys.stdout.write(f"wrote {written}\n")
        problems += (f"{written}: {each}; correct it" for each in find_entry_problems(json.loads(_read(written))))
    problems += find_problems()
    for problem in problems:
        sys.stderr.write(f"{problem}\n")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
