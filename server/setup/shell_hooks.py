"""The hooks that clients run behind a command of their shell, and that tell foretool what went round it.

What each client sends is read by `hints/shell_shape`. None of these hooks says anything to the model, and where a
client can go on meanwhile (`async`), it does. They are put into files and taken out again as prompt hooks are.
"""

from __future__ import annotations

from typing import Final

from foretool.server.setup.prompt_hooks import HOOKS, ClientHook, Settings

_DOES: Final = "it tells foretool which programs the shell ran, without their arguments"

_OPENCODE: Final = """
export const foretoolShell = async ({ directory }) => ({
  "tool.execute.after": async (input) => {
    if (input.tool === "bash") report(input.tool, { command: input.args?.command }, input.sessionID, directory)
  },
})

function report(tool, args, session, folder) {
  const hook = spawn(COMMAND[0], COMMAND.slice(1), { stdio: ["pipe", "ignore", "ignore"] })
  const late = setTimeout(() => hook.kill("SIGKILL"), 2000)
  hook.on("error", () => clearTimeout(late))
  hook.on("close", () => clearTimeout(late))
  hook.stdin.on("error", () => {})
  hook.stdin.end(JSON.stringify({ tool_name: tool, tool_input: args, session_id: session, cwd: folder }))
}
"""
"""`tool.execute.after` gets the arguments of the tool that ran. Nothing waits for the hook."""


def _meanwhile(typed: str) -> Settings:
    return {"type": "command", "command": typed, "timeout": 2, "async": True}


SHELL_HOOKS: Final = {
    each.client: each
    for each in (
        ClientHook(
            "claude-code", "Claude Code", "~/.claude/settings.json", "PostToolUse", _meanwhile,
            matcher="Bash", does=_DOES,
        ),
        ClientHook(
            "codex", "Codex", "~/.codex/hooks.json", "PostToolUse", HOOKS["codex"].entry, HOOKS["codex"].after,
            matcher="Bash", does=_DOES,
        ),
        ClientHook(
            "gemini", "Gemini CLI", "~/.gemini/settings.json", "AfterTool", HOOKS["gemini"].entry,
            matcher="run_shell_command", does=_DOES,
        ),
        ClientHook(
            "qwen", "Qwen Code", "~/.qwen/settings.json", "PostToolUse", HOOKS["qwen"].entry,
            matcher="run_shell_command", does=_DOES,
        ),
        ClientHook(
            "copilot", "Copilot CLI", "~/.copilot/hooks/foretool.json", "postToolUse", HOOKS["copilot"].entry,
            is_grouped=False, top=HOOKS["copilot"].top, does=_DOES,
        ),
        ClientHook(
            "opencode", "opencode", "~/.config/opencode/plugins/foretool-shell.js", "tool.execute.after",
            HOOKS["opencode"].entry, HOOKS["opencode"].after, module=_OPENCODE, does=_DOES,
        ),
    )
}  # fmt: skip
"""By the name of the client."""
