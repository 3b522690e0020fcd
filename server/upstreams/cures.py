"""Fits the advice about a server that failed to its entry: how it is started, and what its variables hold.

What a stranger wrote to stderr chooses among pieces of advice, and no word of it is run.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from foretool.server.config.codes import Code
from foretool.server.config.errors import it_or_them
from foretool.server.config.servers import Server
from foretool.server.config.variables import CREDENTIAL
from foretool.server.setup.launches import interpreter_of
from foretool.server.upstreams.causes import PYTHON_SDK, START_WITH, Cause

_NPX_FOLDER: Final = re.compile(r"(?<![\w@./-])(?:file://)?(/[^'\"\n]{0,300}?/_npx/[0-9a-f]{8,64})(?=[/'\"\s]|$)")
_HALF_INSTALLED: Final = re.compile(
    r"ERR_MODULE_NOT_FOUND|MODULE_NOT_FOUND|Cannot find (?:package|module)|ENOTEMPTY|ENOENT|Unexpected end of JSON"
)
_CONTAINERS: Final = ("docker", "podman")
_PLACES: Final = {"uvx": "first", "uv": 'behind "run"', "pipx": 'behind "run"'}
"""Where the options of programs that start a package stand in the args of an entry."""
_UV_TOOL: Final = re.compile(r"/uv/tools/([^/]+)/")
_PIPX_TOOL: Final = re.compile(r"/pipx/venvs/([^/]+)/")
_OTHER_IMAGE: Final = "use another version of its image, or tell its author"
_PLACEHOLDER: Final = re.compile(
    r"(?i)<.*>|.*(?<![a-z])your[-_ ].*|.*[-_ ]here|.*x{4,}.*|change[-_ ]?me|placeholder|todo|\.{3,}"
)
"""What examples in documentation have where a token or key belongs."""
_MAY_BE_CREDENTIAL: Final = (Code.CREDENTIAL_MISSING, Code.CREDENTIAL_REFUSED, Code.SERVER_FAILED, Code.SERVER_SLOW)
"""Causes behind which a credential may be missing that the error does not name: some servers wait for theirs."""


def find_cure(server: Server, cause: Cause, text: str) -> str:
    """Return what the entry of a server that failed needs, "" where its cause says enough. `text`: its stderr, and
    what foretool saw."""
    if advice := _fill_blanks(server, cause.code, text):
        return f"{advice}; if it still takes long, {cause.do}" if cause.code is Code.SERVER_SLOW else advice
    if server.type == "stdio" and (match := PYTHON_SDK.search(text)):
        return _with_sdk(server, match[0])
    if server.type == "stdio" and cause.code is Code.RUNTIME_WRONG:
        return _with_runtime(server, cause.what)
    if folder := _half_installed(text):
        command = f"rm -rf {shlex.quote(folder)}"
        return f"a download of npx was broken off there: delete that folder ({command}), then run foretool doctor again"
    return _complete(server) if cause.code is Code.MODULE_MISSING else ""


def _fill_blanks(server: Server, code: Code, text: str) -> str:
    """Say which variables and headers of an entry hold nothing, or the placeholder of an example."""
    kind, values = ("env", server.env) if server.type == "stdio" else ("headers", server.headers)
    blank = {name: state for name, value in values.items() if (state := _state(value)) and _matters(name, code, text)}
    if not blank:
        return ""
    parts = [f"{name} {state}" for name, state in blank.items()]
    have = "its env has" if kind == "env" else "its headers have"
    return f"{have} {' and '.join(parts)}: fill {it_or_them(parts)}"


def _state(value: str) -> str:
    bare = re.sub(r"(?i)^(?:bearer|basic|token)\b", "", value).strip()
    if not bare:
        return "empty"
    return "with a placeholder" if _PLACEHOLDER.fullmatch(bare) else ""


def _matters(name: str, code: Code, text: str) -> bool:
    """Return whether a failure may come from a variable without a value: the error names it, or it is a credential."""
    if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text):
        return True
    return code in _MAY_BE_CREDENTIAL and bool(CREDENTIAL.search(name))


def _with_sdk(server: Server, text: str) -> str:
    """Say how a server gets the version of the MCP SDK for Python that it was written for, as its entry starts it. What
    others may share is left as it is: they may need the version that is there."""
    program, where = _started_by(server)
    python = server.command if program.startswith("python") else interpreter_of(where)
    version = _other_sdk(python, text)
    if program in ("uvx", "uv"):
        return _put(program, "--with", version, server)
    if program in _CONTAINERS:
        return _OTHER_IMAGE
    if program == "pipx":
        return f'{START_WITH}uvx: "command": "uvx", and "--with", "{version}" first in its args'
    if match := _UV_TOOL.search(where):
        return f"uv tool install {shlex.quote(match[1])} --with {shlex.quote(version)}"
    if match := _PIPX_TOOL.search(where):
        return f"pipx inject --force {shlex.quote(match[1])} {shlex.quote(version)}"
    if program.startswith("python"):
        return (
            f"give it a Python of its own, because others may need the version that is there: python3 -m venv FOLDER,"
            f" then FOLDER/bin/pip install its package and {shlex.quote(version)}, and FOLDER/bin/python as its command"
        )
    if not Path(python).name.startswith("python"):
        return ""  # a shell, or a script that starts the server: uvx knows no such program
    package = _package_of(python, program)
    # Where no package says that it has the program, one of that name is somebody else's.
    said = f'"{program}"' if package == program else f'"--from", "{package or "PACKAGE"}", "{program}"'
    return (
        f"{START_WITH}uvx in a Python of its own, because others may need the version that is there:"
        f' "command": "uvx", and first in its args "--with", "{version}", {said}'
    )


def _with_runtime(server: Server, needed: str) -> str:
    """Say how a server gets the Python or Node.js that it needs, as its entry starts it; "" where it has to be
    installed."""
    program, where = _started_by(server)
    if program in _CONTAINERS:
        return _OTHER_IMAGE
    if (match := re.search(r"Python \D*(3\.\d+)", needed)) is None:
        return ""
    version = match[1]
    if program in ("uvx", "uv"):
        return _put(program, "--python", version, server)
    if program == "pipx":
        return f"install Python {version}, and {_put(program, '--python', f'python{version}', server)}"
    if match := _UV_TOOL.search(where):
        return f"uv tool install --force --python {version} {shlex.quote(match[1])}"
    if match := _PIPX_TOOL.search(where):
        return f"install Python {version}, then pipx reinstall --python python{version} {shlex.quote(match[1])}"
    return ""


def _put(program: str, option: str, value: str, server: Server) -> str:
    """Say where an option goes in the args of an entry. `--python` may stand there once only."""
    if option == "--python" and any(each.partition("=")[0] == option for each in server.args):
        return f'put "{value}" behind the "{option}" in its args, in place of what stands there'
    return f'put "{option}", "{value}" {_PLACES[program]} in its args'


def _started_by(server: Server) -> tuple[str, str]:
    """Return the program that the entry of a server names, and the file behind it."""
    where = os.path.realpath(shutil.which(server.command, path=os.environ.get("PATH")) or server.command)
    return Path(server.entry.command or server.command).name, where


def _other_sdk(python: str, text: str) -> str:
    """Return the requirement of the SDK for a server that fails with the one that its Python has. Where that is not
    known, what it printed tells: few names are new in version 2."""
    found = next(_packages(python, "mcp-*.dist-info"), None)
    if found is not None:
        return "mcp>=2" if found.name.startswith("mcp-1.") else "mcp<2"
    return "mcp>=2" if "mcpserver" in text.lower() else "mcp<2"


def _package_of(python: str, program: str) -> str:
    """Return the package that has a program, "" where none is found."""
    for folder in _packages(python, "*.dist-info"):
        try:
            scripts = (folder / "entry_points.txt").read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue
        if re.search(rf"(?m)^{re.escape(program)}\s*=", scripts):
            return folder.name.partition("-")[0].replace("_", "-")
    return ""


def _packages(python: str, pattern: str) -> Iterator[Path]:
    """Find the folders of installed packages of a Python in its own environment."""
    home = Path(python).parent.parent
    return home.glob(f"lib/python3*/site-packages/{pattern}") if Path(python).is_absolute() else iter(())


def _complete(server: Server) -> str:
    """Say what helps where a launcher brought a package along without something that it needs."""
    program = Path(server.command).name
    if program in ("npx", "bunx", "pnpm", "yarn"):
        return "its package lacks something: choose another version (NAME@VERSION in its args), or tell its author"
    if program in ("uvx", "uv", "pipx"):
        return 'put "--with" and the package that has this module before the server in its args, or tell its author'
    return ""


def _half_installed(text: str) -> str:
    """Return the folder of npx that a broken-off download has left unusable, "" for none."""
    if not _HALF_INSTALLED.search(text):
        return ""
    folders = (match[1] for match in _NPX_FOLDER.finditer(text))
    return next((folder for folder in folders if Path(folder).is_dir()), "")
