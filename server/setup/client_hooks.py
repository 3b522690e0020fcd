"""The hooks of clients, at a prompt and behind a command of their shell: where each client keeps them, in which form,
and how ours get in and out.

Only clients are here whose prompt hook can put words before the model. Windsurf's (`pre_user_prompt`) can only block a
prompt, and Cline's command line drops what such a hook says. Cursor's documentation says the same of its own, but its
client reads `additional_context` (seen by others in 3.20.17). opencode runs no commands but modules. VS Code reads the
folder of Copilot CLI too, in the same form, so each runs the hook of the other, which then says nothing
(`server/hint`).

Clients that run plugins in place of commands get a JavaScript module, a file of ours in their folder of plugins. It
runs `foretool hint` with the prompt as other clients' hooks do, waits for at most two seconds, and adds what the hook
prints to what the model reads.

What a shell hook sends is read by `hints/shell_shape`. None of these hooks says anything to the model, and where a
client can go on meanwhile (`async`), it does.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from foretool.server.config import jsonc
from foretool.server.config.files import read_regular
from foretool.server.setup.changes import FileChange
from foretool.server.setup.documents import DocumentError, JsonDocument, value_at

_MARK: Final = "// foretool wrote this file;"
"""How a module of ours begins. A file that begins otherwise is the user's."""

_HEAD: Final = (
    _MARK
    + """ {does}.
// To remove it: foretool hint --remove{option} --client {client}
import {{ spawn }} from "node:child_process"

const COMMAND = {command}
"""
)
_NAMES: Final = "it names likely tools to the model at each prompt"

_OPENCODE: Final = """
function ask(prompt, session, folder) {
  return new Promise((resolve) => {
    const hook = spawn(COMMAND[0], COMMAND.slice(1), { stdio: ["pipe", "pipe", "ignore"] })
    const late = setTimeout(() => hook.kill("SIGKILL"), 2000)
    let said = ""
    const end = () => { clearTimeout(late); resolve(said.trim()) }
    hook.stdout.on("data", (bytes) => { said += bytes })
    hook.stdin.on("error", () => {})
    hook.on("error", end)
    hook.on("close", end)
    hook.stdin.end(JSON.stringify({ prompt, session_id: session, cwd: folder }))
  })
}

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
_REPORTS: Final = "it tells foretool which programs the shell ran, without their arguments"

_OPENCODE_SHELL: Final = """
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


def _write_module(hook: ClientHook, typed: str, text: str) -> str:
    """Return the text of a module that runs a command. Raises `DocumentError` if `text`, the file as it is, is not
    ours."""
    if text.strip() and not text.startswith(_MARK):
        raise DocumentError("expected a file of foretool, found another plugin; give that one another name")
    does, option = (hook.does, " --shell") if hook.does else (_NAMES, "")
    head = _HEAD.format(client=hook.client, does=does, option=option, command=json.dumps(shlex.split(typed)))
    return head + hook.module


Settings = dict[str, Any]


class ClientHook(Struct, frozen=True):
    """A hook of one client: its prompt hook, or the one behind a command of its shell (`SHELL_HOOKS`)."""

    client: str
    """As `--client` spells it."""
    title: str
    file: str
    event: str
    entry: Callable[[str], Settings]
    """Returns the hook that runs a command."""
    after: str = ""
    """What the user does next."""
    is_grouped: bool = True
    """Each member of the event's list holds a list of hooks, and not a hook."""
    top: tuple[tuple[str, Any], ...] = ()
    """Members that the file must have beside `hooks`."""
    module: str = ""
    """The body of a module of ours, for a client that keeps its hooks in such files; the whole file is ours then."""
    matcher: str = ""
    """The tool of the client behind which it runs; "" for a prompt hook."""
    does: str = ""
    """What it does, in words; "" for a prompt hook."""


def _shell(timeout: int) -> Callable[[str], Settings]:
    return lambda typed: {"type": "command", "command": typed, "timeout": timeout}


def _plain(typed: str) -> Settings:
    return {"command": typed}


def _bash(typed: str) -> Settings:
    return {"type": "command", "bash": typed, "timeoutSec": 2}


HOOKS: Final = {
    each.client: each
    for each in (
        ClientHook("claude-code", "Claude Code", "~/.claude/settings.json", "UserPromptSubmit", _shell(2)),
        ClientHook(
            "codex", "Codex", "~/.codex/hooks.json", "UserPromptSubmit", _shell(2),
            "Codex runs a new hook only once you trust it: start codex and type /hooks.",
        ),
        ClientHook("gemini", "Gemini CLI", "~/.gemini/settings.json", "BeforeAgent", _shell(2000)),
        ClientHook("qwen", "Qwen Code", "~/.qwen/settings.json", "UserPromptSubmit", _shell(2000)),
        ClientHook(
            "cursor", "Cursor", "~/.cursor/hooks.json", "beforeSubmitPrompt", _plain,
            "Cursor: the prompt hook needs version 3.20 or newer.",
            is_grouped=False, top=(("version", 1),),
        ),
        ClientHook(
            "copilot", "Copilot CLI", "~/.copilot/hooks/foretool.json", "userPromptSubmitted", _bash,
            is_grouped=False, top=(("version", 1),),
        ),
        ClientHook(
            "vscode", "VS Code", "~/.copilot/hooks/foretool-vscode.json", "userPromptSubmitted", _bash,
            "VS Code: the prompt hook needs version 1.112 or newer, and chat.useHooks on, as it is by default.",
            is_grouped=False, top=(("version", 1),),
        ),
        ClientHook(
            "opencode", "opencode", "~/.config/opencode/plugins/foretool.js", "chat.message",
            lambda typed: {"command": shlex.split(typed)}, "opencode reads its plugins when it starts: restart it.",
            module=_OPENCODE,
        ),
    )
}  # fmt: skip
"""The prompt hooks, by the name of the client."""

_SAME: Final = {"vscode-insiders": "vscode"}
"""Clients that run the hooks of another client."""


def runs_hooks_of(client: str) -> str:
    """Return the client whose hooks a client runs, mostly its own."""
    return _SAME.get(client, client)


def clients_with_hooks_of(client: str) -> set[str]:
    """Return the clients that run the hooks of a client."""
    return {client, *(each for each, other in _SAME.items() if other == client)}


def _run_meanwhile(typed: str) -> Settings:
    return {"type": "command", "command": typed, "timeout": 2, "async": True}


SHELL_HOOKS: Final = {
    each.client: each
    for each in (
        ClientHook(
            "claude-code", "Claude Code", "~/.claude/settings.json", "PostToolUse", _run_meanwhile,
            matcher="Bash", does=_REPORTS,
        ),
        ClientHook(
            "codex", "Codex", "~/.codex/hooks.json", "PostToolUse", HOOKS["codex"].entry, HOOKS["codex"].after,
            matcher="Bash", does=_REPORTS,
        ),
        ClientHook(
            "gemini", "Gemini CLI", "~/.gemini/settings.json", "AfterTool", HOOKS["gemini"].entry,
            matcher="run_shell_command", does=_REPORTS,
        ),
        ClientHook(
            "qwen", "Qwen Code", "~/.qwen/settings.json", "PostToolUse", HOOKS["qwen"].entry,
            matcher="run_shell_command", does=_REPORTS,
        ),
        ClientHook(
            "cursor", "Cursor", "~/.cursor/hooks.json", "afterShellExecution", _plain,
            is_grouped=False, top=HOOKS["cursor"].top, does=_REPORTS,
        ),
        ClientHook(
            "copilot", "Copilot CLI", "~/.copilot/hooks/foretool.json", "postToolUse", HOOKS["copilot"].entry,
            is_grouped=False, top=HOOKS["copilot"].top, does=_REPORTS,
        ),
        ClientHook(
            "vscode", "VS Code", HOOKS["vscode"].file, "postToolUse", _bash,
            is_grouped=False, top=HOOKS["vscode"].top, does=_REPORTS,
        ),
        ClientHook(
            "opencode", "opencode", "~/.config/opencode/plugins/foretool-shell.js", "tool.execute.after",
            HOOKS["opencode"].entry, HOOKS["opencode"].after, module=_OPENCODE_SHELL, does=_REPORTS,
        ),
    )
}  # fmt: skip
"""The hooks behind a command of the shell, by the name of the client."""


def hook_entry(hook: ClientHook, typed: str) -> Settings:
    """Return the settings with which a client runs this command at each event of the hook."""
    entry = hook.entry(typed)
    of_tool = {"matcher": hook.matcher} if hook.matcher else {}
    member = {**of_tool, "hooks": [entry]} if hook.is_grouped else entry
    return {**dict(hook.top), "hooks": {hook.event: [member]}}


def with_hook(hook: ClientHook, text: str, typed: str) -> str:
    """Return the text of a file with our hook in it, or with its command brought up to date. Raises `DocumentError`."""
    if hook.module:
        return _write_module(hook, typed, text)
    document = JsonDocument(text)
    settings, ours = _settings(document), _find_ours(hook, document)
    for key, value in hook.top:
        if key not in settings:
            document.set((key,), value)
    event, members = ("hooks", hook.event), hook_entry(hook, typed)["hooks"][hook.event]
    if [item for _, item in ours] == members:
        return document.text()
    for keys, item in reversed(ours):
        document.remove_item(keys, item)
    if value_at(document.data(), event):
        document.add_item(event, members[0])
    else:
        document.set(event, members)
    return document.text()


def without_hook(hook: ClientHook, text: str, before: str = "") -> str:
    """Return the text of a file without our hook and without what this leaves empty, unless it was there `before` ours
    came. Raises `DocumentError`."""
    if hook.module:
        return "" if text.startswith(_MARK) else text
    document = JsonDocument(text)
    ours = _find_ours(hook, document)
    if not ours:
        return text
    for keys, item in reversed(ours):
        document.remove_item(keys, item)
    had = JsonDocument(before).data()
    for place in (("hooks", hook.event), ("hooks",)):
        if not value_at(document.data(), place) and value_at(had, place) is None:
            document.remove(place)
    if document.data() == dict(hook.top):
        for key, _ in hook.top:
            if value_at(had, (key,)) is None:
                document.remove((key,))
    return document.text()


def profile_in(hook: ClientHook, text: bytes) -> str:
    """Return the profile of our hook in a file, "" where it has none. Raises `DocumentError`."""
    if hook.module or not text:
        return ""
    ours = _find_ours(hook, JsonDocument(text.decode("utf-8", "replace")))
    words = [word for _, item in ours for word in shlex.split(str(item.get("command") or item.get("bash") or ""))]
    return next((words[at + 1] for at, word in enumerate(words[:-1]) if word == "--profile"), "")


def has_hook(text: str) -> bool:
    """Return whether a text has any hook of ours. Raises `DocumentError`."""
    return any(without_hook(hook, text) != text for hook in (*HOOKS.values(), *SHELL_HOOKS.values()))


def has_prompt_hook() -> bool:
    """Return whether a client of this user runs our prompt hook."""
    for hook in HOOKS.values():
        with suppress(DocumentError, OSError, UnicodeDecodeError):
            text = read_regular(Path(hook.file).expanduser()).decode()
            if without_hook(hook, text) != text:
                return True
    return False


def change(
    hook: ClientHook, file: Path, typed: str, planned: FileChange | None = None, without: str = ""
) -> FileChange | None:
    """Return the change that adds our hook to a file, or takes it out if `typed` is empty; None where nothing changes.

    `planned`: another change of this file that is made together with it; `without`: what the file was before it had a
    hook of ours. Raises `DocumentError` and `OSError`.
    """
    try:
        before = planned.before if planned else read_regular(file)
    except FileNotFoundError:
        before = None
    try:
        text = (planned.after if planned else before or b"").decode()
    except UnicodeDecodeError:
        raise DocumentError("expected UTF-8, found other bytes; save it as UTF-8") from None
    if not typed and before is None:
        return None
    after = with_hook(hook, text, typed) if typed else without_hook(hook, text, without)
    if before is not None and after == text:
        return None
    when = "after every command of its shell" if hook.does else "at every prompt"
    why = f"runs foretool hint {when}" if typed else f"runs foretool hint {when} no more"
    if planned is None:
        return FileChange(file, before, after.encode(), hooks=why)
    hooks = " and ".join(filter(None, (planned.hooks, why)))
    return replace(planned, after=after.encode(), hooks=hooks)


def _settings(document: JsonDocument) -> Settings:
    found = document.data()
    if not isinstance(found, dict):
        raise DocumentError(f"expected an object, found {type(found).__name__}; correct the file first")
    return found


def _find_ours(hook: ClientHook, document: JsonDocument) -> list[tuple[jsonc.Path, Settings]]:
    """Return our hooks of an event, each with the list that holds it; a group that holds nothing else goes as a whole.
    Raises `DocumentError`."""
    hooks = _settings(document).get("hooks", {})
    members = hooks.get(hook.event, []) if isinstance(hooks, dict) else None
    if not isinstance(members, list) or not all(isinstance(member, dict) for member in members):
        raise DocumentError(
            f"hooks: expected {hook.event} with a list of objects, found something else; correct it, or add the hook"
            " by hand"
        )
    event: jsonc.Path = ("hooks", hook.event)
    if not hook.is_grouped:
        return [(event, member) for member in members if _is_ours(member)]
    found: list[tuple[jsonc.Path, Settings]] = []
    for number, group in enumerate(members):
        inside = group.get("hooks")
        entries = inside if isinstance(inside, list) else []
        ours = list(filter(_is_ours, entries))
        if ours and len(ours) == len(entries):
            found.append((event, group))
        else:
            found += [((*event, number, "hooks"), entry) for entry in ours]
    return found


def _is_ours(entry: Any) -> bool:
    typed = (entry.get("command") or entry.get("bash")) if isinstance(entry, dict) else None
    try:
        words = shlex.split(typed) if isinstance(typed, str) else []
    except ValueError:
        return False
    return "hint" in words[1:5] and "foretool" in (Path(word).name for word in words[:4])
