"""`foretool hint` for click: its help, and adding or removing the hook in the settings of Claude Code.

The commands that entries and hooks of clients run are worked out here too.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import click
from click import ClickException

from foretool.server import hint
from foretool.server.commands import output
from foretool.server.commands.options import config_option, profile_option
from foretool.server.config.places import find_place

SETTINGS = Path("~/.claude/settings.json")
EVENT = "UserPromptSubmit"
TIMEOUT_S = 2
"""How long Claude Code waits for the hook; the command itself gives up long before."""


@click.command("hint")
@profile_option
@config_option
@click.option("--install", "wanted", flag_value="install", help="Add the hook to the settings of Claude Code.")
@click.option("--remove", "wanted", flag_value="remove", help="Remove the hook again.")
@click.option(
    "--settings",
    type=click.Path(path_type=Path, dir_okay=False),
    default=SETTINGS,
    metavar="FILE",
    help="The settings file.  [default: ~/.claude/settings.json]",
)
def command(path: Path | None, profile: str, wanted: str | None, settings: Path) -> int:
    """Name likely tools for a prompt: a hook that your client runs.

    Reads the hook's JSON from stdin, stores the prompt (unless the setting "record" is "off"), and prints at most 300
    tokens that name the tools it may need, or nothing. Ends within 150 ms, always with exit status 0.
    """
    if wanted is None:
        return hint.main(hint.HintOptions(path, profile))
    settings = settings.expanduser()
    typed = hook_command(find_place(path, os.environ).path, profile)
    changed = install(settings, typed) if wanted == "install" else remove(settings)
    if not changed:
        output.say(f"{settings}: nothing to change")
    elif wanted == "install":
        output.say(
            f"{settings}: Claude Code now runs this at every prompt:\n{typed}\nTo remove it: foretool hint --remove"
        )
    else:
        output.say(f"{settings}: removed the hook")
    return 0


def launcher() -> list[str]:
    """Return the command with its full path, because clients rarely have the PATH of this shell."""
    started = Path(sys.argv[0])
    if started.name == "foretool" and started.is_file() and os.access(started, os.X_OK):
        return [str(started.absolute())]
    beside = Path(sys.executable).with_name("foretool")
    if beside.is_file():
        return [str(beside)]
    installed = shutil.which("foretool")
    if installed and Path(installed).is_absolute():
        return [installed]
    # Without -P, Python would import from the working folder first, which may be a cloned repository.
    return [sys.executable, "-P", "-m", "foretool"]


def hook_command(config: Path, profile: str = "") -> str:
    """Return the command line that the client runs."""
    of_profile = ["--profile", profile] if profile else []
    return shlex.join([*launcher(), "hint", "--config", str(config), *of_profile])


def hook_entry(typed: str) -> dict[str, Any]:
    """Return the settings of Claude Code that run this command."""
    return {"hooks": {EVENT: [{"hooks": [{"type": "command", "command": typed, "timeout": TIMEOUT_S}]}]}}


def install(settings: Path, typed: str) -> bool:
    """Add the hook, or update the existing one. Returns whether the file changed. Raises `ClickException`."""
    before = _read(settings)
    after = _without(before)
    after.setdefault("hooks", {}).setdefault(EVENT, []).extend(hook_entry(typed)["hooks"][EVENT])
    return _write(settings, before, after)


def remove(settings: Path) -> bool:
    """Remove the hook. Returns whether there was one. Raises `ClickException`."""
    before = _read(settings)
    return _write(settings, before, _without(before))


def _without(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings without our hook and without what this leaves empty. Raises `ClickException`."""
    copy: dict[str, Any] = json.loads(json.dumps(settings))
    hooks = copy.get("hooks", {})
    groups = hooks.get(EVENT, []) if isinstance(hooks, dict) else None
    if not isinstance(groups, list) or not all(isinstance(group, dict) for group in groups):
        raise ClickException(
            f"hooks: expected {EVENT} with a list of objects, found something else; correct it, or add the hook by hand"
        )
    for group in groups:
        group["hooks"] = [each for each in group.get("hooks", []) if not _is_ours(each)]
    kept = [group for group in groups if group["hooks"]]
    if kept:
        hooks[EVENT] = kept
    else:
        hooks.pop(EVENT, None)
    if not hooks:
        copy.pop("hooks", None)
    return copy


def _is_ours(hook: Any) -> bool:
    typed = hook.get("command") if isinstance(hook, dict) else None
    try:
        words = shlex.split(typed) if isinstance(typed, str) else []
    except ValueError:
        return False
    return "hint" in words[1:5] and any("foretool" in Path(word).name for word in words[:4])


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise ClickException(f"{path}: cannot be read ({error.strerror}); check its permissions") from None
    except ValueError as error:
        raise ClickException(f"{path}: expected JSON, found something else ({error}); correct the file first") from None
    if not isinstance(found, dict):
        raise ClickException(f"{path}: expected an object, found {type(found).__name__}; correct the file first")
    return found


def _write(path: Path, before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Replace the file in one step, so that a client never reads half of it. Returns whether it changed."""
    if before == after:
        return False
    target = path.resolve()
    beside = target.with_name(f"{target.name}.foretool-{os.getpid()}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        beside.write_text(json.dumps(after, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        beside.chmod(target.stat().st_mode & 0o777 if target.exists() else 0o600)
        beside.replace(target)
    except OSError as error:
        raise ClickException(f"{path}: cannot be written ({error.strerror}); add the hook by hand") from None
    return True
