"""Reads changes of the config for a replay, such as `list_tokens=3000` and `servers.git.disabled=true`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Final

from foretool.server.config.errors import guess
from foretool.server.config.loader import Config
from foretool.server.setup.documents import Keys
from foretool.server.setup.own_servers import ConfigChange

_SETTINGS: Final = ("policy", "list_tokens", "pin", "encoder", "answer_tokens", "bridges")
"""The settings of our own block that decide what a client sees."""
_PROFILE: Final = ("policy", "list_tokens", "pin", "servers", "allow", "deny", "about")
_SERVER: Final = ("disabled", "pin", "include", "exclude", "allow", "deny", "description")
_TOOL: Final = ("name", "description")
_LISTS: Final = frozenset({"include", "exclude", "allow", "deny", "servers", "pin"})
_TEXTS: Final = frozenset({"policy", "encoder", "about", "description", "name", "bridges"})


class ChangeProblem(ValueError):
    """A change that cannot be read or made; the message says which, what was found and the way out."""


def read_changes(texts: Iterable[str], config: Config) -> list[ConfigChange]:
    """Read changes as `--set` takes them. Raises `ChangeProblem`."""
    return [_read_change(text, config) for text in texts]


def _read_change(text: str, config: Config) -> ConfigChange:
    name, equals, value = text.partition("=")
    adds, name = name.endswith("+"), name.removesuffix("+").strip()
    if not equals or not name:
        raise ChangeProblem(f"expected KEY=VALUE, such as list_tokens=3000, found {text!r}")
    keys = _read_keys(name.removeprefix("foretool."), config)
    last = keys[-1]
    is_list = last in _LISTS
    if adds and not is_list:
        raise ChangeProblem(f"{name} is not a list; write {name}={value}")
    return ConfigChange(keys, value.strip() if adds else _read_value(value, last, is_list=is_list), adds)


def _read_keys(name: str, config: Config) -> Keys:
    if name in _SETTINGS:
        return ("foretool", name)
    head, _, rest = name.partition(".")
    if head == "profiles":
        profile, field = _split(rest, [each for each in config.profiles if each], "profile", name)
        return ("foretool", "profiles", profile, _known(field, _PROFILE, name))
    if head in ("servers", "mcpServers"):
        servers = [*config.servers, *config.disabled, *config.broken]
        server, field = _split(rest, servers, "server", name)
        if not field.startswith("tools."):
            return ("servers", server, _known(field, _SERVER, name))
        tool, _, own = field.removeprefix("tools.").rpartition(".")
        if not tool:
            raise ChangeProblem(f"{name}: expected servers.{server}.tools.TOOL.KEY, with a KEY of {', '.join(_TOOL)}")
        return ("servers", server, "tools", tool, _known(own, _TOOL, name))
    return ("foretool", _known(name, _SETTINGS, name))


def _split(text: str, names: Sequence[str], what: str, whole: str) -> tuple[str, str]:
    """Return a name, which may hold dots, and what follows it."""
    fitting = [name for name in names if text.startswith(f"{name}.")]
    if not fitting:
        raise ChangeProblem(f"{whole}: the config has no such {what}; it has: {', '.join(names) or 'none'}")
    name = max(fitting, key=len)
    return name, text[len(name) + 1 :]


def _known(field: str, fields: Sequence[str], whole: str) -> str:
    if field in fields:
        return field
    meant = guess(field, fields) or f"; these can be tried: {', '.join(fields)}"
    raise ChangeProblem(f"{whole}: no setting of this name decides what a client sees{meant}")


def _read_value(text: str, last: str, *, is_list: bool) -> Any:
    if last in _TEXTS:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        value = text.strip()
    except RecursionError:
        raise ChangeProblem(f"{last}: brackets are nested too deeply") from None
    if is_list and isinstance(value, str):
        return [each.strip() for each in value.split(",") if each.strip()]
    return value
