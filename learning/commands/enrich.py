"""`foretool enrich`: has a language model word the wishes that tools serve, so that searches find them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

import click
from msgspec import Struct
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from foretool.learning.enrichment.run import (
    EnrichmentPlan,
    EnrichmentResult,
    LanguageModel,
    ToolQuestion,
    ask_about_tools,
    make_plan,
)
from foretool.learning.enrichment.wish_models import ChatEndpoint, LocalModel
from foretool.server import offline
from foretool.server.app import App
from foretool.server.commands import output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.options import config_option, json_option, refuse_together, require_server
from foretool.server.config.addresses import is_loopback
from foretool.server.config.loader import Config, load
from foretool.server.config.settings import EnrichEntry
from foretool.server.system import interrupts
from foretool.storage.opening import open_store, store_exists
from foretool.storage.records import Tool
from foretool.storage.store import Store

_BUSY_MS: Final = 5000
_EXAMPLE: Final = '"enrich": {"url": "http://127.0.0.1:11434/v1", "model": "llama3.2"}'
_LOCAL: Final = '"enrich": {"model": "~/models/qwen.gguf"}'


class Estimate(Struct, frozen=True):
    """What a run would ask, and what that costs."""

    model: str
    url: str
    tools: int
    known: int
    """Tools whose answers are kept already."""
    tokens_in: int
    tokens_out: int
    seconds: float
    is_guess: bool
    """Whether nobody has asked this model before, so that the time is a guess."""


class Enriched(Struct, frozen=True):
    """What was planned, and what came of it; `outcome` is null after `--dry-run`, or with nothing to ask."""

    estimate: Estimate
    outcome: EnrichmentResult | None


class KeptWording(Struct, frozen=True):
    """The wishes in everyday words that a language model wrote for one tool, as `enrich --show` prints them."""

    tool: str
    server: str
    model: str
    texts: tuple[str, ...]
    """Empty if none of the answer could be used."""
    at: float


class RemovedWordings(Struct, frozen=True):
    """How many answers were deleted."""

    removed: int


@click.command("enrich")
@click.option("--server", "servers", multiple=True, metavar="NAME", help="Only tools of this server; may be repeated.")
@click.option("--show", is_flag=True, help="Show the wordings that are kept, and which model made them; ask nothing.")
@click.option("--remove", is_flag=True, help="Delete the wordings, with --server those of that server; ask nothing.")
@click.option("--dry-run", is_flag=True, help="Only say what it would send where, and what it would cost.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@config_option
@json_option
def command(
    path: Path | None, as_json: bool, servers: tuple[str, ...], show: bool, remove: bool, dry_run: bool, yes: bool
) -> int:
    """Have a language model word the wishes that your tools serve.

    Asks the model that the setting `enrich` names about each tool, and keeps its answers. Searches read them beside
    what the server says, with less weight; clients are never shown them. Says what is sent where, and what that costs,
    before it sends anything. If you end it, it goes on from there next time.

    \b
    foretool enrich --dry-run
    foretool enrich --server github --yes
    foretool enrich --remove
    """
    refuse_together(show=show, remove=remove)
    config = load(path)
    for name in servers:
        require_server(config, name, "--server: ")
    if show or remove:
        if not store_exists(config.storage):
            return complain("enrich: nothing is on record yet; run `foretool enrich` first", WRONG)
        with open_store(config.storage, busy_ms=_BUSY_MS) as store:
            return _remove(store, servers, as_json) if remove else _show(store, servers, as_json)
    entry = config.settings.enrich
    if entry is None:
        return complain(f"enrich: {config.path}: foretool: no model is named; add {_EXAMPLE} or {_LOCAL}", WRONG)
    with open_store(config.storage, busy_ms=_BUSY_MS) as store, offline.open_offline(config) as app:
        store.hide(lambda: config.secrets)
        tools = list(_find_tools(app, config, servers))
        if not tools:
            return complain(
                "enrich: no tools are known yet; let a client connect once, and see `foretool doctor`", WRONG
            )
        plan = make_plan(entry, app.catalog, store, config.secrets.redact, tools)
        estimate = _estimate(plan, entry)
        if dry_run or not plan.questions:
            store.artifacts.bump_version()  # running proxies may lack what an earlier run has kept
            return output.show(Enriched(estimate, None), as_json, _print)
        if not yes:
            if as_json or not sys.stdin.isatty():
                raise click.UsageError("this asks a language model: add --yes, or --dry-run to see what it costs.")
            _print(Enriched(estimate, None))
            if not output.agrees(f"Ask about {output.plural(len(plan.questions), 'tool')}?"):
                output.say("Nothing was asked.")
                return WRONG
        elif not as_json:
            _print(Enriched(estimate, None))
        outcome = _ask(plan, entry, app, store)
    if not as_json:
        _print_outcome(outcome)
    else:
        output.emit(Enriched(estimate, outcome))
    return WRONG if outcome.problem and not outcome.kept + outcome.empty else 0


def _find_tools(app: App, config: Config, servers: Sequence[str]) -> Iterable[Tool]:
    """Yield the tools that some profile can find. What is held for review or blocked is not in the catalog."""
    reaches = [app.policy.reach(profile) for profile in config.profiles.values()]
    for tool in app.catalog.tools():
        if (not servers or tool.upstream in servers) and any(reach.finds(tool) for reach in reaches):
            yield tool


def _estimate(plan: EnrichmentPlan, entry: EnrichEntry) -> Estimate:
    return Estimate(
        entry.name, entry.url, len(plan.questions), plan.known, plan.tokens_in, plan.tokens_out,
        round(plan.seconds, 1), plan.is_guess,
    )  # fmt: skip


def _ask(plan: EnrichmentPlan, entry: EnrichEntry, app: App, store: Store) -> EnrichmentResult:
    bars = Progress(
        TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(),
        console=output.console(error=True), transient=True,
    )  # fmt: skip

    async def run() -> EnrichmentResult:
        model: LanguageModel = ChatEndpoint(entry) if entry.url else LocalModel(entry)
        try:
            return await ask_about_tools(plan, entry, model, app.catalog, store, tell)
        finally:
            await model.close()

    with bars:
        bar = bars.add_task(f"asking {output.printable_text(entry.name)}", total=len(plan.questions))

        def tell(question: ToolQuestion) -> None:
            bars.advance(bar)

        # Before the first answer, too: a proxy that starts after a run was killed reads what it has kept.
        store.artifacts.bump_version()
        try:
            return interrupts.run(run())
        finally:
            store.artifacts.bump_version()


def _print(enriched: Enriched) -> None:
    found = enriched.estimate
    if not found.tools:
        output.say(f"Nothing to ask: {output.plural(found.known, 'tool')} have their wordings by {found.model}.")
        return
    kept = f"; {found.known:,} have theirs already" if found.known else ""
    output.say(f"{output.plural(found.tools, 'tool')} to ask {found.model} about{kept}.")
    if found.url:
        where = "this machine" if _is_here(found.url) else "another machine"
        output.say_fact("where to", f"{found.url} ({where})", indent=2)
    else:
        output.say_fact("where to", "nowhere: the model runs in this command", indent=2)
    sent = "of each tool its server's name, its name, description and names of parameters, and what its server says"
    output.say_fact(
        "what", f"{sent} of itself; nothing of your tasks and calls, and no definition you have not approved", indent=2
    )
    output.say_fact("tokens", f"about {found.tokens_in:,} to read and {found.tokens_out:,} to write", indent=2)
    guess = ", a guess: nobody has asked this model yet" if found.is_guess else ", as fast as it was before"
    output.say_fact("time", f"about {output.span(found.seconds)}{guess}", indent=2)


def _is_here(url: str) -> bool:
    from urllib.parse import urlsplit

    try:
        return is_loopback(urlsplit(url).hostname or "")
    except ValueError:
        return False


def _print_outcome(outcome: EnrichmentResult) -> None:
    came = [f"{outcome.kept:,} got wordings"]
    if outcome.empty:
        came.append(f"{outcome.empty:,} got none that can be used")
    if outcome.failed:
        came.append(f"{outcome.failed:,} got no answer")
    see = " See `foretool enrich --show`." if outcome.kept else ""
    asked = output.plural(outcome.asked, "tool")
    output.say(f"Asked about {asked}: {', '.join(came)}; {outcome.tokens:,} tokens.{see}")
    if outcome.problem:
        output.warn(f"enrich: {outcome.problem}; run it again to go on")


def _show(store: Store, servers: Sequence[str], as_json: bool) -> int:
    found = [
        KeptWording(each.tool, each.server, each.model, each.texts, each.at)
        for each in store.wordings.all()
        if not servers or each.server in servers
    ]
    return output.show(found, as_json, _print_wordings)


def _print_wordings(found: Sequence[KeptWording]) -> None:
    if not found:
        output.say("No wordings are kept; `foretool enrich` makes them.")
        return
    rows = [(each.tool, "; ".join(each.texts) or "(none that can be used)", each.model) for each in found]
    output.table(("tool", "wording", "made by"), rows)


def _remove(store: Store, servers: Sequence[str], as_json: bool) -> int:
    removed = sum(store.wordings.remove(server) for server in servers or ("",))
    if removed:
        store.artifacts.bump_version()
    return output.show(
        RemovedWordings(removed), as_json, lambda each: output.say(f"{output.plural(each.removed, 'wording')} deleted.")
    )
