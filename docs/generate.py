"""Generates the tables in `configuration.md` from the settings, the help in `cli.md` from the commands, a page for each
client (`clients/`), and the statements that make a new storage file (`storage/sqlite/schema.sql`) from the steps of its
history.

The text around them is written by hand. `python docs/generate.py` updates the files; with `--check` it exits with 1 if
one of them is stale.
"""

import ast
import inspect
import re
import sys
from collections.abc import Sequence
from copy import copy
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import click
import msgspec

sys.path.insert(0, str(Path(__file__).parent))

import client_pages
import sqlite_schema

from foretool.fleet.telemetry import conventions
from foretool.server.commands.group import SECTIONS, root
from foretool.server.config.codes import EXPLANATIONS
from foretool.server.config.settings import (
    AccessEntry,
    DomainEntry,
    EnrichEntry,
    GrantEntry,
    JudgeEntry,
    OAuthEntry,
    PerUserEntry,
    ProfileEntry,
    ServerEntry,
    Settings,
    TokenEntry,
    ToolEntry,
    keys_of,
)
from foretool.storage.sqlite import migrations

PAGES = tuple(Path(__file__).with_name(name) for name in ("configuration.md", "cli.md", "observability.md"))
HELP_WIDTH = 100
HELP_NAMES = ["-h", "--help"]
COMMON = {"path", "as_json"}
"""Options of nearly every command, which the page describes once."""
SHARED = {
    "--dry-run": "Show what would change, and change nothing.",
    "--undo": "Take back the latest change of the config by this command.",
    "--profile": "Use this profile of the config.",
}
"""Options that mean the same at several commands: the page describes them once, and each command names those it has."""
STRUCTS: dict[str, type[msgspec.Struct]] = {
    "server": ServerEntry,
    "tool": ToolEntry,
    "oauth": OAuthEntry,
    "per_user": PerUserEntry,
    "foretool": Settings,
    "profile": ProfileEntry,
    "domain": DomainEntry,
    "token": TokenEntry,
    "access": AccessEntry,
    "grant": GrantEntry,
    "enrich": EnrichEntry,
    "judge": JudgeEntry,
}
NAMED = {ProfileEntry: "profile", DomainEntry: "domain", TokenEntry: "token", ToolEntry: "tool", GrantEntry: "grant"}
DEFAULTS = {
    "type": "`stdio` with `command`, `http` with `url`",
    "prefix": "the server's name",
    "policy": "`foretool.policy`",
    "list_tokens": "`foretool.list_tokens`",
    "storage": "`foretool/foretool.sqlite3` in `$XDG_STATE_HOME`, else in `~/.local/state`",
    "encoder_url": "none",
    "encoder_key": "none",
    "token": "none",
    "oauth": "none",
    "per_user": "none",
    "token_endpoint": "required",
    "authorization_endpoint": "none",
    "revocation_endpoint": "none",
    "audience": "none",
    "access": "none",
    "enrich": "none",
    "judge": "none",
    "url": "required",
    "model": "required",
    "key": "none",
    "resource": "none",
    "jwks_url": "none",
    "introspection_endpoint": "none",
    "client_cert": "none",
    "client_key": "none",
    "client_id": "none",
    "client_secret": "none",
    "client_metadata_url": "none",
    "issuer": "none",
    "private_key": "none",
}
"""What an empty value of these keys means."""
_TYPES = {str: "string", int: "integer", float: "number", bool: "true or false", type(None): "null"}


def render(page: str) -> str:
    """Replace what follows each `<!-- table: STRUCT -->`, `<!-- help: foretool ... -->`, and the other
    marks of a page."""
    marks = {
        "commands": "".join(f"- {title}: {', '.join(map(_linked, names))}\n" for title, names in SECTIONS.items()),
        "spans": rows("name", "kind", "what it is", conventions.SPANS),
        "attributes": rows("attribute", "on", "what it says", conventions.ATTRIBUTES),
        "metrics": rows("metric", "unit", "what it measures", conventions.METRICS),
        "scraped": rows("family", "kind; labels", "what it measures", conventions.SCRAPED),
    }
    for mark, written in marks.items():
        start, begun, rest = page.partition(f"<!-- {mark} -->\n")
        page = start + begun + written + rest[rest.index("<!-- end -->") :] if begun else page
    return re.sub(
        r"(<!-- (table|help): ([\w -]+) -->\n).*?(<!-- end -->)",
        lambda match: match[1] + (table(STRUCTS[match[3]]) if match[2] == "table" else help_of(match[3])) + match[4],
        page,
        flags=re.DOTALL,
    )


def rows(first: str, second: str, third: str, told: Sequence[tuple[str, str, str]]) -> str:
    """Return the table of names that telemetry uses."""
    lines = [f"| {first} | {second} | {third} |", "|---|---|---|"]
    lines += [f"| {name if '`' in name else f'`{name}`'} | {kind} | {meaning} |" for name, kind, meaning in told]
    return "\n".join([*lines, ""])


def _linked(command: str) -> str:
    return f"[{command}](#{command})"


def help_of(words: str) -> str:
    """Return the help of a command as a code block. `words`: the command line without options."""
    command: click.Command = root
    context = click.Context(
        root,
        info_name="foretool",
        terminal_width=HELP_WIDTH,
        max_content_width=HELP_WIDTH,
        help_option_names=HELP_NAMES,
    )
    for word in words.split()[1:]:
        assert isinstance(command, click.Group)
        found = command.get_command(context, word)
        assert found is not None, f"docs: there is no command {words!r}"
        command = found
        context = click.Context(command, parent=context, info_name=word)
    options = [each for each in command.params if isinstance(each, click.Option)]
    shared = [each for each in options if SHARED.get(each.opts[0]) == each.help]
    shown = copy(command)
    shown.params = [each for each in command.params if each.name not in COMMON and each not in shared]
    shown.add_help_option = command is root
    text = shown.get_help(context).removeprefix("Usage: ")
    if context.parent is not None and context.parent.command is root:
        text = text.removeprefix(f"{words} [OPTIONS]\n\n")  # says what the heading says
    # An option and its text stand on one line, with two spaces between them.
    text = re.sub(r"(?<=\S)\n {10,}(?=\S)", " ", text)
    text = re.sub(r"(?m)^(  -\S.*?) {2,}", r"\1  ", text)
    description, mark, rest = text.partition("\nOptions:\n")
    text = re.sub(r"(?m)^  ", "", description) + mark + rest
    if shared:
        text += f"\n\nAlso: {', '.join(each.opts[0] for each in shared)}"
    return f"```text\n{text}\n```\n"


def table(struct: type[msgspec.Struct]) -> str:
    meanings = read_docstrings(struct)
    rows = [
        _row(field, struct.__annotations__[field.name], meanings[field.name])
        for field in msgspec.structs.fields(struct)
        if field.name in keys_of(struct)
    ]
    return "\n".join(["| key | type | default | meaning |", "|---|---|---|---|", *rows, ""])


def read_docstrings(struct: type[msgspec.Struct]) -> dict[str, str]:
    """Return the docstring below each field of a struct, on one line."""
    (definition,) = ast.parse(inspect.getsource(struct)).body
    assert isinstance(definition, ast.ClassDef)
    found = {}
    for field, below in pairwise(definition.body):
        if isinstance(field, ast.AnnAssign) and isinstance(below, ast.Expr):
            found[ast.unparse(field.target)] = " ".join(ast.literal_eval(below.value).split())
    return found


def _row(field: msgspec.structs.FieldInfo, annotation: Any, meaning: str) -> str:
    extra = {key: value for meta in _metas(annotation) for key, value in (meta.extra or {}).items()}
    unit = extra.get("unit", "")
    default = extra.get("empty", DEFAULTS.get(field.name)) if field.default in (None, "") else None
    default = default or f"`{msgspec.json.encode(_default(field)).decode()}`"
    kind = f"{type_in_words(annotation)}{f' ({unit})' if unit else ''}"
    return f"| `{field.name}` | {kind} | {default} | {meaning} |"


def _default(field: msgspec.structs.FieldInfo) -> Any:
    return field.default_factory() if callable(field.default_factory) else field.default


def _metas(annotation: Any) -> list[msgspec.Meta]:
    """Return the metadata around the type and inside it (`Tokens | None`), the inner ones first."""
    inner = [meta for argument in get_args(annotation) for meta in _metas(argument)]
    own = annotation.__metadata__ if get_origin(annotation) is Annotated else ()
    return [*inner, *(meta for meta in own if isinstance(meta, msgspec.Meta))]


def type_in_words(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_in_words(arguments[0])
    if origin is Literal:
        return ", ".join(f"`{choice}`" for choice in arguments)
    if origin is tuple:
        return f"list of {NAMED.get(arguments[0]) or type_in_words(arguments[0])}s"
    if origin is dict:
        inner = arguments[1]
        if get_origin(inner) is Literal:
            return f"object of {type_in_words(inner)}"
        return f"object of {NAMED.get(inner) or type_in_words(inner)}s"
    if arguments:
        return type_in_words(arguments[0])
    if annotation in (OAuthEntry, PerUserEntry, AccessEntry, EnrichEntry, JudgeEntry):
        return "object"
    return _TYPES[annotation]


def write_explanations() -> str:
    """Return what the page of error codes says of each, without links, for `foretool doctor --explain`."""
    page = Path(__file__).with_name("errors.md").read_text(encoding="utf-8")
    sections = re.findall(r"(?m)^### FT\d{3}: .+\n\n(?:(?!#).*\n)*", page + "\n")
    return re.sub(r"\[([^\]]+)\]\([^)]+\)", r"\1", "".join(each.rstrip() + "\n\n" for each in sections)).rstrip() + "\n"


def main(arguments: list[str]) -> int:
    wanted = {page: render(page.read_text(encoding="utf-8")) for page in PAGES} | {
        **client_pages.write_pages(),
        EXPLANATIONS: write_explanations(),
        migrations.SCHEMA: sqlite_schema.write_schema(),
    }
    stale = [page for page in wanted if not page.exists() or page.read_text(encoding="utf-8") != wanted[page]]
    for page in stale:
        if "--check" in arguments:
            sys.stderr.write(f"{page.name} is stale; run `python docs/generate.py`\n")
        else:
            page.write_text(wanted[page], encoding="utf-8")
    return int("--check" in arguments and bool(stale))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
