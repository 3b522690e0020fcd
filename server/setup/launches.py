"""How the entries of clients start foretool: which config they name, what keeps them from working, and what they should
say.

An entry stays as it is but for its command and its arguments: what the user has set beside them is kept.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from foretool.server.config.errors import printable_line
from foretool.server.config.files import own_file
from foretool.server.setup.documents import Keys

_WITH_VALUE: Final = ("--config", "--profile", "--http")
"""Options of `foretool serve` that take a value; that of `--http` may be left out."""


def starts_foretool(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry starts foretool, or is meant to: one without `serve` starts a program that ends."""
    return _place_of_serve(_words(entry)) is not None or lacks_serve(entry)


def lacks_serve(entry: Mapping[str, Any]) -> bool:
    """Return whether an entry starts foretool without the word that has it serve."""
    words = _words(entry)
    if _place_of_serve(words) is not None:
        return False
    at = next((at for at in (0, 2, 3) if at < len(words) and _is_program(words, at)), None)
    return at is not None and all(word.startswith("-") for word in words[at + 1 : at + 2])


def config_of(entry: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """Return the config that an entry starts foretool with, without links."""
    _, rest = _split(entry)
    for place, word in enumerate(rest):
        if word == "--config" and place + 1 < len(rest):
            return os.path.realpath(os.path.expanduser(rest[place + 1]))  # noqa: PTH111 -- a text stays a text
        if word.startswith("--config="):
            return os.path.realpath(word.partition("=")[2])
    named = (entry.get("env") or {}).get("FORETOOL_CONFIG")
    return os.path.realpath(str(named) if named else own_file(environ))


def profile_of(entry: Mapping[str, Any]) -> str:
    """Return the profile that an entry starts foretool with, "" for none."""
    _, rest = _split(entry)
    named = (rest[at + 1] for at, word in enumerate(rest[:-1]) if word == "--profile")
    return next(named, "") or next((word.partition("=")[2] for word in rest if word.startswith("--profile=")), "")


def find_fault(entry: Mapping[str, Any], environ: Mapping[str, str]) -> str:
    """Return why an entry cannot start foretool, "" if nothing is wrong with it. Looks at files, and starts nothing."""
    if problem := _program_problem(str(entry.get("command", "")), environ):
        return problem
    if lacks_serve(entry):
        return 'its arguments lack "serve"'
    _, rest = _split(entry)
    if unknown := next((word for word in rest if word not in _known(rest)), ""):
        return f"foretool serve does not take {printable_line(unknown.partition('=')[0])}"
    found = config_of(entry, environ)
    return "" if Path(found).is_file() else f"its config {printable_line(found)} does not exist"


def mend(entry: Mapping[str, Any], launcher: Sequence[str], config: Path, environ: Mapping[str, str]) -> list[str]:
    """Return the program and the arguments that an entry should have. `launcher` is the command of this foretool; an
    entry whose program is there keeps its own."""
    program, rest = _split(entry)
    is_gone = bool(_program_problem(program[0] if program else "", environ))
    kept = _known(rest)
    if config_of(entry, environ) != os.path.realpath(config):
        kept = ["--config", str(config), *_without_config(kept)]
    return [*(launcher if is_gone else program), "serve", *kept]


def write_launch(written: Mapping[str, Any], words: Sequence[str]) -> dict[Keys, object]:
    """Return what has to stand where in the entry of a client, as the client has written it, so that it starts this."""
    inner = written.get("config")
    place: Keys = ("config",) if isinstance(inner, Mapping) and ("cmd" in inner or "command" in inner) else ()
    block: Mapping[str, Any] = inner if place and isinstance(inner, Mapping) else written
    command = block.get("command")
    if isinstance(command, list):  # opencode
        return {(*place, "command"): [*words], **({(*place, "args"): []} if block.get("args") else {})}
    if isinstance(command, Mapping):  # Zed, before 2025
        return {(*place, "command", "path"): words[0], (*place, "command", "args"): [*words[1:]]}
    name = "cmd" if "cmd" in block else "command"
    return {(*place, name): words[0], (*place, "args"): [*words[1:]]}


def _words(entry: Mapping[str, Any]) -> list[str]:
    return [str(entry.get("command", "")), *map(str, entry.get("args") or [])]


def _name_of(word: str) -> str:
    return re.split(r"[\\/]", word)[-1].partition("[")[0].removesuffix(".exe")


def _place_of_serve(words: Sequence[str]) -> int | None:
    """Return where the word stands that has foretool serve."""
    return next((at + 1 for at in range(len(words) - 1) if (_name_of(words[at]), words[at + 1]) == _SERVES), None)


_SERVES: Final = ("foretool", "serve")


def _is_program(words: Sequence[str], at: int) -> bool:
    """Return whether a word is foretool as a program or, behind `-m`, as a module of Python."""
    if at == 0:
        return _name_of(words[0]) == "foretool"
    return words[at] == "foretool" and words[at - 1] == "-m" and _name_of(words[0]).startswith("python")


def _split(entry: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the words that start foretool, and the arguments of `serve`."""
    words = _words(entry)
    if (serve := _place_of_serve(words)) is not None:
        return words[:serve], words[serve + 1 :]
    end = next((at + 1 for at in (0, 2, 3) if at < len(words) and _is_program(words, at)), len(words))
    return words[:end], words[end:]


def _known(rest: Sequence[str]) -> list[str]:
    """Return the arguments that `foretool serve` takes, with their values."""
    kept: list[str] = []
    at = 0
    while at < len(rest):
        word = rest[at]
        name, equals, _ = word.partition("=")
        has_value = not equals and at + 1 < len(rest) and not rest[at + 1].startswith("-")
        if name in _WITH_VALUE and (equals or has_value or name == "--http"):
            kept += rest[at : at + 1 + has_value]
            at += has_value
        elif word == "--alone":
            kept.append(word)
        at += 1
    return kept


def _without_config(rest: Sequence[str]) -> list[str]:
    """Return arguments that `_known` has returned without the config."""
    if "--config" in rest:
        at = rest.index("--config")
        rest = [*rest[:at], *rest[at + 2 :]]
    return [word for word in rest if not word.startswith("--config=")]


def _program_problem(command: str, environ: Mapping[str, str]) -> str:
    """Return why a program does not start, as far as its file tells it."""
    full = command if os.sep in command else shutil.which(command, path=environ.get("PATH")) or ""
    shown = printable_line(command)
    if not os.access(full, os.X_OK) or not Path(full).is_file():
        return f"{shown} is not a program"
    if (interpreter := interpreter_of(full)) and not os.access(interpreter, os.X_OK):
        return f"{shown} needs {printable_line(interpreter)}, which is gone"
    return ""


def interpreter_of(program: str) -> str:
    """Return the program that a script names in its first line, "" for another kind of file."""
    try:
        with Path(program).open("rb") as file:
            first = file.readline(1024)
    except OSError:
        return ""
    words = first[2:].split() if first.startswith(b"#!") else []
    return os.fsdecode(words[0]) if words else ""
