"""What the tests of long calls share: a patience of a millisecond, and what a model does with what it is told."""

from __future__ import annotations

import re
import time
from typing import Any

from fakes import FakeClient, Json, Stage, said

WAIT_S = 0.001
IDENT = re.compile(r'"call_result", "arguments": \{"id": "([0-9a-f]{32})"\}')


async def call_slow(stage: Stage, client: FakeClient, **options: Any) -> tuple[Json, str]:
    """Call the slow tool and wait no longer; what the client is told, and the id in it."""
    call = client.post("tools/call", {"name": "calc__slow", "arguments": {}}, **options)
    upstream = stage.app.fakes["calc"]
    await upstream.called("slow", sum(name == "slow" for name, _ in upstream.calls) + 1)
    answer = await let_pass(stage, client, call)
    found = IDENT.search(said(answer))
    assert found is not None, answer
    return answer, found[1]


async def let_pass(stage: Stage, client: FakeClient, call: Any) -> Json:
    """Let the patience of the client's request come to its end; its answer."""
    time.sleep(2 * WAIT_S)  # noqa: ASYNC251  # the wall clock tells how long a client has waited
    stage.app.tick()
    result: Json = await client.result(call)
    return result


def ask(client: FakeClient, ident: str, **arguments: Any) -> Any:
    """Ask for the result, as the answer says; the id of the request."""
    wanted = {"name": "call_result", "arguments": {"id": ident, **arguments}}
    return client.post("tools/call", {"name": "call_tool", "arguments": wanted})
