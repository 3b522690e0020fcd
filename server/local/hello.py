"""The greeting of a window that wants to join a running proxy: what it wants, and what its environment says.

A proxy gives its servers variables of its own environment, so a window joins only a proxy whose servers would get the
same ones. The values stay with the window: it sends digests under a key that is new in each greeting. The value of PATH
is sent, because two that differ may lead to the same programs.

The relay of a window imports this file, so it imports nothing that takes memory.
"""

from __future__ import annotations

import os
import sys

from foretool._version import __version__
from foretool.server.local.places import FORM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Final

    from foretool.server.local.places import ProxyIdentity

SERVICE: Final = "window"
STATUS: Final = "windows"
"""The service that says which windows a proxy has."""
_DIGEST_BYTES: Final = 12
WELCOME: Final = f'{{"foretool":{FORM},"version":'.encode()
"""How the greeting of a proxy begins that takes the window in."""
REFUSAL: Final = f'{{"foretool":{FORM},"error":"'.encode()
EXIT: Final = f'{{"foretool":{FORM},"exit":'.encode()
"""How a proxy that was just started says that it cannot serve, and with which exit status the window ends."""


def digest_variable(value: str, salt: bytes) -> str:
    """Return hex digits that tell two values of a variable apart and do not give them away."""
    try:
        from _blake2 import blake2b  # hashlib takes 3 MiB, for OpenSSL
    except ImportError:
        from hashlib import blake2b
    return blake2b(os.fsencode(value), digest_size=_DIGEST_BYTES, key=salt).hexdigest()


def installation() -> str:
    """Return which code runs: two installations may have the same version."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))  # noqa: PTH120
    return f"{package} {sys.version_info.major}.{sys.version_info.minor}"


def write_hello(wanted: ProxyIdentity, environ: Mapping[str, str]) -> bytes:
    """Return the greeting of this process as a window, as one line."""
    salt = os.urandom(16)
    own = {
        "wants": SERVICE, "config": wanted.config, "profile": wanted.profile or "", "folder": wanted.folder,
        "version": __version__, "installation": installation(), "path": environ.get("PATH", ""), "salt": salt.hex(),
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
