"""Prompt hooks as JavaScript modules, for clients that run plugins in place of commands.

A module is a file of ours in the client's folder of plugins. It runs `foretool hint` with the prompt as other clients'
hooks do, waits for at most two seconds, and adds what the hook prints to what the model reads.
"""

from __future__ import annotations

import json
import shlex
from typing import Final

from foretool.server.setup.documents import DocumentError

MARK: Final = "// foretool wrote this file;"
"""How a module of ours begins. A file that begins otherwise is the user's."""

_HEAD: Final = (
    MARK
    + """ it names likely tools to the model at each prompt.
// To remove it: foretool hint --remove --client {client}
import {{ spawn }} from "node:child_process"

const COMMAND = {command}

function ask(prompt, session, folder) {{
  return new Promise((resolve) => {{
    const hook = spawn(COMMAND[0], COMMAND.slice(1), {{ stdio: ["pipe", "pipe", "ignore"] }})
    const late = setTimeout(() => hook.kill("SIGKILL"), 2000)
    let said = ""
    const end = () => {{ clearTimeout(late); resolve(said.trim()) }}
    hook.stdout.on("data", (bytes) => {{ said += bytes }})
    hook.stdin.on("error", () => {{}})
    hook.on("error", end)
    hook.on("close", end)
    hook.stdin.end(JSON.stringify({{ prompt, session_id: session, cwd: folder }}))
  }})
}}
"""
)

OPENCODE: Final = """
export const foretool = async ({ directory }) => ({
  "chat.message": async (input, output) => {
    const texts = output.parts.filter((part) => part.type === "text" && !part.synthetic)
    if (!texts.length) return
    const said = await ask(texts.map((part) => part.text).join("\\n"), input.sessionID, directory)
    const last = texts[texts.length - 1]
    if (said) output.parts.push({ ...last, id: last.id + "z", text: said, synthetic: true })
  },
})
"""
"""`chat.message` may add parts to the user's message; a synthetic one is shown to the model and not to the user."""


def write_module(client: str, body: str, typed: str, text: str) -> str:
    """Return the text of a module that runs a command. Raises `DocumentError` if `text`, the file as it is, is not
    ours."""
    _check(text)
    return _HEAD.format(client=client, command=json.dumps(shlex.split(typed))) + body


def empty_module(text: str) -> str:
    """Return what is left of a file of ours: nothing. A file of the user stays as it is."""
    return "" if text.startswith(MARK) else text


def _check(text: str) -> None:
    if text.strip() and not text.startswith(MARK):
        raise DocumentError("expected a file of foretool, found another plugin; give that one another name")
