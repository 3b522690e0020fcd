"""The pages of `docs/clients/`, one for each client: how to register foretool, where the file is, and what was seen.

All that foretool itself knows is taken from its code: files, entries, commands, variables, the first belief about the
policy, the hook. What was seen stands in `clients/facts.toml`, with its version, and in `clients/transcripts/`, which
`python -m bench.agents.transcripts` writes.
"""

from __future__ import annotations

import re
import textwrap
import tomllib
from pathlib import Path
from typing import Any, Final

import msgspec
from client_files import LAUNCH, SYSTEMS, files_of, place
from msgspec import Struct

from foretool.server.checks.clients import gives
from foretool.server.lists.policy import RELISTERS
from foretool.server.setup.client_hooks import HOOKS, ClientHook
from foretool.server.setup.clients import ClientFile
from foretool.server.setup.registrations import registration

FOLDER: Final = Path(__file__).with_name("clients")
TRANSCRIPTS: Final = FOLDER / "transcripts"
CONFIG: Final = "/home/you/.config/foretool/mcp.json"
WIDTH: Final = 150
"""Characters of a line of prose."""


class ClientPage(Struct, frozen=True):
    """What a page says that the code does not know."""

    title: str
    clients: tuple[str, ...]
    """As `--client` spells them; the first is the name of the page."""
    policy: str
    """Which policy it earns, and how that is known."""
    tried: str = ""
    """What was run: the version and the day; "" for a client that could not be run here."""
    why_not: str = ""
    """Why it was not run."""
    known_as: str = ""
    """The name that it gives over MCP, where `auto` believes something of it."""
    hook: str = ""
    """Why there is no prompt hook, where the client has hooks."""
    notes: tuple[str, ...] = ()


_WORDS: Final = {
    "day": "on 2026-12-01, on Linux",
    "window": "it is a program with windows, and there was no screen",
    "measures": "The first search of its first session [measures it](../clients.md#how-auto-finds-out).",
    "unmeasured": "Nobody has measured it: `auto` begins with `frozen` and"
    " [measures it](../clients.md#how-auto-finds-out).",
}
"""What several clients say alike."""

_VARIABLES: Final = {
    "shell": "It gives foretool every variable of the shell that it was started from.",
    "few": "It gives foretool only a few variables (`HOME`, `PATH` and others that the MCP SDKs pass on)."
    " Put what else your servers need into `env` of the entry.",
    "desktop": "Started from the desktop it lacks the variables of your shell: [what to do](README.md#variables).",
}

_DESKTOP: Final = (
    "A client that is started from the desktop lacks the variables of your shell, also most of its `PATH`. Put what"
    " your servers need into `env` of the entry, and write programs with their full paths. `foretool doctor` says which"
    " are missing."
)


def read_facts() -> list[ClientPage]:
    """Return what `clients/facts.toml` says, with the words that several clients share."""
    written = tomllib.loads((FOLDER / "facts.toml").read_text(encoding="utf-8"))["client"]
    return [msgspec.convert(_with_words(each), ClientPage) for each in written]


def _with_words(fact: Any) -> Any:
    if isinstance(fact, dict):
        return {key: _with_words(each) for key, each in fact.items()}
    if isinstance(fact, list):
        return [_with_words(each) for each in fact]
    return re.sub(r"\{(\w+)\}", lambda found: _WORDS.get(found[1], found[0]), fact)


def name_of(page: ClientPage) -> str:
    """Return the name of a page's file."""
    return f"{page.clients[0]}.md"


def write_pages() -> dict[Path, str]:
    """Return every page by its path, and the list of them."""
    return {FOLDER / name_of(page): write_page(page) for page in read_facts()} | {FOLDER / "README.md": write_index()}


def write_index() -> str:
    """Return the list of all pages."""
    lines = [
        "# The clients",
        "",
        "How to register foretool with your client, where its file is, and what was seen there."
        " [clients.md](../clients.md) says how `auto` chooses a policy.",
        "",
        "Where a client was run, its page has a transcript: a stub of its model's API on this machine calls the tools"
        " in a fixed order (`python -m bench.agents.transcripts --programs node_modules/.bin`).",
        "",
        "| client | `--client` | policy under `auto` | prompt hook | run here |",
        "|---|---|---|---|---|",
    ]
    for page in read_facts():
        hook = "yes" if _hook(page) else "no"
        names = ", ".join(f"`{client}`" for client in page.clients)
        lines.append(
            f"| [{page.title}]({name_of(page)}) | {names} | {policy_of(page)} | {hook} | {page.tried or 'no'} |"
        )
    return "\n".join([*lines, "", "## Variables", "", _DESKTOP, ""])


def policy_of(page: ClientPage) -> str:
    """Return what a client gets: what was seen, else what `auto` begins with, by the name that the client gives."""
    seen = re.match(r"`\w+`", page.policy)
    return seen[0] if seen else "`growing`" if page.known_as in RELISTERS else "`frozen`"


def write_page(page: ClientPage) -> str:
    """Return one page."""
    files = [each for each in files_of("linux") if each.client in page.clients and each.registers]
    parts = [
        f"# {page.title}",
        _set_up(page, files[0]),
        f"## The file\n\n{_files(page)}",
        f"`init` writes this and `foretool connect {page.clients[0]}` prints it, with the full paths of your machine:",
        f"```{files[0].kind}\n{_entry(files[0])}\n```",
        f"## Variables\n\n{_VARIABLES[gives(page.clients[0])]}",
        f"## Policy\n\n{page.policy}",
        *([f"## Prompt hook\n\n{said}"] if (said := _say_hook(page)) else []),
        *([f"## Good to know\n\n{chr(10).join(f'- {note}' for note in page.notes)}"] if page.notes else []),
        f"## Seen\n\n{_seen(page)}",
    ]
    return "\n\n".join(map(_wrap, parts)) + "\n"


def _wrap(part: str) -> str:
    """Wrap the prose of a part, and leave tables, code and headings as they are."""
    lines, is_code = [], False
    for line in part.split("\n"):
        is_code ^= line.startswith("```")
        if is_code or line.startswith(("|", "#", "```")) or len(line) <= WIDTH:
            lines.append(line)
        else:
            indent = "  " if line.startswith("- ") else ""
            lines += textwrap.wrap(
                line, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
            )
    return "\n".join(lines)


def _set_up(page: ClientPage, file: ClientFile) -> str:
    name = page.clients[0]
    told = registration(file, (*LAUNCH, "--config", CONFIG))
    offers = ", and offers the prompt hook" if _hook(page) else ""
    lines = [
        f"```sh\nforetool init --client {name}\n```\n",
        f"This registers foretool in place of the servers of {page.title}{offers}. {told.after}",
    ]
    if page.clients[1:]:
        lines.append(f"\n`--client {page.clients[1]}` does the same for {_title_of(page.clients[1])}.")
    if told.command:
        lines.append(f"\nIts own command writes the same:\n\n```sh\n{told.command}\n```")
    if told.link:
        lines.append("\n`foretool connect` also prints a link that has it ask you and add the entry.")
    return "\n".join(lines)


def _title_of(client: str) -> str:
    return next(each.title for each in files_of("linux") if each.client == client)


def _files(page: ClientPage) -> str:
    own = [each for each in zip(*map(files_of, SYSTEMS), strict=True) if each[0].client in page.clients]
    if len(own) == 1 and len(places := {place(file) for file in own[0]}) == 1:
        return f"`{places.pop()}` on every system."
    lines = ["| | Linux | macOS | Windows |", "|---|---|---|---|"]
    for each in own:
        title = each[0].title + ("" if each[0].registers else " (only read)")
        lines.append(f"| {title} | {' | '.join(f'`{place(file)}`' for file in each)} |")
    return "\n".join(lines)


def _entry(file: ClientFile) -> str:
    return registration(file, (*LAUNCH, "--config", CONFIG)).text


def _hook(page: ClientPage) -> ClientHook | None:
    return HOOKS.get(page.clients[0])


def _say_hook(page: ClientPage) -> str:
    if (hook := _hook(page)) is None:
        return f"None: {page.hook}." if page.hook else ""
    option = "" if hook.client == "claude-code" else f" --client {hook.client}"
    return (
        "At each prompt it names likely tools to the model. The first `init` adds it unless you say no, and `foretool"
        f" hint --install{option}` adds it to `{hook.file}`.{f' {hook.after}' if hook.after else ''}"
    )


def _seen(page: ClientPage) -> str:
    if not page.tried:
        return f"Not tried here: {page.why_not}."
    return (
        f"It ran here: {page.tried}. [The transcript](transcripts/{page.clients[0]}.txt) has what was typed, what"
        " foretool printed, and what the model read and called."
    )
