"""How each agent is started: its program, its config for the stub of the model, and its config for foretool.

Every agent runs in an empty home folder. Its model is the stub, its one server the command that it is given.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

PROMPT = "Compress a folder."
MODEL = "stub"


@dataclass(frozen=True, slots=True)
class Place:
    """Where an agent runs."""

    home: Path
    url: str
    """The stub of the model, without a path."""
    server: Sequence[str]
    """The command of the MCP server."""

    def write(self, path: str, value: object) -> Path:
        """Write a file of the home folder, as JSON unless it is text."""
        file = self.home / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
        return file

    def entry(self, **more: object) -> dict[str, object]:
        """The server as most agents have it in `mcpServers`."""
        return {"command": self.server[0], "args": list(self.server[1:]), **more}


@dataclass(frozen=True, slots=True)
class Start:
    """How to run an agent once: what follows its program, and variables beside HOME and PATH."""

    arguments: Sequence[str]
    env: dict[str, str]
    through: Sequence[str] = ()
    """The command that runs the program, of one with a window."""

    def words(self, program: Path) -> list[str]:
        return [*self.through, str(program), *self.arguments]


def _claude(place: Place) -> Start:
    servers = place.write("servers.json", {"mcpServers": {"foretool": place.entry(type="stdio")}})
    arguments = ["-p", PROMPT, "--mcp-config", str(servers), "--strict-mcp-config", "--allowedTools", "mcp__foretool"]
    quiet = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_TELEMETRY", "DISABLE_AUTOUPDATER")
    key = {"ANTHROPIC_BASE_URL": place.url, "ANTHROPIC_API_KEY": "dummy"}
    return Start([*arguments, "--output-format", "json"], key | dict.fromkeys(quiet, "1"))


def _codex(place: Place) -> Start:
    command, *words = place.server
    config = (
        f'model = "gpt-5.1"\nmodel_provider = "stub"\ncheck_for_update_on_startup = false\n'
        f'[model_providers.stub]\nname = "stub"\nbase_url = "{place.url}/v1"\nenv_key = "STUB_KEY"\n'
        f'wire_api = "responses"\n[analytics]\nenabled = false\n'
        f"[mcp_servers.foretool]\ncommand = {json.dumps(command)}\nargs = {json.dumps(words)}\n"
        f"startup_timeout_sec = 60\nrequired = true\n"
    )
    place.write(".codex/config.toml", config)
    options = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "--json"]
    return Start(["exec", *options, PROMPT], {"STUB_KEY": "dummy"})


def _gemini(place: Place) -> Start:
    settings = {
        "mcpServers": {"foretool": place.entry(trust=True)},
        "security": {"auth": {"selectedType": "gemini-api-key"}},
        "privacy": {"usageStatisticsEnabled": False},
        "general": {"enableAutoUpdate": False},
        "telemetry": {"enabled": False},
    }
    place.write(".gemini/settings.json", settings)
    env = {"GEMINI_API_KEY": "dummy", "GOOGLE_GEMINI_BASE_URL": place.url}
    return Start(["-p", PROMPT, "--yolo", "--skip-trust", "-m", "gemini-2.5-flash"], env)


def _opencode(place: Place) -> Start:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "name": "stub",
        "options": {"baseURL": f"{place.url}/v1", "apiKey": "dummy"},
        "models": {MODEL: {"name": MODEL, "tool_call": True, "limit": {"context": 200_000, "output": 8_000}}},
    }
    config = {
        "provider": {"stub": provider},
        "model": f"stub/{MODEL}",
        "small_model": f"stub/{MODEL}",
        "autoupdate": False,
        "share": "disabled",
        "mcp": {"foretool": {"type": "local", "command": list(place.server), "enabled": True, "timeout": 30_000}},
    }
    place.write(".config/opencode/opencode.json", config)
    env = {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}
    return Start(["run", "--auto", PROMPT], env)


def _copilot(place: Place) -> Start:
    servers = place.write("servers.json", {"mcpServers": {"foretool": place.entry(type="local", tools=["*"])}})
    env = {
        "COPILOT_OFFLINE": "true",
        "COPILOT_PROVIDER_BASE_URL": f"{place.url}/v1",
        "COPILOT_PROVIDER_API_KEY": "dummy",
        "COPILOT_MODEL": MODEL,
    }
    return Start(["-p", PROMPT, "--allow-all-tools", "--additional-mcp-config", f"@{servers}"], env)


def _qwen(place: Place) -> Start:
    place.write(
        ".qwen/settings.json",
        {
            "mcpServers": {"foretool": place.entry(trust=True)},
            "security": {"auth": {"selectedType": "openai"}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
            "telemetry": {"enabled": False},
        },
    )
    env = {"OPENAI_API_KEY": "dummy", "OPENAI_BASE_URL": f"{place.url}/v1", "OPENAI_MODEL": MODEL}
    return Start(["-p", PROMPT, "--yolo", "--auth-type", "openai", "-m", MODEL], env)


def _cline(place: Place) -> Start:
    servers = {"mcpServers": {"foretool": place.entry()}}
    for path in (".cline/data/settings/cline_mcp_settings.json", ".cline/mcp.json"):
        place.write(path, servers)
    provider = {
        "provider": "openai-compatible", "apiKey": "dummy", "model": MODEL, "baseUrl": f"{place.url}/v1",
    }  # fmt: skip
    settings = {"settings": provider, "updatedAt": "2026-01-01T00:00:00.000Z", "tokenSource": "manual"}
    kept = {"version": 1, "lastUsedProvider": "openai-compatible", "providers": {"openai-compatible": settings}}
    place.write(".cline/data/settings/providers.json", kept)
    arguments = ["-P", "openai-compatible", "-k", "dummy", "-m", MODEL, "--auto-approve", "true", "--json", PROMPT]
    return Start(arguments, {"CLINE_TELEMETRY_DISABLED": "1"})


def _continue(place: Place) -> Start:
    command, *words = place.server
    config = (
        f"name: main\nversion: 1.0.0\nschema: v1\n"
        f"models:\n  - name: {MODEL}\n    provider: openai\n    model: {MODEL}\n    apiBase: {place.url}/v1\n"
        f"    apiKey: dummy\n    roles: [chat]\n    capabilities: [tool_use]\n"
        f'mcpServers:\n  - name: "foretool"\n    command: {json.dumps(command)}\n    args: {json.dumps(words)}\n'
    )
    file = place.write(".continue/config.yaml", config)
    telemetry = {"CONTINUE_TELEMETRY_ENABLED": "0", "CONTINUE_CLI_DISABLE_COMMIT_SIGNATURE": "1"}
    return Start(["-p", PROMPT, "--auto", "--config", str(file)], telemetry)


def _code_server(place: Place) -> Start:
    """VS Code in a browser (`bench.agents.window`)."""
    folder = ".config/Code/User"
    place.write(f"{folder}/mcp.json", {"servers": {"foretool": place.entry(type="stdio")}})
    place.write(
        f"{folder}/settings.json", {"telemetry.telemetryLevel": "off", "security.workspace.trust.enabled": False}
    )
    limits = {"maxInputTokens": 100_000, "maxOutputTokens": 4_000}
    model = {"id": MODEL, "name": MODEL, "url": f"{place.url}/v1/chat/completions", "toolCalling": True, **limits}
    group = {"name": "Local", "vendor": "customendpoint", "apiKey": "dummy", "models": [model]}
    place.write(f"{folder}/chatLanguageModels.json", [group])
    place.write(".config/code-server/config.yaml", "auth: none\n")  # else it says that it has made one
    driver = {"PYTHONPATH": str(Path(__file__).parents[2])}
    return Start([PROMPT, MODEL, "done"], driver, (sys.executable, "-m", "bench.agents.window"))


PROGRAMS: dict[str, Callable[[Place], Start]] = {
    "claude": _claude,
    "codex": _codex,
    "gemini": _gemini,
    "opencode": _opencode,
    "copilot": _copilot,
    "qwen": _qwen,
    "cline": _cline,
    "cn": _continue,
    "code-server": _code_server,
}
"""By the name of the program."""
