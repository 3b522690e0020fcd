"""What a client is told before anything is known of it."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from fakes import FakeUpstream, proxy_over
from requirements import requirement

from foretool._version import __version__
from foretool.server.protocol import versions
from foretool.server.protocol.general_greeting import FIND_TOOLS, greet_anybody


def hello(version: object = "2025-06-18", ident: object = 0) -> bytes:
    params = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}
    return json.dumps({"jsonrpc": "2.0", "id": ident, "method": "initialize", "params": params}).encode()


@requirement("windows:opening")
@pytest.mark.parametrize(
    ("wanted", "given"),
    [*((each, each) for each in versions.LEGACY_VERSIONS), ("2026-07-28", "2025-11-25"), ("9", "2025-11-25")],
)
def test_the_version_is_negotiated_as_the_proxy_does(wanted: str, given: str) -> None:
    answer = json.loads(greet_anybody(hello(wanted)) or b"")
    assert answer["result"]["protocolVersion"] == given


@pytest.mark.parametrize("ident", [0, -7, 2**70, "a-1", "\u00e4", 'q"uote'], ids=str)
def test_the_answer_has_the_id_and_only_what_is_true_of_every_config(ident: int | str) -> None:
    assert json.loads(greet_anybody(hello(ident=ident)) or b"") == {
        "jsonrpc": "2.0",
        "id": ident,
        "result": {
            "protocolVersion": "2025-06-18",
            "capabilities": {
                "tools": {"listChanged": True},
                "logging": {},
                "resources": {"subscribe": True, "listChanged": True},
                "prompts": {"listChanged": True},
                "completions": {},
            },
            "serverInfo": {"name": "foretool", "title": "foretool", "version": __version__},
            "instructions": FIND_TOOLS,
        },
    }


def discover(**meta: object) -> bytes:
    known = {versions.META_VERSION: "2026-07-28", versions.META_CLIENT_INFO: {"name": "c", "version": "1"}}
    params = {"_meta": {**known, versions.META_CAPABILITIES: {}, **meta}}
    return json.dumps({"jsonrpc": "2.0", "id": 0, "method": "server/discover", "params": params}).encode()


@requirement("windows:opening")
@pytest.mark.anyio
async def test_a_client_of_the_newest_era_is_told_what_a_proxy_of_unknown_servers_says() -> None:
    told = json.loads(greet_anybody(discover()) or b"")["result"]
    async with proxy_over(FakeUpstream("calc", ["add"])) as stage:
        own = await stage.client.modern().ask("server/discover")
        own["capabilities"].pop("extensions", None)  # skills, where this machine has some
    assert told == {**own, "instructions": FIND_TOOLS, "capabilities": told["capabilities"], "ttlMs": 2_000}
    assert told["capabilities"].keys() >= own["capabilities"].keys()


@pytest.mark.parametrize(
    "line",
    [
        discover(**{versions.META_VERSION: "2027-01-01"}),
        discover(**{versions.META_VERSION: ["2026-07-28"]}),
        discover(**{versions.META_CAPABILITIES: None}),
        discover().replace(b'"_meta"', b'"meta"'),
        b"",
        b"initialize",
        b"[" * 60_000,
        b"[1]",
        b"\xff" + hello(),
        hello()[:-1],
        hello() + hello(),
        hello(version=3),
        hello(version=None),
        hello(ident=None),
        hello(ident=True),
        hello(ident=1.5),
        hello(ident=[1]),
        hello().replace(b"initialize", b"server/discover"),
        discover().replace(b"server/discover", b"initialize"),
        hello().replace(b'"id": 0, ', b""),
        b'{"id":1,"method":"tools/call","params":{"protocolVersion":"x","method":"initialize"}}',
        b'{"id":1,"method":"initialize","params":{"protocolVersion":"x"},"id":2}',
        b'{"id":1,"method":"initialize","params":[]}',
    ],
    ids=lambda line: line[:60].decode(errors="replace"),
)
def test_what_is_to_be_refused_is_left_to_the_proxy(line: bytes) -> None:
    assert greet_anybody(line) is None


def test_it_loads_nothing_that_takes_time() -> None:
    script = (
        "import sys\n"
        "before = set(sys.modules)\n"
        "from foretool.server.protocol.general_greeting import greet_anybody\n"
        f"assert greet_anybody({hello()!r})\n"
        "print({'json', 're', 'typing', 'msgspec'} & (set(sys.modules) - before))\n"
    )
    told = subprocess.run([sys.executable, "-I", "-c", script], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "set()"
