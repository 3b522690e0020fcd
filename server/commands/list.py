"""`foretool list`: the servers of the config, and the state of each; and `foretool` alone: the state in a few lines."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import click
from msgspec import Struct
from rich.text import Text

from foretool._version import __version__
from foretool.server import offline
from foretool.server.checks.clients import UNREGISTERED, find_registered
from foretool.server.commands import edits, output
from foretool.server.commands.exit import USAGE, WRONG
from foretool.server.commands.options import config_option, json_option
from foretool.server.commands.running import ask_proxies, find_unrecorded, say_proxy_troubles
from foretool.server.config.errors import ConfigError, name_some, split_place
from foretool.server.config.files import find_place
from foretool.server.config.loader import Config, load
from foretool.server.ledger.conditions import Condition, ListedServer, list_servers
from foretool.server.ledger.fixes import most_missed
from foretool.server.recording.notes import ProxyJob, find_failing_jobs
from foretool.server.recording.store_watch import TroubleNote, find_trouble, say_full_disk
from foretool.server.trust.approvals import review_command
from foretool.server.upstreams.memory import find_running
from foretool.server.upstreams.upstream import LISTS_NONE
from foretool.storage.engine import StorageError
from foretool.storage.records import MissCount, MissFilter

_STYLES: Final[dict[Condition, str]] = {
    "running": "green", "starting": "yellow", "failing": "red", "idle": "", "empty": "yellow", "new": "yellow",
    "edited": "yellow", "disabled": "dim", "wrong": "red",
}  # fmt: skip


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
    with offline.open_offline(config) as app:
        found = list_servers(app, config, entries)
    output.show(found, as_json, _print)
    return int(not all(each.is_well for each in found))


def _print(found: list[ListedServer]) -> None:
    if not found:
        output.say("No server yet. To add one: foretool add NAME -- COMMAND, or foretool add URL")
        return
    rows = [
        (
            each.name,
            Text(each.condition, _STYLES[each.condition]),
            each.tools or "",
            output.tokens(each.tokens, counted=each.counted) if each.tokens else "",
            each.runs,
        )
        for each in found
    ]
    output.table(("server…", "state", "tools#", "tokens#", "runs…"), rows)
    output.say_estimated(each.counted for each in found)
    _say_errors(found)
    for each in found:
        if each.held:
            output.say(f"{each.name}: {each.held}; nobody has approved this: {review_command(each.name)}", "yellow")
    if failing := [each.name for each in found if each.condition == "failing"]:
        who = name_some(failing, _NAMED)
        output.say(f"To see why {who} fail{'s' if len(failing) == 1 else ''}: foretool doctor")
    for each in found:
        if 0 < each.listed_now < each.tools:
            rest = "the others depend on what a client can do, or came with a new version"
            output.say(f"{each.name}: clients that run now get {each.listed_now:,} of its {each.tools:,} tools; {rest}")
    if empty := [each.name for each in found if each.condition == "empty"]:
        lists = "lists no tools" if len(empty) == 1 else "list no tools"
        output.say(f"{', '.join(empty)} {lists}: {LISTS_NONE}", "yellow")
    if new := [each.name for each in found if each.is_unlisted]:
        output.say(f"Tools not known yet: {', '.join(new)}. To start each once: foretool doctor")


def _say_errors(servers: Iterable[ListedServer]) -> None:
    """Print why servers cannot be used; what is wrong with several stands once, without the place and times of each."""
    for alike in _put_alike_together(servers):
        first, names = alike[0], ", ".join(each.name for each in alike)
        said = f"{first.error}{_say_when(first)}" if len(alike) == 1 else split_place(first.error).problem
        output.say(f"{names}: {said}", "red")


def _say_errors_briefly(servers: Iterable[ListedServer]) -> None:
    """Print why servers cannot be used, in a line or two for each of the first problems."""
    problems = _put_alike_together(servers)
    for alike in problems[:_PROBLEMS]:
        names = name_some([each.name for each in alike], _NAMED)
        output.say(f"{names}: {output.shorten(split_place(alike[0].error).problem, _BRIEF)}", "red")
    if more := sum(map(len, problems[_PROBLEMS:])):
        output.say(f"and {more} more: foretool doctor", "red")


def _put_alike_together(servers: Iterable[ListedServer]) -> list[list[ListedServer]]:
    """Return the servers that cannot be used, those with the same problem together."""
    return output.put_together((each for each in servers if each.error), lambda each: split_place(each.error).problem)


def _say_when(server: ListedServer) -> str:
    """Say how often a server has failed, and when."""
    if server.failing_since is None or server.failed_at is None:
        return ""
    last = output.ago(server.failed_at)
    if server.failures == 1:
        return f" (tried {last})"
    return f" (failed {server.failures} times: first {output.ago(server.failing_since)}, last {last})"


_RECENT_S: Final = 14 * 86_400
_NAMED: Final = 3
"""How many servers a line names."""
_PROBLEMS: Final = 3
"""How many problems of servers `foretool` alone tells."""
_BRIEF: Final = 140
"""Characters of a problem there: two lines of a narrow terminal."""


class Overview(Struct, frozen=True):
    """The state of servers, storage and background jobs, as `foretool` without a command shows it."""

    servers: tuple[ListedServer, ...]
    proxies: int
    """Running ones."""
    tools: int
    tokens: int
    """Of all tools' definitions."""
    listed_tokens: int
    """Of the list that a client starts with."""
    missed: MissCount | None
    """The most missed tool of the last two weeks that a list of now still lacks and that a change would show."""
    calls: int
    """All that are on record."""
    is_registered: bool = True
    """Whether a client's file has foretool."""
    disk_full: str = ""
    """That the disk of the storage is full or its file cannot be written, and the way out; "" where it can."""
    without_storage: tuple[TroubleNote, ...] = ()
    """Running proxies that cannot write the storage, and why."""
    failing_jobs: tuple[ProxyJob, ...] = ()
    """What running proxies cannot do in the background."""

    @property
    def is_stored(self) -> bool:
        return not (self.disk_full or self.without_storage)

    @property
    def is_well(self) -> bool:
        """Whether every server works, all is stored, and no background job fails."""
        return self.is_stored and not self.failing_jobs and all(each.is_well for each in self.servers)


def show_overview(path: Path | None = None) -> int:
    """Print the state and the next step. Returns the exit status."""
    place = find_place(path, os.environ).path
    if not place.exists():
        output.say(f"foretool {__version__}: not set up yet ({edits.short(place)} does not exist).", "bold")
        _say_next(
            "foretool init", "takes over the servers of your MCP clients; it shows every change before it makes one"
        )
        return 0
    try:
        config = load(path)
        state = read_state(config)
    except ConfigError as error:
        output.say(f"foretool {__version__}: the config cannot be used.", "bold")
        for line in edits.explain_refused_config(error):
            output.say(line, "red")
        _say_next("foretool doctor", "checks again after you have corrected it")
        return USAGE
    except StorageError as error:
        output.say(f"foretool {__version__}: the storage file cannot be used.", "bold")
        output.say(str(error), "red")
        _say_next("foretool doctor", "says what to do about it")
        return WRONG
    _print_state(state)
    _say_next(*next_step(state))
    return int(not state.is_well)


def read_state(config: Config) -> Overview:
    """Read what the config and the store say. Raises `StorageError`."""
    without_storage = tuple(find_trouble(config.storage))
    with offline.open_offline(config) as app:
        servers = tuple(list_servers(app, config, {}))
        states = app.store.serving.states()
        noted = {each.pid for each in without_storage}
        running = noted | find_unrecorded(ask_proxies(config), states, without_storage)
        view = offline.view(app, config.profiles[""])
        return Overview(
            servers=servers,
            proxies=len(running | {each.pid for each in find_running(states)}),
            tools=sum(each.tools for each in servers),
            tokens=sum(each.tokens for each in servers),
            listed_tokens=view.tokens,
            missed=most_missed(app, app.store.calls.count_misses(MissFilter(time.time() - _RECENT_S)), view.told),
            calls=app.store.statistics().calls,
            is_registered=bool(find_registered(config.path)),
            disk_full=say_full_disk(config.storage) or app.store.notice,
            without_storage=without_storage,
            failing_jobs=find_failing_jobs(config.storage),
        )


def next_step(state: Overview) -> tuple[str, str]:
    """Return the next sensible command, and what it is good for."""
    enabled = [each for each in state.servers if each.condition != "disabled"]
    if not state.is_stored:
        return "foretool doctor", "says why nothing can be stored, and what to do"
    if enabled and not state.is_registered and not state.proxies:
        return "foretool init", "registers foretool with your clients, and starts every server once"
    if failing := [each.name for each in state.servers if not each.is_well]:
        return "foretool doctor", f"says what is wrong with {name_some(failing, _NAMED)}"
    if state.failing_jobs:
        return "foretool doctor", "says why a background job fails, and what to do"
    if not enabled:
        return "foretool add NAME -- COMMAND", "adds a server; foretool init takes over those of your clients"
    if held := [each.name for each in state.servers if each.held]:
        return (
            "foretool review",
            f"shows what {name_some(held, _NAMED)} changed; nothing of it is served before you approve it",
        )
    if new := [each.name for each in enabled if each.is_unlisted]:
        return (
            "foretool doctor",
            f"starts {name_some(new, _NAMED)} once, to see whether {'it works' if len(new) == 1 else 'they work'}",
        )
    if state.missed is not None:
        times = output.plural(state.missed.count, "time")
        what = (
            f"says why {state.missed.tool} was hidden when it was needed ({times}), and makes the change that shows it"
        )
        return f"foretool misses {state.missed.last_id} --fix", what
    if not state.calls and not state.proxies:
        return "restart your clients", "they start foretool then; none has called a tool yet"
    return "foretool status --stats", "shows what models read and what they missed; all is well"


def _print_state(state: Overview) -> None:
    disabled = sum(each.condition == "disabled" for each in state.servers)
    off = f" ({disabled} disabled)" if disabled else ""
    what = f"{output.plural(len(state.servers), 'server')}{off}, {output.plural(state.tools, 'tool')}"
    output.say(f"foretool {__version__}: {what}", "bold")
    if state.tools:
        counted = all(each.counted for each in state.servers)
        tokens, listed = (output.tokens(each, counted=counted) for each in (state.tokens, state.listed_tokens))
        output.say(f"Their definitions take {tokens} tokens; a client's first list takes {listed}.")
        output.say_estimated([counted])
    if state.proxies:
        output.say(f"{output.plural(state.proxies, 'proxy')} {'runs' if state.proxies == 1 else 'run'} now.")
    elif state.is_registered:
        output.say("No proxy runs now; clients start one themselves.")
    else:
        output.say(f"No proxy runs now, and {UNREGISTERED}.")
    _say_errors_briefly(state.servers)
    say_proxy_troubles(state.without_storage, state.failing_jobs)
    if state.disk_full:
        output.say(state.disk_full, "red")


def _say_next(command: str, what: str) -> None:
    output.say(f"\nNext: {command}", "bold")
    output.say(f"      {what}. All commands: foretool --help --all")
