"""A home folder with the config files of many clients, written by hand in the form of each client's documentation."""

from __future__ import annotations

from pathlib import Path

SECRET = "ghp_0123456789abcdefABCDEF0123456789abcd"

CLAUDE_DESKTOP = f"""{{
  "mcpServers": {{
    "time": {{"command": "uvx", "args": ["mcp-server-time"]}},
    "files": {{
      "command": "npx",
      "args": ["-y", "@modelcontextprotocol/server-filesystem", "/home/ann/Documents"]
    }},
    "github": {{"command": "npx", "args": ["-y", "github-mcp"], "env": {{"GITHUB_TOKEN": "{SECRET}"}}}}
  }},
  "globalShortcut": "Ctrl+Space"
}}
"""

CLAUDE_CODE = """{
  "numStartups": 12,
  "mcpServers": {
    "time": {"type": "stdio", "command": "uvx", "args": ["mcp-server-time"], "env": {}},
    "notion": {"type": "http", "url": "https://mcp.notion.com/mcp"}
  },
  "projects": {
    "/home/ann/shop": {
      "allowedTools": [],
      "mcpServers": {"shop": {"type": "stdio", "command": "./tools/server.sh", "args": []}}
    }
  }
}
"""

CURSOR = """// Cursor
{
\t"mcpServers": {
\t\t// the same as in Claude
\t\t"files": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "${userHome}/src"]},
\t\t"linear": {"url": "https://mcp.linear.app/sse", "headers": {"Authorization": "Bearer ${env:LINEAR_KEY}"}},
\t},
}
"""

VSCODE = """{
    "inputs": [{"type": "promptString", "id": "pg-password", "password": true}],
    "servers": {
        "postgres": {
            "type": "stdio",
            "command": "uvx",
            "args": ["postgres-mcp"],
            "env": {"PGPASSWORD": "${input:pg-password}"}
        }
    }
}
"""

CODEX = """model = "o4"  # keep me

[mcp_servers.docs]
url = "https://docs.example.com/mcp"
bearer_token_env_var = "DOCS_TOKEN"

[mcp_servers.git]  # a comment
command = "uvx"
args = ["mcp-server-git"]
env_vars = ["SSH_AUTH_SOCK"]

[tui]
theme = "dark"
"""

GEMINI = """{
  "theme": "GitHub",
  "mcpServers": {
    "fetch": {"command": "uvx", "args": ["mcp-server-fetch"], "timeout": 30000, "trust": false},
    "remote": {"httpUrl": "https://remote.example.com/mcp", "headers": {"X-Key": "$REMOTE_KEY"}}
  }
}
"""

ZED = """// Zed settings
{
  "theme": "One Dark", // yes
  "context_servers": {
    "memory": {"source": "custom", "command": "npx", "args": ["-y", "server-memory"], "env": {}},
  },
}
"""

GOOSE = """GOOSE_MODEL: gpt-5  # the model
extensions:
  developer:
    bundled: true
    enabled: true
    name: developer
    type: builtin
  slack:
    args:
      - -y
      - slack-mcp
    cmd: npx
    enabled: true
    env_keys:
      - SLACK_TOKEN
    envs: {}
    name: slack
    timeout: 300
    type: stdio
"""

OPENCODE = """{
  "$schema": "https://opencode.ai/config.json",
  "mcp": {
    "sqlite": {"type": "local", "command": ["uvx", "mcp-server-sqlite"], "environment": {"DB": "{env:DB_FILE}"}},
    "off": {"type": "remote", "url": "https://off.example.com/mcp", "enabled": false}
  }
}
"""

CONTINUE = """name: My assistant
mcpServers:
  # search
  - name: brave
    command: npx
    args:
      - "-y"
      - brave-mcp
"""

COPILOT = (
    '{"mcpServers": {"playwright": {"type": "local", "command": "npx", "args": ["@playwright/mcp"], "tools": ["*"]}}}'
)

FILES = {
    ".config/Claude/claude_desktop_config.json": CLAUDE_DESKTOP,
    ".claude.json": CLAUDE_CODE,
    ".claude/settings.json": "{}\n",
    ".cursor/mcp.json": CURSOR,
    ".config/Code/User/mcp.json": VSCODE,
    ".codex/config.toml": CODEX,
    ".gemini/settings.json": GEMINI,
    ".config/zed/settings.json": ZED,
    ".config/goose/config.yaml": GOOSE,
    ".config/opencode/opencode.json": OPENCODE,
    ".continue/config.yaml": CONTINUE,
    ".copilot/mcp-config.json": COPILOT,
    ".codeium/windsurf/mcp_config.json": '{"mcpServers": {"broken": {"command": 5}, "unclosed": ',
}
"""By path below the home folder; the last one is broken."""

NAMES = [
    "brave",
    "docs",
    "fetch",
    "files",
    "git",
    "github",
    "linear",
    "memory",
    "notion",
    "off",
    "playwright",
    "postgres",
    "remote",
    "shop",
    "slack",
    "sqlite",
    "time",
]
"""The different servers in them, without the second `files`."""


def write_home(home: Path) -> dict[Path, bytes]:
    """Write the files; returns what each holds."""
    written = {}
    for name, text in FILES.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        written[path] = path.read_bytes()
    return written
