"""What is said over a local socket: JSON, one message on each line.

    caller  {"foretool": 1, "wants": "hint", "config": "/home/me/.config/foretool/mcp.json", "profile": ""}
    proxy   {"foretool": 1, "version": "0.1.0", "pid": 4711, "config": "/home/me/...", "storage": "/home/me/...",
             "profile": "", "folder": "/home/me/work"}
    caller  {"id": 1, "ask": {...}}
    proxy   {"id": 1, "answer": {...}}

The first member of both greetings is the version of this form. A proxy that cannot serve the caller answers
`{"foretool": 1, "error": "..."}` and closes. What follows the greetings belongs to the service that the caller wants.
A caller may send its first message with its greeting; it must check the proxy's greeting before it uses the answer.

A window that wants to join a running proxy says in its greeting what its environment holds. A proxy gives its servers
variables of its own environment, so a window joins only a proxy whose servers would get the same ones. The values stay
with the window: it sends digests under a key that is new in each greeting. The value of PATH is sent, because two that
differ may lead to the same programs.

A prompt hook and the relay of a window import this file, so it imports nothing that takes time or memory.
"""

from __future__ import annotations

import os
import sys

from foretool._version import __version__
from foretool.server.local.places import FORM as FORM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final

    from foretool.server.local.places import ProxyIdentity

MOST_GREETING: Final = 64 * 1024
"""Bytes of a greeting. That of a window names every variable of its environment."""


MOST_BYTES: Final = 256 * 1024
"""Bytes of a message, unless a service says otherwise."""
SERVICE: Final = "window"
STATUS: Final = "windows"
"""The service that says which windows a proxy has."""
_DIGEST_BYTES: Final = 12
WINDOW_BYTES: Final = 8
"""Of the name of a window, which is written as hex digits: half of the key of each of its sessions."""
WELCOME: Final = f'{{"foretool":{FORM},"version":'.encode()
"""How the greeting of a proxy begins that takes the window in."""
REFUSAL: Final = f'{{"foretool":{FORM},"error":"'.encode()
EXIT: Final = f'{{"foretool":{FORM},"exit":'.encode()
"""How a proxy that was just started says that it cannot serve, and with which exit status the window ends."""


def encode(message: dict[str, Any]) -> bytes:
    """Return a message as one line. JSON writes line breaks within texts as `\\n`."""
    import json  # takes 1 MiB, and a window needs none

    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


def decode(line: bytes) -> dict[str, Any]:
    """Read one line. Raises `ValueError` for what is not an object."""
    import json

    try:
        message = json.loads(line)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(message, dict):
        raise ValueError("not an object")
    return message


def refuse_greeting(greeting: dict[str, Any]) -> str:
    """Say why a greeting of the other side cannot be answered; "" if it can."""
    if "error" in greeting:
        return str(greeting["error"])[:200]
    if greeting.get("foretool") != FORM:
        return f"expected form {FORM} of the local socket, found {str(greeting.get('foretool'))[:20]!r}; restart it"
    return ""


def digest_variable(value: str, salt: bytes) -> str:
    """Return hex digits that tell two values of a variable apart and do not give them away."""
    try:
        from _blake2 import blake2b  # hashlib takes 3 MiB, for OpenSSL
    except ImportError:
        from hashlib import blake2b
    return blake2b(os.fsencode(value), digest_size=_DIGEST_BYTES, key=salt).hexdigest()


def installation() -> str:
    """Return which code runs, as its folder and the version of Python: two installations may have the same version."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))  # noqa: PTH120
    return f"{package} {sys.version_info.major}.{sys.version_info.minor}"


def write_hello(wanted: ProxyIdentity, environ: Mapping[str, str], window: str) -> bytes:
    """Return the greeting of this process as a window, as one line. `window`: its name, the same for as long as it is
    open, by which a new proxy finds what the last one has recorded of it."""
    salt = os.urandom(16)
    own = {
        "wants": SERVICE, "config": wanted.config, "profile": wanted.profile or "", "folder": wanted.folder,
        "version": __version__, "installation": installation(), "path": environ.get("PATH", ""), "salt": salt.hex(),
        "window": window,
    }  # fmt: skip
    variables = {name: digest_variable(value, salt) for name, value in environ.items()}
    members = [*(f'"{key}":{_quote(text)}' for key, text in own.items()), f'"pid":{os.getpid()}']
    written = ",".join(f'{_quote(name)}:"{digest}"' for name, digest in variables.items())
    return f'{{"foretool":{FORM},{",".join(members)},"environment":{{{written}}}}}\n'.encode()


def _quote(text: str) -> str:
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
    import json  # takes 1 MiB, and most windows need none

    return json.dumps(text)
