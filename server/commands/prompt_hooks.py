"""The prompt hooks of clients: where each keeps them, in which form, and how ours gets in and out.

Only clients are here whose hook can put words before the model. Cursor (`beforeSubmitPrompt`) and Windsurf
(`pre_user_prompt`) can only block a prompt, and Cline's command line drops what such a hook says.
"""

from __future__ import annotations

import difflib
import json
import os
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from click import ClickException
from msgspec import Struct

BACKUP: Final = ".before-foretool"
"""Ends the name of the copy that is made of a file before its first change."""

Settings = dict[str, Any]


class PromptHook(Struct, frozen=True):
    """The prompt hook of one client."""

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


def _shell(timeout: int) -> Callable[[str], Settings]:
    return lambda typed: {"type": "command", "command": typed, "timeout": timeout}


HOOKS: Final = {
    each.client: each
    for each in (
        PromptHook("claude-code", "Claude Code", "~/.claude/settings.json", "UserPromptSubmit", _shell(2)),
        PromptHook(
            "codex", "Codex", "~/.codex/hooks.json", "UserPromptSubmit", _shell(2),
            "Codex runs a new hook only once you trust it: start codex and type /hooks.",
        ),
        PromptHook("gemini", "Gemini CLI", "~/.gemini/settings.json", "BeforeAgent", _shell(2000)),
        PromptHook("qwen", "Qwen Code", "~/.qwen/settings.json", "UserPromptSubmit", _shell(2000)),
        PromptHook(
            "copilot", "Copilot CLI", "~/.copilot/hooks/foretool.json", "userPromptSubmitted",
            lambda typed: {"type": "command", "bash": typed, "timeoutSec": 2},
            is_grouped=False, top=(("version", 1),),
        ),
    )
}  # fmt: skip
"""By the name of the client."""


def hook_entry(hook: PromptHook, typed: str) -> Settings:
    """Return the settings that run this command at each prompt."""
    entry = hook.entry(typed)
    return {**dict(hook.top), "hooks": {hook.event: [{"hooks": [entry]} if hook.is_grouped else entry]}}


def install(hook: PromptHook, file: Path, typed: str, *, dry_run: bool = False) -> str:
    """Add the hook, or update the existing one. Returns the difference, "" for none. Raises `ClickException`."""
    before = _read(file)
    after = _without(hook, before)
    for key, value in hook.top:
        after.setdefault(key, value)
    after.setdefault("hooks", {}).setdefault(hook.event, []).extend(hook_entry(hook, typed)["hooks"][hook.event])
    return _write(file, before, after, dry_run=dry_run)


def remove(hook: PromptHook, file: Path, *, dry_run: bool = False) -> str:
    """Remove the hook. Returns the difference, "" where there was none. Raises `ClickException`."""
    before = _read(file)
    return _write(file, before, _without(hook, before), dry_run=dry_run)


def _without(hook: PromptHook, settings: Settings) -> Settings:
    """Return the settings without our hook and without what this leaves empty. Raises `ClickException`."""
    copy: Settings = json.loads(json.dumps(settings))
    hooks = copy.get("hooks", {})
    members = hooks.get(hook.event, []) if isinstance(hooks, dict) else None
    if not isinstance(members, list) or not all(isinstance(member, dict) for member in members):
        raise ClickException(
            f"hooks: expected {hook.event} with a list of objects, found something else; correct it, or add the hook"
            " by hand"
        )
    if hook.is_grouped:
        for group in members:
            group["hooks"] = [each for each in group.get("hooks", []) if not _is_ours(each)]
        kept = [group for group in members if group["hooks"]]
    else:
        kept = [each for each in members if not _is_ours(each)]
    if kept:
        hooks[hook.event] = kept
    else:
        hooks.pop(hook.event, None)
    if not hooks:
        copy.pop("hooks", None)
        if copy == dict(hook.top):
            copy.clear()
    return copy


def _is_ours(entry: Any) -> bool:
    typed = (entry.get("command") or entry.get("bash")) if isinstance(entry, dict) else None
    try:
        words = shlex.split(typed) if isinstance(typed, str) else []
    except ValueError:
        return False
    return "hint" in words[1:5] and any("foretool" in Path(word).name for word in words[:4])


def _read(path: Path) -> Settings:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ClickException(f"{path}: cannot be read ({error.strerror}); check its permissions") from None
    except ValueError as error:
        raise ClickException(
            f"{path}: expected JSON without comments, found something else ({error}); add the hook by hand"
        ) from None
    if not isinstance(found, dict):
        raise ClickException(f"{path}: expected an object, found {type(found).__name__}; correct the file first")
    return found


def _write(path: Path, before: Settings, after: Settings, *, dry_run: bool) -> str:
    """Replace the file in one step, so that a client never reads half of it, and keep a copy of the first one."""
    if before == after:
        return ""
    old, new = _as_text(before) if path.exists() else "", _as_text(after)
    shown = "".join(difflib.unified_diff(old.splitlines(True), new.splitlines(True), str(path), str(path)))
    if dry_run:
        return shown
    target = path.resolve()
    beside = target.with_name(f"{target.name}.foretool-{os.getpid()}")
    backup = target.with_name(target.name + BACKUP)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        mode = target.stat().st_mode & 0o777 if target.exists() else 0o600
        if target.exists() and not backup.exists():
            _write_new(backup, target.read_bytes(), mode)
        _write_new(beside, new.encode(), mode)
        beside.replace(target)
    except OSError as error:
        raise ClickException(f"{path}: cannot be written ({error.strerror}); add the hook by hand") from None
    return shown


def _write_new(path: Path, data: bytes, mode: int) -> None:
    # Settings may hold secrets, so the copy is never open to more users than the file.
    handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW, mode)
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    path.chmod(mode)


def _as_text(settings: Settings) -> str:
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"
