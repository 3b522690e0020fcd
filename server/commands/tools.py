"""`foretool tools`: lists every tool with its tokens, the lists that contain it, and its use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

import click
import msgspec
from msgspec import Struct
from msgspec.structs import replace

from foretool.server import offline, packs
from foretool.server.app import App
from foretool.server.catalog.definitions import write_definition
from foretool.server.commands import output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.options import config_option, json_option, require_server
from foretool.server.config.loader import load
from foretool.server.config.settings import PolicyChoice, Risk
from foretool.server.config.variables import is_pattern
from foretool.server.inspection import INSTRUCTIONS, Inspection, inspect
from foretool.server.trust.findings import TextFinding
from foretool.server.trust.policy import Source
from foretool.storage.records import Tool, Usage


class Row(Struct, frozen=True):
    """One tool, as `foretool tools` prints it."""

    name: str
    upstream: str
    tokens: int
    counted: bool
    """Whether `tokens` is a count rather than an estimate."""
    pinned: bool
    listed: tuple[str, ...]
    """Profiles whose list defines it; "" is the list without a profile."""
    named: tuple[str, ...]
    """Profiles whose list names it with its arguments, so that clients call it without a search."""
    calls: int
    misses: int
    last_used: float
    risk: Risk
    risk_from: Source
    """Who says so: `config` (your `risk`), `server` (its annotations), or `none`; then it counts as destructive for a
    rule."""
    bridge: str
    """Which of our tools calls it, `call_tool` or `call_tool_write`; "" if a rule denies it."""
    denied: str
    """The rule that denies it without a profile, or ""."""
    findings: tuple[TextFinding, ...]
    """What looks wrong in its text; looked for with `--json` and `--findings` only."""


class Listed(Struct, frozen=True):
    """The list that clients of one profile get, in numbers."""

    profile: str
    policy: PolicyChoice
    tools: int
    """Those that it defines, our own among them."""
    named: int
    """Those that it names with their arguments."""
    tokens: int
    budget: int
    epoch: int


class Inventory(Struct, frozen=True):
    """Tools in the requested order, and the tokens of the whole catalog and of the lists."""

    tools: tuple[Row, ...]
    lists: tuple[Listed, ...]
    catalog_tools: int
    catalog_tokens: int
    catalog_counted: bool
    """Whether all of these tokens are counted rather than estimated."""
    unlisted_servers: tuple[str, ...]
    """Servers whose tools are not known yet."""
    failing_servers: tuple[str, ...]
    """Those of them that could not be used when they were last tried, or whose entries cannot be used."""
    personal_servers: tuple[str, ...]
    """Servers with `per_user`: each person has a list of tools of their own there, which is not among `tools`."""
    waiting: dict[str, int]
    """By server, how many tools wait for your approval and are not served in an earlier version."""
    instructions: dict[str, tuple[TextFinding, ...]]
    """By server, what looks wrong in its instructions; looked for where `findings` are."""


_ORDERS: Final[dict[str, Callable[[Row], Any]]] = {
    "name": lambda row: row.name,
    "tokens": lambda row: (-row.tokens, row.name),
    "calls": lambda row: (-row.calls, -row.misses, row.name),
    "used": lambda row: (-row.last_used, row.name),
}
"""The sort keys of the option `--sort`."""


@click.command("tools")
@click.argument("pattern", default="")
@click.option(
    "--server", "--upstream", "-u", "upstream", default="", metavar="NAME", help="Show only tools of this server."
)
@click.option("--unused", is_flag=True, help="Show only tools that were never called, the largest first.")
@click.option(
    "--sort",
    type=click.Choice(tuple(_ORDERS)),
    default="name",
    show_default=True,
    help="Order of the rows, the largest or latest first.",
)
@click.option("--findings", "suspicious", is_flag=True, help="Show only what looks wrong in the text of tools.")
@click.option("--needs", is_flag=True, help="Show which tools need the results of others; PATTERN is one tool then.")
@click.option("--schema", default="", metavar="NAME", help="Print one tool's definition as clients see it.")
@config_option
@json_option
def command(
    path: Path | None,
    as_json: bool,
    pattern: str,
    upstream: str,
    unused: bool,
    sort: str,
    suspicious: bool,
    needs: bool,
    schema: str,
) -> int:
    """Show every tool, its risk, its tokens, its lists and its use.

    PATTERN is a part of the name or a shell pattern ("git__*").

    What tools need comes from schemas (a tool takes a field that another one returns), from calls (a value from a
    result was later an argument of another tool; foretool keeps the names of such fields, never the values), and from
    training.
    """
    if needs:
        return int(packs.require(packs.SHOW_NEEDS, "tools --needs")(path, pattern, as_json=as_json))
    config = load(path)
    if upstream:
        require_server(config, upstream, "--server: ")
    with offline.open_offline(config) as app:
        if schema:
            tool = app.catalog.find(schema)
            if tool is None:
                return complain(f"--schema: {offline.say_unknown(app, schema)}", WRONG)
            click.echo(msgspec.json.format(bytes(write_definition(tool)), indent=2))
            return 0
        inspection = inspect(app.catalog) if as_json or suspicious else Inspection({})
        order = "tokens" if unused else sort
        with output.waiting("counting tokens"):
            inventory = take_inventory(app, inspection, pattern, upstream, unused=unused, order=order)
        fits = not inventory.catalog_tools or any(fits_pattern(each.id, pattern) for each in app.catalog.tools())
        unknown = "" if fits else f"tools: {_say_none_fits(app, pattern)}"
    if suspicious:
        inventory = replace(inventory, tools=tuple(row for row in inventory.tools if row.findings))
    output.show(inventory, as_json, _print_findings if suspicious else lambda shown: _print(shown, unused))
    return complain(unknown, WRONG) if unknown else 0


def take_inventory(
    app: App, inspection: Inspection, pattern: str, upstream: str, *, unused: bool, order: str
) -> Inventory:
    """Return the tools that fit the options, and the size of the catalog and of the lists."""
    catalog, config = app.catalog, app.config
    usage = {each.tool: each for each in app.catalog.meanings.count_under_new_names(app.store.calls.usage())}
    views = {name: offline.view(app, profile) for name, profile in config.profiles.items()}
    pinned, reach = set(catalog.pins(config.settings.pin)), app.policy.reach(config.profiles[""])

    def row(tool: Tool) -> Row:
        used = usage.get(tool.id, Usage(tool.id, 0, 0, 0.0))
        listed = tuple(name for name, view in views.items() if tool.id in view.shown)
        named = tuple(name for name, view in views.items() if tool.id in view.named)
        counted, tokens = tool.tokens is not None, catalog.tokens(tool.id)
        is_pinned, verdict = tool.id in pinned, reach.verdict(tool)
        return Row(
            tool.id, tool.upstream, tokens, counted, is_pinned, listed, named, used.calls, used.misses, used.last_at,
            verdict.risk, verdict.source, "" if verdict.denied else verdict.bridge, verdict.denied,
            inspection.of(tool),
        )  # fmt: skip

    tools, unlisted = catalog.tools(), app.upstreams.unlisted()
    personal = tuple(name for name, server in config.servers.items() if server.per_user is not None)
    rows = [row(tool) for tool in tools if fits_pattern(tool.id, pattern) and upstream in ("", tool.upstream)]
    return Inventory(
        tools=tuple(sorted((row for row in rows if not (unused and row.calls)), key=_ORDERS[order])),
        lists=tuple(
            Listed(
                name,
                config.profiles[name].policy,
                len(view.tools),
                len(view.named),
                view.tokens,
                view.budget,
                view.epoch,
            )
            for name, view in views.items()
        ),
        catalog_tools=len(tools),
        catalog_tokens=sum(catalog.tokens(tool.id) for tool in tools),
        catalog_counted=all(tool.tokens is not None for tool in tools),
        unlisted_servers=(
            *(name for name in config.servers if name in unlisted and name not in personal),
            *config.wrong,
        ),
        failing_servers=(
            *(name for name in config.servers if name in unlisted and app.upstreams.failure(name) is not None),
            *config.wrong,
        ),
        personal_servers=personal,
        waiting=dict(
            Counter(
                server
                for server, exposed in offline.find_waiting(app)
                if fits_pattern(exposed, pattern) and upstream in ("", server)
            )
        ),
        instructions={
            name: found[INSTRUCTIONS]
            for name, found in inspection.by_server.items()
            if INSTRUCTIONS in found and upstream in ("", name)
        },
    )


def fits_pattern(name: str, pattern: str) -> bool:
    """Return whether a name matches a shell pattern, or contains a text in upper or lower case."""
    if is_pattern(pattern):
        return fnmatchcase(name, pattern)
    return pattern.lower() in name.lower()


def _say_none_fits(app: App, pattern: str) -> str:
    return offline.why_unserved(app, pattern) or f"no tool fits {pattern!r}{offline.suggest_names(app, pattern)}"


def _print(inventory: Inventory, unused: bool) -> None:
    if inventory.tools:
        rows = [
            (
                row.name + (" (pinned)" if row.pinned else ""), _risk(row),
                output.tokens(row.tokens, counted=row.counted),
                _in_lists(row), row.calls, row.misses, output.ago(row.last_used),
            )
            for row in inventory.tools
        ]  # fmt: skip
        output.table(("name…", "risk", "tokens#", "listed for…", "calls#", "misses#", "last used"), rows)
        output.say("calls: those that ran, without refused ones.")
        if unused:
            _print_unused(inventory.tools)
    else:
        output.say("No tool matches." if inventory.catalog_tools else "No tools are known yet.")
    is_counted = inventory.catalog_counted
    tokens = output.tokens(inventory.catalog_tokens, counted=is_counted)
    output.say(f"catalog: {output.plural(inventory.catalog_tools, 'tool')}, {tokens} tokens")
    for listed in inventory.lists:
        whose = f"next list of profile {listed.profile}" if listed.profile else "next list"
        share = f", {listed.tokens / inventory.catalog_tokens:.0%} of the catalog" if inventory.catalog_tokens else ""
        tokens = output.tokens(listed.tokens, counted=is_counted)
        names = f" and the names of {listed.named}" if listed.named else ""
        shown = f"{output.plural(listed.tools, 'tool')}{names}, {tokens} tokens{share}"
        output.say(f"{whose}: {shown} (budget {listed.budget:,}, policy {listed.policy})")
    output.say_estimated([is_counted])
    if inventory.personal_servers:
        names = ", ".join(inventory.personal_servers)
        output.say(
            f"for each person: {names}; who is signed in has tools of their own there (per_user), which are listed to"
            " nobody else, and not here"
        )
    if inventory.waiting:
        counts = ", ".join(f"{count} of {name}" for name, count in inventory.waiting.items())
        output.say(f"not served, because they wait for your approval: {counts}; `foretool review` shows them")
    if new := [name for name in inventory.unlisted_servers if name not in inventory.failing_servers]:
        names = ", ".join(new)
        output.say(f"not known yet: {names}; their tools appear once a client connects; `foretool doctor` checks them")
    if inventory.failing_servers:
        names = ", ".join(inventory.failing_servers)
        output.say(f"not known, because the servers do not work: {names}; `foretool list` says why")


def _in_lists(row: Row) -> str:
    by_name = [f"{name or 'all'} by name" for name in row.named]
    return ", ".join((*(name or "all" for name in row.listed), *by_name))


def _risk(row: Row) -> str:
    if row.denied:
        return "denied"
    return row.risk if row.risk_from != "none" else "unmarked"


def _print_findings(inventory: Inventory) -> None:
    tools = {row.name: row.findings for row in inventory.tools}
    instructions = {f"instructions of {name}": each for name, each in inventory.instructions.items()}
    for name, findings in {**instructions, **tools}.items():
        output.say(name, "bold")
        for each in findings:
            color = "yellow" if each.severity != "low" else ""
            output.say(f"  ! {each.kind} ({each.severity}) in {each.where}: {each.excerpt}", color)
    looked_at = output.plural(inventory.catalog_tools, "tool")
    if tools:
        output.say(f"The text of {len(tools)} of {looked_at} looks wrong; clients are shown it all the same.")
        output.say('To leave a tool out, add it to "exclude" of its server; "disabled" leaves out the server.')
    else:
        output.say(f"Nothing looks wrong in the text of {looked_at}.")


def _print_unused(tools: Sequence[Row]) -> None:
    """Print the tokens of the tools that nobody calls, by server, and how to leave them out."""
    tokens = sum(row.tokens for row in tools)
    output.say(f"never called: {output.plural(len(tools), 'tool')}, {tokens:,} tokens in a full list")
    for upstream in dict.fromkeys(row.upstream for row in tools):
        own = [row.tokens for row in tools if row.upstream == upstream]
        output.say(f"  {upstream}: {len(own)}, {sum(own):,} tokens")
    output.say('To leave them out, add them to "exclude" of their server, or set "disabled" for the whole server.')
