"""Which clients there are, where each keeps its MCP servers on this system, and how it writes them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

from msgspec import Struct

from foretool.server.setup import dialects
from foretool.server.setup.client_hooks import HOOKS
from foretool.server.setup.dialects import Dialect
from foretool.server.setup.documents import Keys, Kind, value_at

System = Literal["linux", "darwin", "win32"]
Scope = Literal["user", "project"]


class Machine(Struct, frozen=True):
    """Where the user's files are on this machine."""

    system: System
    home: Path
    environ: Mapping[str, str]
    folder: Path
    """The folder in which the command runs."""

    @property
    def config(self) -> Path:
        """Return the folder of settings: `~/.config` or what the environment says."""
        base = self.environ.get("XDG_CONFIG_HOME", "")
        return Path(base) if base.startswith("/") else self.home / ".config"

    @property
    def applications(self) -> Path:
        """Return the folder in which desktop applications keep their settings."""
        if self.system == "darwin":
            return self.home / "Library" / "Application Support"
        if self.system == "win32":
            return Path(self.environ.get("APPDATA") or self.home / "AppData" / "Roaming")
        return self.config


def this_machine() -> Machine:
    """Return the machine that this process runs on."""
    system: System = "darwin" if sys.platform == "darwin" else "win32" if sys.platform == "win32" else "linux"
    return Machine(system, Path.home(), os.environ, Path(os.environ.get("PWD") or "."))


class Switch(Struct, frozen=True):
    """A list of names in a client's config by which servers are switched off."""

    keys: Keys
    """Where it stands."""
    is_on: bool = False
    """It names the only servers that are on; an empty one means nothing."""
    file: Path | None = None
    """The file that has it, if that is not the file of the servers."""


class ClientFile(Struct, frozen=True, kw_only=True):
    client: str
    """The name that options and `--json` use."""
    title: str
    path: Path
    kind: Kind
    keys: Keys
    """Where the servers stand in it."""
    dialect: Dialect
    home: Path
    """Exists if the client is installed."""
    guest: Path | None = None
    """A file in `home` that is there for another client; where nothing else is, the client is not installed."""
    scope: Scope = "user"
    registers: bool = True
    """Whether foretool may be registered here; the other files are only read and relieved of their servers."""
    is_list: bool = False
    """The servers stand in a list, each with its name in it."""
    top: tuple[tuple[str, str], ...] = ()
    """What a new file has to say beside its servers."""
    per_project: Keys = ()
    """Where a file has more servers for each project folder: the key of the projects, that of the servers, and that of
    the names of those that are off in this project, whosever they are."""
    switches: tuple[Switch, ...] = ()
    folder: str = ""
    """The project whose file it is; its programs start there."""
    newer: Keys = ()
    """Where a newer version of the client keeps its servers; an object there says that the file is of that version."""

    @property
    def is_brought(self) -> bool:
        """Whether it is a file of the working folder, which a repository may have brought."""
        return self.scope == "project" and bool(self.folder)

    @property
    def is_installed(self) -> bool:
        if self.guest is None or not self.home.is_dir():
            return self.home.is_dir() or self.path.is_file()
        found = (each for each in self.home.rglob("*") if not each.is_dir())
        return list(islice(found, 2)) != [self.guest]


def client_files(machine: Machine) -> list[ClientFile]:
    """Return the files in which clients of this system may have servers, whether or not they exist."""
    return [*_desktop(machine), *_editors(machine), *_terminals(machine), *_projects(machine)]


def _file(client: str, title: str, path: Path, **more: object) -> ClientFile:
    chosen: dict[str, object] = {
        "kind": "json", "keys": ("mcpServers",), "dialect": dialects.PLAIN, "home": path.parent, **more
    }  # fmt: skip
    return ClientFile(client=client, title=title, path=path, **chosen)  # type: ignore[arg-type]


def _desktop(machine: Machine) -> Iterator[ClientFile]:
    yield _file("claude-desktop", "Claude Desktop", machine.applications / "Claude" / "claude_desktop_config.json")
    goose = machine.config / "goose" / "config.yaml"
    if machine.system == "win32":
        goose = machine.applications / "Block" / "goose" / "config" / "config.yaml"
    yield _file("goose", "goose", goose, kind="yaml", keys=("extensions",), dialect=dialects.GOOSE)


def _editors(machine: Machine) -> Iterator[ClientFile]:
    home = machine.home
    yield _file("cursor", "Cursor", home / ".cursor" / "mcp.json")
    for client, title, folder in (
        ("vscode", "VS Code", "Code"),
        ("vscode-insiders", "VS Code Insiders", "Code - Insiders"),
    ):
        user = machine.applications / folder / "User"
        servers = {"keys": ("servers",), "dialect": dialects.VSCODE, "home": user}
        yield _file(client, title, user / "mcp.json", **servers)
        for profile in sorted(user.glob("profiles/*/mcp.json")):
            yield _file(client, f"{title}, profile {profile.parent.name}", profile, **servers)
        older = {"keys": ("mcp", "servers"), "dialect": dialects.VSCODE, "home": user, "registers": False}
        yield _file(client, f"{title} settings", user / "settings.json", **older)
        cline = user / "globalStorage" / "saoudrizwan.claude-dev" / "settings"
        yield _file("cline", f"Cline in {title}", cline / "cline_mcp_settings.json", dialect=dialects.CLINE)
    yield _file("cline-cli", "Cline CLI", home / ".cline" / "data" / "settings" / "cline_mcp_settings.json",
                dialect=dialects.CLINE, home=home / ".cline")  # fmt: skip
    yield _file("windsurf", "Windsurf", home / ".codeium" / "windsurf" / "mcp_config.json")
    zed = machine.applications / "Zed" if machine.system == "win32" else machine.config / "zed"
    yield _file("zed", "Zed", zed / "settings.json", keys=("context_servers",), dialect=dialects.ZED)
    yield _file("continue", "Continue", home / ".continue" / "config.yaml", kind="yaml", dialect=dialects.CONTINUE,
                is_list=True, top=(("name", "Local Config"), ("version", "1.0.0"), ("schema", "v1")))  # fmt: skip
    yield _file("jetbrains", "JetBrains Junie", home / ".junie" / "mcp" / "mcp.json", home=home / ".junie")


def _terminals(machine: Machine) -> Iterator[ClientFile]:
    home, environ = machine.home, machine.environ
    yield _file("claude-code", "Claude Code", _claude(machine), dialect=dialects.CLAUDE_CODE,
                home=home / ".claude", per_project=("projects", "mcpServers", "disabledMcpServers"))  # fmt: skip
    codex = Path(environ.get("CODEX_HOME") or home / ".codex")
    yield _file("codex", "Codex", codex / "config.toml", kind="toml", keys=("mcp_servers",), dialect=dialects.CODEX)
    yield _file("gemini", "Gemini CLI", home / ".gemini" / "settings.json", dialect=dialects.GEMINI,
                switches=_OF_GEMINI)  # fmt: skip
    yield _file("qwen", "Qwen Code", home / ".qwen" / "settings.json", dialect=dialects.GEMINI, switches=_OF_GEMINI)
    opencode = machine.config / "opencode"
    name = "opencode.jsonc" if (opencode / "opencode.jsonc").is_file() else "opencode.json"
    yield _file("opencode", "opencode", opencode / name, keys=("mcp",), newer=("mcp", "servers"),
                dialect=dialects.OPENCODE)  # fmt: skip
    yield _file("copilot", "Copilot CLI", home / ".copilot" / "mcp-config.json", dialect=dialects.COPILOT,
                guest=home / Path(HOOKS["vscode"].file).relative_to("~"))  # fmt: skip


_OF_GEMINI: Final = (Switch(("mcp", "excluded")), Switch(("mcp", "allowed"), is_on=True))


def _claude(machine: Machine) -> Path:
    return Path(machine.environ.get("CLAUDE_CONFIG_DIR") or machine.home) / ".claude.json"


def _switches(client: str, machine: Machine) -> tuple[Switch, ...]:
    """Return the lists that switch the servers of the working folder."""
    if client == "claude-code":
        project = ("projects", str(machine.folder))
        return (
            Switch((*project, "disabledMcpjsonServers"), file=_claude(machine)),
            Switch((*project, "enabledMcpjsonServers"), is_on=True, file=_claude(machine)),
        )
    return _OF_GEMINI if client == "gemini" else ()


def proxy_file(path: Path, data: Any) -> ClientFile | None:
    """Return the config of another proxy, which is only read; None if it holds no servers. `data`: what it says."""
    places: tuple[Keys, ...] = (("mcpServers",), ("servers",), ("mcp", "servers"))
    keys = next((each for each in places if value_at(data, each)), None)
    if keys is None:
        return None
    more: dict[str, object] = {"keys": keys, "dialect": dialects.PROXY, "scope": "project", "registers": False}
    return _file("file", path.name, path, kind=KINDS.get(path.suffix, "json"), **more)


KINDS: Final[dict[str, Kind]] = {".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
_PROJECT_FILES: Final[tuple[tuple[str, str, str, str, Dialect], ...]] = (
    ("claude-code", "Claude Code, this project", ".mcp.json", "mcpServers", dialects.CLAUDE_CODE),
    ("cursor", "Cursor, this project", ".cursor/mcp.json", "mcpServers", dialects.PLAIN),
    ("vscode", "VS Code, this project", ".vscode/mcp.json", "servers", dialects.VSCODE),
    ("gemini", "Gemini CLI, this project", ".gemini/settings.json", "mcpServers", dialects.GEMINI),
    ("opencode", "opencode, this project", "opencode.json", "mcp", dialects.OPENCODE),
    ("jetbrains", "JetBrains Junie, this project", ".junie/mcp/mcp.json", "mcpServers", dialects.PLAIN),
)


def _projects(machine: Machine) -> Iterator[ClientFile]:
    """Yield the files of the working folder, which may be a cloned repository: read only where the user says so."""
    if machine.folder == machine.home:
        return
    for client, title, path, key, dialect in _PROJECT_FILES:
        more = {"keys": (key,), "dialect": dialect, "scope": "project", "registers": False, "home": machine.folder}
        yield _file(
            client, title, machine.folder / path, **more,
            folder=str(machine.folder.absolute()), switches=_switches(client, machine),
        )  # fmt: skip
