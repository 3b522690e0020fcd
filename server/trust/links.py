"""Addresses that servers hand to clients: where a link leads, and which icons leave us.

A link is opened by the user, who reads its host; an icon is fetched by the client without a question. So an icon is a
picture in itself (`data:image/`) or stands at a public name under `https://` (specification 2026-07-28, icons).
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Raw

from foretool.server.protocol import jsonrpc
from foretool.server.trust.text import clean_json

_PICTURE: Final = re.compile(r"data:image/[a-z0-9.+-]+[;,]", re.IGNORECASE)
_PUBLIC: Final = re.compile(r"https://(?P<host>[a-z0-9._-]+\.[a-z][a-z0-9-]*)\.?(:\d+)?")
_LOCAL_NAME: Final = re.compile(r"(^|\.)(localhost|local|internal|home\.arpa|lan)$")


def link_place(url: str) -> str:
    """Return scheme, host and port of an address, in ASCII, so that no letter passes for another one. Raises ValueError
    for what is no `http://` or `https://` address, or could be read in two ways."""
    from urllib.parse import urlsplit  # takes milliseconds to import, and few servers send users anywhere

    try:
        parts = urlsplit(url)
        host, port = (parts.hostname or "").encode("idna").decode(), parts.port
    except ValueError:  # also of a host that cannot be written in ASCII
        host = ""
    if not url.lower().startswith(("https://", "http://")) or not host or re.search(r"[\s\\\x00-\x20]", url):
        raise ValueError("expected a url that begins with https:// and names a host")
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "")


def clean_member(member: bytes) -> bytes:
    """Return a listed member (a tool, prompt, resource or template) as it may leave us, the same object if it may leave
    as it is: without invisible characters, and without icons that lead elsewhere than to a picture.

    Raises ValueError as `clean_json` does.
    """
    cleaned = clean_json(member)
    # A key may be written in escapes: `"\\u0069cons"`.
    if b'"icons"' not in cleaned and b"\\u" not in cleaned:
        return cleaned
    members = jsonrpc.fields(Raw(cleaned))
    if "icons" not in members:
        return cleaned
    try:
        icons = jsonrpc.items(members["icons"])
    except ValueError:
        icons = []
    safe_icons = [icon for icon in icons if _is_safe(jsonrpc.member(icon, "src"))]
    if len(safe_icons) == len(icons) and icons:
        return cleaned
    del members["icons"]
    return jsonrpc.encode({**members, "icons": safe_icons} if safe_icons else members)


def _is_safe(source: str | None) -> bool:
    if source is None:
        return False
    if _PICTURE.match(source):
        return True
    try:
        place = link_place(source)
    except ValueError:
        return False
    # A number in any spelling is an address, and leads into this machine or its network as easily as out of it.
    written = _PUBLIC.fullmatch(place)
    return written is not None and _LOCAL_NAME.search(written["host"]) is None
