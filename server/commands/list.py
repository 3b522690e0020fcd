"""`foretool list`: shows the servers of the config, and the state of each."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final, Literal

import click
from msgspec import Struct
from rich.text import Text

from foretool.server import offline
from foretool.server.app import App
from foretool.server.commands import edits, output
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.loader import Config, load
from foretool.server.setup.masking import describe_entry
from foretool.server.trust.held_words import count_held
from foretool.server.upstreams.running import find_running, states_by_upstream
from foretool.server.upstreams.upstream import State
from foretool.storage.records import Failure, UpstreamState

Condition = Literal["running", "starting", "failing", "idle", "new", "disabled", "wrong"]

_STYLES: Final[dict[Condition, str]] = {
    "running": "green", "starting": "yellow", "failing": "red", "idle": "", "new": "yellow", "disabled": "dim",
    "wrong": "red",
}  # fmt: skip
_OF_STATE: Final[dict[str, Condition]] = {
    State.READY.value: "running",
    State.STARTING.value: "starting",
    State.UNLISTED.value: "failing",
    State.RETRYING.value: "failing",
}


class ListedServer(Struct, frozen=True):
    """One server of the config."""

    name: str
    condition: Condition
    """`failing`: it could not be used when it was last tried. `idle`: no proxy runs it now, and its tools are known.
    `new`: it was never tried. `wrong`: its entry cannot be used."""
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

    @property
    def is_well(self) -> bool:
        return self.condition not in ("failing", "wrong")


@click.command("list")
@config_option
@json_option
def command(path: Path | None, as_json: bool) -> int:
    """Show the servers of the config, and the state of each.

    Exits with 1 if one of them fails or cannot be used. `foretool status` shows more of running proxies, `foretool
    tools` the tools.
    """
    own = edits.open_file(path)
    with edits.errors_of(own.path):
        entries = own.servers()
    config = load(path)
    with offline.read(config) as app:
        found = list_servers(app, config, entries)
    output.show(found, as_json, _print)
    return int(not all(each.is_well for each in found))


def list_servers(app: App, config: Config, entries: Mapping[str, object]) -> list[ListedServer]:
    """Return the servers in the order of the file. `entries` is what the file says of them."""
    states = states_by_upstream(find_running(app.store.serving.states()))
    held = [each for each in app.store.approvals.undecided() if each.state == "held"]
    found = []
    for name in config.prefixes:
        failure = app.upstreams.failure(name)
        condition, error = _condition(name, config, states.get(name), failure, app.upstreams.unlisted())
        tools = app.catalog.of(name) if name in config.servers else []
        entry, waiting = entries.get(name), [each for each in held if each.server == name]
        if condition != "failing":
            failure = None
        found.append(
            ListedServer(
                name=name,
                condition=condition,
                tools=len(tools),
                tokens=sum(app.catalog.tokens(tool.id) for tool in tools),
                runs=describe_entry(entry) if isinstance(entry, Mapping) else "",
                held=count_held(waiting) if waiting and name in config.servers else "",
                error=error,
                failing_since=failure.first_at if failure else None,
                failed_at=failure.last_at if failure else None,
                failures=failure.times if failure else 0,
            )
        )
    return found


def _condition(
    name: str, config: Config, state: UpstreamState | None, failure: Failure | None, unlisted: Collection[str]
) -> tuple[Condition, str]:
    """Return the condition of a server, and why it fails or cannot be used. `state`: what a running proxy says.
    `failure`: how it ended when it was last tried."""
    if name in config.broken:
        return "wrong", config.broken[name]
    if name in config.disabled:
        return "disabled", ""
    idle: Condition = "new" if name in unlisted else "idle"
    condition = _OF_STATE.get(state.state, idle) if state is not None else idle
    if failure is not None and condition != "running":
        return "failing", failure.reason
    return condition, state.last_error if state is not None and condition == "failing" else ""


def _print(found: list[ListedServer]) -> None:
    if not found:
        output.say("No server yet. To add one: foretool add NAME -- COMMAND, or foretool add URL")
        return
    rows = [
        (
            each.name,
            Text(each.condition, _STYLES[each.condition]),
            each.tools or "",
            f"{each.tokens:,}" if each.tokens else "",
            each.runs,
        )
        for each in found
    ]
    output.table(("server…", "state", "tools#", "tokens#", "runs…"), rows)
    for each in found:
        if each.error:
            output.say(f"{each.name}: {each.error}{_say_when(each)}", "red")
        if each.held:
            output.say(f"{each.name}: {each.held}; nobody has approved this: foretool review {each.name}", "yellow")
    if failing := [each.name for each in found if each.condition == "failing"]:
        output.say(f"To see why {' and '.join(failing[:3])} fail{'s' if len(failing) == 1 else ''}: foretool doctor")
    if new := [each.name for each in found if each.condition == "new"]:
        output.say(f"Tools not known yet: {', '.join(new)}. To start each once: foretool doctor")


def _say_when(server: ListedServer) -> str:
    """Say how often a server has failed, and when."""
    if server.failing_since is None or server.failed_at is None:
        return ""
    last = output.ago(server.failed_at)
    if server.failures == 1:
        return f" (tried {last})"
    return f" (failed {server.failures} times: first {output.ago(server.failing_since)}, last {last})"
