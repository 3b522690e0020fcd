"""What foretool says of itself to a client while nothing is known of it, of its servers and of its config.

Clients up to 2025-11-25 begin with `initialize`, those of 2026-07-28 with `server/discover`.

A window answers with it before it has a proxy (`local/opening`), so this file imports nothing that takes time or
memory. What it says is true whatever the servers are: the capabilities are those of a proxy whose servers are still
unknown (`methods/greeting`), and the instructions name no server.
"""

from __future__ import annotations

from foretool._version import __version__
from foretool.server.protocol.cut_lines import read_id

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

LEGACY_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
LATEST_LEGACY: Final = LEGACY_VERSIONS[0]
MODERN_VERSIONS: Final = ("2026-07-28",)

META_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"

UNTOLD: Final = "notifications/foretool/untold"
"""Tells a proxy that its client was greeted with other words than those of the proxy."""
UNTOLD_LINE: Final = b'{"jsonrpc":"2.0","method":"%b"}\n' % UNTOLD.encode()

INCOMPLETE_TTL_MS: Final = 2_000
"""How long a modern client may cache what will be more as soon as servers that are still starting are known."""

FIND_TOOLS: Final = (
    "To find the tool for a task, describe the task to discover_tools, then call what it finds as its answer says."
)

_CAPABILITIES: Final = (
    '{"tools":{"listChanged":true},"logging":{},"resources":{"subscribe":true,"listChanged":true},'
    '"prompts":{"listChanged":true},"completions":{}}'
)
_IDENTITY: Final = f'{{"name":"foretool","title":"foretool","version":"{__version__}"}}'
_SERVER_INFO: Final = f'"_meta":{{"io.modelcontextprotocol/serverInfo":{_IDENTITY}}}'


def choose_version(wanted: str) -> str:
    """Return the revision in which a client that wants this one is answered."""
    return wanted if wanted in LEGACY_VERSIONS else LATEST_LEGACY


def greet_anybody(line: bytes) -> bytes | None:
    """Return the answer to an `initialize` or a `server/discover` as one line; None for any other line, and for one
    that is to be refused."""
    ident = read_id(line, is_cut=False)
    try:
        message = _decode(line.decode().strip())
        method, params, given = message["method"], message["params"], message["id"]
        # The id is read from the bytes of the line, as the relay reads it. One that stands elsewhere is the proxy's.
        is_same = ident is not None and type(given) in (int, str) and _decode(ident.decode()) == given
        result = _results(method, params)
    except (ValueError, TypeError, KeyError, RecursionError, StopIteration):
        return None
    if result is None or ident is None or not is_same:
        return None
    return f'{{"jsonrpc":"2.0","id":{ident.decode()},"result":{result}}}'.encode()


def _results(method: object, params: Any) -> str | None:
    """Return the result of a request, as JSON. Raises `TypeError` and `KeyError`."""
    if method == "initialize" and isinstance(wanted := params["protocolVersion"], str):
        version = choose_version(wanted)
        return (
            f'{{"protocolVersion":"{version}","capabilities":{_CAPABILITIES},"serverInfo":{_IDENTITY},'
            f'"instructions":"{FIND_TOOLS}"}}'
        )
    if method == "server/discover":
        meta = params["_meta"]
        if meta[META_VERSION] in MODERN_VERSIONS and isinstance(meta[META_CAPABILITIES], dict):
            versions = '","'.join((*MODERN_VERSIONS, *LEGACY_VERSIONS))
            return (
                f'{{"supportedVersions":["{versions}"],"capabilities":{_CAPABILITIES},"instructions":"{FIND_TOOLS}",'
                f'"ttlMs":{INCOMPLETE_TTL_MS},"cacheScope":"private","resultType":"complete",{_SERVER_INFO}}}'
            )
    return None


class _Reading:
    """What `json.JSONDecoder` tells its scanner."""

    strict = True
    object_hook = object_pairs_hook = None
    parse_float = parse_constant = float
    parse_int = int


def _decode(text: str) -> Any:
    """Decode JSON without the package json, whose import takes a busy machine a tenth of a second. Raises `ValueError`
    and `StopIteration`."""
    try:
        from _json import make_scanner
    except ImportError:  # a Python without it
        import json

        return json.loads(text)
    found, end = make_scanner(_Reading)(text, 0)  # type: ignore[arg-type]
    if end != len(text):
        raise ValueError("more than one value")
    return found
