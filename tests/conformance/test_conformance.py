"""The official conformance suite against the proxy: as a server in front of an aggregate, and as a client behind it.

The suite is pinned. It judges revision 2025-11-25, by all that its versions before asked, and 2026-07-28. It ends with
an exit status of zero when nothing failed that is scored; how many checks passed is held to what was reached before.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from listening import over_http, printing
from node import TOOLS, environment, package
from requirements import requirement
from served import write_config

HERE = Path(__file__).parent
FIXTURE = [sys.executable, str(HERE / "fixture.py")]
ECHO = {"command": sys.executable, "args": [str(HERE.parent / "support" / "echo_upstream.py")]}
PATIENCE_S = 240
SUITE, VERSION = "@modelcontextprotocol/conformance", "0.2.0-alpha.12"
LEGACY, MODERN = "2025-11-25", "2026-07-28"

pytestmark = [pytest.mark.conformance, pytest.mark.real, pytest.mark.timeout(1200)]


@contextmanager
def behind(kind: str) -> Iterator[dict[str, Any]]:
    """The fixture server's entry in the config."""
    if kind == "stdio":
        yield {"command": FIXTURE[0], "args": FIXTURE[1:], "prefix": "", "trust": "auto"}
        return
    options = ["--http", "--legacy"] if kind == "legacy" else ["--http"]
    with printing([*FIXTURE, *options]) as url:
        yield {"url": url, "prefix": "", "trust": "auto"}


@pytest.fixture(scope="module")
def front(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of the proxy before the fixture server, which another server stands beside."""
    with behind(request.param) as entry:
        config = write_config(
            tmp_path_factory.mktemp("front"),
            {"fixture": entry, "echo": ECHO},
            policy="full",
            list_whole=True,
            list_fill=True,
            insecure_loopback=True,
        )
        with over_http(config) as url:
            yield url


def judged(*arguments: str) -> tuple[int, int, str]:
    """Exit status, checks passed, and what the suite said."""
    command = [package(SUITE, VERSION, "conformance"), *arguments]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False, cwd=TOOLS
    )
    said = re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr)
    total = re.findall(r"^(?:Total|Passed): (\d+)", said, re.MULTILINE)
    return done.returncode, int(total[-1]) if total else 0, said


def through(python: str) -> str:
    """The client of the suite's scenarios for clients."""
    return f"{python} {HERE / 'through.py'} {python}"


def failures(said: str) -> str:
    return "\n".join(line for line in said.splitlines() if line.strip().startswith(("✗", "Total", "- ", "Scenario")))


TASKS = {
    *("lifecycle", "capability-negotiation", "wire-fields", "request-state-removal", "mrtr-input", "request-headers"),
    *("dispatch-and-envelope", "mrtr-composition"),
}
"""Scenarios of the extension for tasks, which are run and not scored. In another one, `required-task-error`, a client
without the extension is to get an error for a tool that runs as a task alone: it gets the result from us."""


@requirement("conformance:server", "tasks:forwarded")
@pytest.mark.parametrize(
    ("front", "revision", "reached"),
    [
        ("http", LEGACY, 84),
        ("http", MODERN, 169),
        # A pipe has no streams to be polled, so one scenario that is not scored has less to see.
        ("stdio", LEGACY, 83),
        ("stdio", MODERN, 169),
        ("legacy", LEGACY, 84),
    ],
    indirect=["front"],
)
def test_a_suite_finds_nothing_wrong(front: str, revision: str, reached: int) -> None:
    status, passed, said = judged("server", "--url", front, "--requirements", revision)
    assert status == 0, failures(said)
    assert passed >= reached, failures(said)
    if revision == MODERN:
        assert {*re.findall(r"^✓ tasks-(\S+): [1-9]\d* passed, 0 failed", said, re.MULTILINE)} >= TASKS, failures(said)


NEEDS_A_MODERN_UPSTREAM = {
    "server-stateless",  # what a legacy upstream may rely on is declared once for all clients of an HTTP session
    "input-required-result-basic-elicitation",
    "input-required-result-basic-sampling",
    "input-required-result-basic-list-roots",
    "input-required-result-request-state",
    "input-required-result-multiple-input-requests",
    "input-required-result-multi-round",
    "input-required-result-non-tool-request",
    "input-required-result-result-type",
    "input-required-result-tampered-state",
    "input-required-result-capability-check",
}
"""Scenarios whose tools answer `input_required` themselves, which a server of the legacy era cannot."""


@requirement("conformance:server")
@pytest.mark.parametrize("front", ["legacy"], indirect=True)
def test_a_modern_client_before_a_legacy_upstream_misses_only_what_that_era_lacks(front: str) -> None:
    _, passed, said = judged("server", "--url", front, "--requirements", MODERN)
    scored = said.partition("Not scored for")[0]
    failed = {name for name in re.findall(r"^✗ (\S+):", scored, re.MULTILINE) if not name.startswith("tasks-")}
    assert failed <= NEEDS_A_MODERN_UPSTREAM, failures(said)
    assert passed >= 145, failures(said)


@requirement("conformance:client")
@pytest.mark.parametrize(("revision", "scenarios"), [(LEGACY, 18), (MODERN, 32)])
def test_the_proxy_and_login_are_clients_as_a_revision_wants(
    forking_python: str, revision: str, scenarios: int
) -> None:
    chosen = ["--requirements", revision, "--timeout", str(PATIENCE_S * 1000)]
    status, _, said = judged("client", "--command", through(forking_python), *chosen)
    assert status == 0, failures(said)
    passed = re.findall(r"^✓ (\S+): [1-9]\d* passed, 0 failed", said, re.MULTILINE)
    # One came after the revisions, and is not scored.
    assert len(passed) == scenarios + 1 and "json-schema-2020-12-preservation" in passed, failures(said)


@requirement("conformance:client")
@pytest.mark.parametrize("scenario", ["metadata-backcompat", "endpoint-fallback"])
def test_the_proxy_and_login_sign_in_as_an_earlier_revision_wants(forking_python: str, scenario: str) -> None:
    chosen = ["--scenario", f"auth/2025-03-26-oauth-{scenario}", "--spec-version", "2025-03-26"]
    status, _, said = judged("client", "--command", through(forking_python), *chosen)
    assert status == 0, said[-3000:]


async def elicited(http: Any, url: str, caller: int) -> str:
    """One modern call whose legacy upstream asks the user; what the tool says of the answer."""
    space = "io.modelcontextprotocol"
    meta = {
        f"{space}/protocolVersion": MODERN,
        f"{space}/clientInfo": {"name": f"caller-{caller}", "version": "1"},
        f"{space}/clientCapabilities": {"elicitation": {}},
    }
    headers = {
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": MODERN,
        "mcp-method": "tools/call",
        "mcp-name": "test_elicitation",
    }
    params: dict[str, Any] = {"name": "test_elicitation", "arguments": {"message": f"for {caller}"}, "_meta": meta}
    for _ in range(2):
        message = {"jsonrpc": "2.0", "id": caller, "method": "tools/call", "params": params}
        response = await http.post(url, json=message, headers=headers, timeout=60)
        result = response.json()["result"]
        if result["resultType"] == "complete":
            return str(result["content"][0]["text"])
        ((key, question),) = result["inputRequests"].items()
        assert question["params"]["message"] == f"Server 'fixture' asks: for {caller}"
        answer = {"action": "accept", "content": {"username": f"user-{caller}", "email": "a@b.c"}}
        params |= {"inputResponses": {key: answer}, "requestState": result["requestState"]}
    pytest.fail("the tool asked twice")


@pytest.fixture(scope="module")
def skilled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The URLs of a server with skills, and of the proxy before it, with skills of the user's own."""
    own = tmp_path_factory.mktemp("own")
    (own / "baking").mkdir()
    (own / "baking" / "SKILL.md").write_text("---\nname: baking\ndescription: How to bake bread.\n---\n")
    with printing([sys.executable, str(HERE / "skills_fixture.py")]) as url:
        entry = {"url": url, "prefix": "", "trust": "auto"}
        config = write_config(
            tmp_path_factory.mktemp("front"), {"fixture": entry, "echo": ECHO}, policy="full", skills=[str(own)],
            insecure_loopback=True,
        )  # fmt: skip
        with over_http(config) as front:
            yield url, front


@requirement("conformance:skills")
@pytest.mark.parametrize(("scenario", "reached"), [("enumeration", 32), ("manifest", 6), ("directory", 7)])
def test_the_scenarios_of_skills_pass_as_directly(skilled: tuple[str, str], scenario: str, reached: int) -> None:
    for url in skilled:
        chosen = ["--scenario", f"sep-2640-skills-{scenario}", "--spec-version", MODERN, "--force"]
        status, _, said = judged("server", "--url", url, *chosen)
        assert status == 0 and f"Passed: {reached}/{reached}, 0 failed, 0 warnings" in said, said[-3000:]


@requirement("question:parked")
@pytest.mark.anyio
@pytest.mark.parametrize("front", ["legacy"], indirect=True)
async def test_many_modern_callers_at_once_answer_a_legacy_upstream_each_for_itself(front: str) -> None:
    async with httpx2.AsyncClient() as http:
        said = await asyncio.gather(*(elicited(http, front, caller) for caller in range(32)))
    for caller, line in enumerate(said):
        assert f'"username": "user-{caller}"' in line
