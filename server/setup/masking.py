"""Shows entries of a config without their secrets: values of variables, headers, addresses and secret arguments.

What is hidden is decided by its place in the file, not by its length or looks, so a short password is hidden too.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any, Final

from foretool.server.config import jsonc
from foretool.server.config.variables import CREDENTIAL, VARIABLE, variable_names
from foretool.server.setup.documents import value_at
from foretool.storage.redaction import hide_shapes

_SCHEMES: Final = frozenset({"", "basic", "bearer", "token", "apikey", "api-key"})
"""What may stand before a variable in a header without being secret."""
_OWN_SECRETS: Final = frozenset({"token", "encoder_key", "key", "client_secret"})
"""Settings of ours whose values are secrets."""
_HEADER: Final = re.compile(r"([A-Za-z][\w-]*):(?!//)\s*(.+)", re.DOTALL)
_OPTION: Final = re.compile(r"(-{1,2}[\w.-]+)(?:=(.*))?", re.DOTALL)
_ASSIGNED: Final = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def is_reference(value: str) -> bool:
    """Return whether a value only names variables, so that it may be shown."""
    named = list(VARIABLE.finditer(value))
    rest = VARIABLE.sub("", value).strip().lower()
    return bool(named) and rest in _SCHEMES and not any(each["default"] for each in named)


def mask_value(name: str, value: object) -> str:
    """Return a value of `env` or `headers` as it may be shown: a reference as written, else its name in brackets."""
    return value if isinstance(value, str) and is_reference(value) else f"[{name}]"


def mask_url(url: str) -> str:
    """Return an address without its password and the values of its query."""
    url = re.sub(r"^(\w+://[^/?#@]*:)[^/?#]*@", r"\1[secret]@", url)
    return re.sub(
        r"([?&])([^=&#]*)=([^&#]*)", lambda found: f"{found[1]}{found[2]}={mask_value(found[2], found[3])}", url
    )


def mask_arguments(arguments: Sequence[object]) -> list[str]:
    """Return the arguments of a program as they may be shown."""
    shown: list[str] = []
    secret = ""
    for each in map(str, arguments):
        option = _OPTION.fullmatch(each)
        if secret and not option:
            shown.append(mask_value(secret, each))
            secret = ""
            continue
        # A script is not the value of a variable, even where it begins with one: what runs has to be seen.
        is_script = shown[-1:] == ["-c"]
        shown.append(hide_shapes(each) if is_script else _mask_argument(each))
        secret = option[1].lstrip("-") if option and option[2] is None and CREDENTIAL.search(option[1]) else ""
    return shown


def _mask_argument(argument: str) -> str:
    for pattern, between in ((_OPTION, "="), (_ASSIGNED, "="), (_HEADER, ": ")):
        found = pattern.fullmatch(argument)
        if found and found[2] and CREDENTIAL.search(found[1]):
            return f"{found[1]}{between}{mask_value(found[1].lstrip('-'), found[2])}"
    if "://" in argument:
        argument = mask_url(argument)
    return hide_shapes(argument)


def describe_entry(entry: Mapping[str, Any]) -> str:
    """Return what an entry starts or reaches, in one line."""
    if entry.get("url"):
        return mask_url(str(entry["url"]))
    command, args = entry.get("command", ""), entry.get("args")
    # A list cannot be started. It is shown all the same, each word masked like an argument.
    words = [*map(str, command if isinstance(command, list) else [command])]
    words += args if isinstance(args, list | tuple) else ()
    return " ".join(shlex.quote(each) if "[" not in each else each for each in mask_arguments(words))


def describe_variables(entry: Mapping[str, Any]) -> str:
    """Return which variables and headers an entry sets and which variables it reads, by name; "" without any."""
    read = sorted(variable_names(json.dumps(entry, ensure_ascii=False)))
    parts = [f"sets {', '.join(names)}" for key in ("env", "headers") if (names := list(entry.get(key) or ()))]
    return "; ".join([*parts, *([f"reads {', '.join(read)}"] if read else [])])


def mask_text(text: str) -> str:
    """Return the text of our config file with every secret in it replaced; all else stays, line by line."""
    try:
        data, places = jsonc.loads(text), jsonc.places(jsonc.blank_comments(text))
    except jsonc.JsonError:
        return ""  # what cannot be read is not shown
    hidden = {path: written for path in places.values if (written := _masked_at(data, path)) is not None}
    for path in sorted(hidden, key=lambda path: -places.values[path]):
        text = text[: places.values[path]] + json.dumps(hidden[path]) + text[places.ends[path] :]
    return text


def _masked_at(data: Any, path: jsonc.Path) -> str | None:
    """Return what stands in place of a value, None if it may be shown."""
    value = value_at(data, path)
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        return None
    shown: object = value
    match path:
        case ("mcpServers" | "servers", _, "env" | "headers", str(name)):
            shown = mask_value(name, value)
        case ("mcpServers" | "servers", _, "args", int(index)):
            shown = mask_arguments(value_at(data, path[:-1]))[index]
        case ("mcpServers" | "servers", _, "url" | "serverUrl" | "httpUrl"):
            shown = mask_url(str(value))
        case ("mcpServers" | "servers", _, *_, str(name)) if CREDENTIAL.search(name):
            shown = mask_value(name, value)
        case ("foretool", *_, str(name)) if name in _OWN_SECRETS:
            shown = mask_value(name, value)
        case ("foretool", "seal_keys", int()):
            shown = mask_value("seal_keys", value)
        case ("foretool", "storage"):
            shown = mask_url(str(value))
    return str(shown) if shown != value else None
