"""How a client learns of foretool: the lines for its file, its own command that writes them, and a link that does."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote

from msgspec import Struct

from foretool.server.setup.clients import ClientFile
from foretool.server.setup.documents import ConfigDocument, open_document, value_at

NAME: Final = "foretool"
"""What we are called in the files of clients."""


class Registration(Struct, frozen=True):
    """How one client is told of foretool: the entry in its file, and a command or link if it takes one."""

    client: str
    title: str
    file: str
    """The file that `text` belongs into; the user creates it if it does not exist."""
    entry: dict[str, Any]
    """The same as `text`, as values."""
    text: str
    """The lines, in the format of the file."""
    command: str
    """A command of the client that does the same, or ""."""
    link: str
    """A link that has the client ask its user and do the same, or ""."""
    after: str
    """What the user does next."""


_AFTER: Final = {
    "claude-code": "Check with: claude mcp list",
    "codex": "Check with: codex mcp list",
    "cursor": "Then enable it in Settings, MCP.",
    "vscode": "Then start it in the MCP servers view.",
    "vscode-insiders": "Then start it in the MCP servers view.",
}


def registration(file: ClientFile, launch: Sequence[str]) -> Registration:
    """Return how a client is told of foretool; `launch` is the program and its arguments."""
    document = open_document("", file.kind)
    register(document, file, launch)
    entry = value_at(document.data(), file.keys)
    for key in reversed(file.keys):
        entry = {key: entry}
    return Registration(
        client=file.client,
        title=file.title,
        file=str(file.path),
        entry=entry,
        text=document.text().strip(),
        command=_command(file.client, launch),
        link=_link(file.client, launch),
        after=_AFTER.get(file.client, f"Then restart {file.title}."),
    )


def register(document: ConfigDocument, file: ClientFile, launch: Sequence[str]) -> None:
    """Write our entry into the text of a client's file. Raises `DocumentError`."""
    entry = file.dialect.write(launch[0], tuple(launch[1:]))
    if file.is_list and not value_at(document.data(), file.keys):
        document.set(file.keys, [{"name": NAME, **entry}])
    else:
        document.set((*file.keys, NAME), entry)


def _command(client: str, launch: Sequence[str]) -> str:
    if client == "claude-code":
        return f"claude mcp add --scope user {NAME} -- {shlex.join(launch)}"
    if client == "codex":
        return f"codex mcp add {NAME} -- {shlex.join(launch)}"
    if client in ("vscode", "vscode-insiders"):
        program = "code" if client == "vscode" else "code-insiders"
        entry = {"name": NAME, "command": launch[0], "args": list(launch[1:])}
        return f"{program} --add-mcp {shlex.quote(json.dumps(entry))}"
    return ""


def _link(client: str, launch: Sequence[str]) -> str:
    entry = {"command": launch[0], "args": list(launch[1:])}
    if client == "cursor":
        packed = base64.b64encode(json.dumps(entry).encode()).decode()
        return f"cursor://anysphere.cursor-deeplink/mcp/install?name={NAME}&config={quote(packed, safe='')}"
    if client in ("vscode", "vscode-insiders"):
        return f"{client}:mcp/install?{quote(json.dumps({'name': NAME, **entry}), safe='')}"
    return ""
