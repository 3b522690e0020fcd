"""The servers of the config, and the condition of each: what `foretool list` and the page show."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Literal

from msgspec import Struct

from foretool.server.app import App
from foretool.server.config.loader import Config
from foretool.server.setup.masking import describe_entry
from foretool.server.trust.approvals import count_held
from foretool.server.upstreams.memory import find_running, states_by_upstream
from foretool.server.upstreams.upstream import State
from foretool.storage.records import Failure, UpstreamState

Condition = Literal["running", "starting", "failing", "idle", "empty", "new", "edited", "disabled", "wrong"]

CONDITIONS: Final[dict[Condition, str]] = {
    "running": "a proxy uses it now",
    "starting": "a proxy starts it now",
    "failing": "it could not be used when it was last tried",
    "idle": "its tools are known, and no proxy runs it now",
    "empty": "it works and lists no tools, so clients get none from it",
    "new": "it was never started, so its tools are not known",
    "edited": "its entry has changed since it last listed its tools, so these are not known",
    "disabled": "your config has switched it off",
    "wrong": "its entry in the config cannot be used",
}
_OF_STATE: Final[dict[str, Condition]] = {
    State.READY.value: "running",
    State.STARTING.value: "starting",
    State.UNLISTED.value: "failing",
    State.RETRYING.value: "failing",
}


class ListedServer(Struct, frozen=True):
    name: str
    condition: Condition
    """`CONDITIONS` says what each means."""
    tools: int
    tokens: int
    """Of all its tools' definitions."""
    runs: str
    """Its command or address, without secrets."""
    held: str
    """What it has changed and nobody has approved, in words, or ""."""
    error: str
    """Why it fails or cannot be used, or ""."""
    failing_since: float | None = None
    """When it first failed; null if it is not known to fail."""
    failed_at: float | None = None
    """When it failed last."""
    failures: int = 0
    """How often it has failed since then."""
    counted: bool = True
    """Whether the tokens of all its tools are counted; else `tokens` is an estimate."""
    listed_now: int = 0
    """How many tools it lists to the clients of a running proxy; 0 where no proxy runs it."""

    @property
    def is_well(self) -> bool:
        return self.condition not in ("failing", "wrong")

    @property
    def is_unlisted(self) -> bool:
        """Whether its tools are not known, and it has not failed."""
        return self.condition in ("new", "edited")


def list_servers(app: App, config: Config, entries: Mapping[str, object]) -> list[ListedServer]:
    """Return the servers in the order of the file. `entries` is what the file says of them."""
    states = states_by_upstream(find_running(app.store.serving.states()))
    known = app.store.catalog.names()
    held = [each for each in app.store.approvals.undecided() if each.state == "held"]
    found = []
    for name in config.prefixes:
        failure = app.upstreams.failure(name)
        condition, error = _condition(name, config, states.get(name), failure, app.upstreams.unlisted())
        if condition == "new" and app.upstreams.capabilities(name) is not None:
            condition = "empty"
        elif condition == "new" and name in known:
            condition = "edited"
        tools = app.catalog.of(name) if name in config.servers else []
        entry, waiting = entries.get(name), [each for each in held if each.server == name]
        if condition != "failing":
            failure = None
        state = states.get(name)
        found.append(
            ListedServer(
                name=name,
                condition=condition,
                tools=len(tools),
                tokens=sum(app.catalog.tokens(tool.id) for tool in tools),
                counted=all(tool.tokens is not None for tool in tools),
                runs=describe_entry(entry) if isinstance(entry, Mapping) else "",
                held=count_held(waiting) if waiting and name in config.servers else "",
                error=error,
                failing_since=failure.first_at if failure else None,
                failed_at=failure.last_at if failure else None,
                failures=failure.times if failure else 0,
                listed_now=state.tools if state is not None and condition == "running" else 0,
            )
        )
    return found


def _condition(
    name: str, config: Config, state: UpstreamState | None, failure: Failure | None, unlisted: Collection[str]
) -> tuple[Condition, str]:
    """Return the condition of a server, and why it fails or cannot be used. `state`: what a running proxy says.
    `failure`: how it ended when it was last tried."""
    if name in config.wrong:
        return "wrong", config.wrong[name]
    if name in config.disabled:
        return "disabled", ""
    idle: Condition = "new" if name in unlisted else "idle"
    condition = _OF_STATE.get(state.state, idle) if state is not None else idle
    if failure is not None and condition != "running":
        return "failing", failure.reason
    return condition, state.last_error if state is not None and condition == "failing" else ""
