"""`foretool learn`: trains from the log and from demonstrations, promotes what is better, rolls back, and reports."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any, Final

import click
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from foretool.learning.timeline import read_demonstrations
from foretool.retrieval.methods import METHODS
from foretool.server import offline
from foretool.server.catalog import models
from foretool.server.commands import output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.options import config_option, json_option, refuse_together
from foretool.server.config.loader import load
from foretool.storage.opening import open_store, store_exists
from foretool.storage.records import Artifact, Tool
from foretool.storage.store import Store

_METHODS: Final = (*METHODS, models.WEIGHTS)


@click.command("learn")
@click.option(
    "--from",
    "files",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    multiple=True,
    metavar="FILE",
    help="Import demonstrations first: JSON lines with query, calls and, optionally, edges.",
)
@click.option(
    "--method", "methods", type=click.Choice(_METHODS), multiple=True, help="Learn only this; may be repeated."
)
@click.option(
    "--rollback", is_flag=True, help="Serve the models again that those in use replaced (with --method, only that one)."
)
@click.option("--report", is_flag=True, help="Show which models serve and what came of every run; train nothing.")
@click.option("--background", is_flag=True, hidden=True, help="Give way to everything else that runs.")
@config_option
@json_option
def command(
    path: Path | None,
    as_json: bool,
    files: tuple[Path, ...],
    methods: tuple[str, ...],
    rollback: bool,
    report: bool,
    background: bool,
) -> int:
    """Learn from the tasks on record which tools the next ones need.

    Trains every method that has enough tasks, and compares it on later tasks with the models in use. A model that
    ranks them better is promoted (docs/learning.md says how sure that has to be), and running proxies load it. The
    records and the models stay in your storage.

    \b
    foretool learn --from demonstrations.jsonl
    foretool learn --report
    foretool learn --rollback --method dtdr
    """
    refuse_together(report=report, rollback=rollback)
    config = load(path)
    if report or rollback:
        if not store_exists(config.storage):
            return complain("learn: nothing is on record yet; let a client call tools through `foretool serve`", WRONG)
        with open_store(config.storage) as store:
            return _roll_back(store, methods, as_json) if rollback else _report(store, as_json)
    if background:
        # One thread, since calls come first.
        os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
        os.nice(10)
    with open_store(config.storage, busy_ms=5000) as store, offline.open_offline(config) as app:
        store.hide(lambda: config.secrets)
        tools = app.catalog.tools()
        if not tools:
            return complain(
                "learn: no tools are known yet; let a client connect once, and see `foretool doctor`", WRONG
            )
        for file in files:
            _import(store, file, tools)
        return _learn(config, app.catalog, store, methods, as_json=as_json, quiet=background)


def _import(store: Store, file: Path, tools: Sequence[Tool]) -> None:
    """Import the demonstrations of a file. Raises `ClickException` if the file is wrong."""
    from foretool.server.catalog.names import names_for_demonstrations

    try:
        read = read_demonstrations(file, names_for_demonstrations(tools))
    except ValueError as error:
        raise click.ClickException(f"learn: {error}") from None
    episodes = list(read.episodes)
    # Files are often sorted by tool, but the replayed tasks have to be like those trained on.
    Random(7).shuffle(episodes)  # noqa: S311 (an order, not a secret)
    new = store.artifacts.add_demonstrations(episodes)
    output.warn(f"{file}: {new} new of {output.plural(read.rows, 'demonstration')}")
    if read.unknown:
        some = ", ".join(read.unknown[:5]) + (", ..." if len(read.unknown) > 5 else "")
        output.warn(f"{file}: rows with {output.plural(len(read.unknown), 'unknown tool')} were left out: {some}")


def _learn(config: Any, catalog: Any, store: Store, methods: Sequence[str], *, as_json: bool, quiet: bool) -> int:
    from foretool.learning import run as learning
    from foretool.learning.encoded_texts import EMBED_S

    bars = Progress(
        TextColumn("{task.fields[kind]:<10}", markup=False), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
        TextColumn("{task.description}", markup=False), TimeElapsedColumn(),
        console=output.console(error=True), transient=True,
        disable=quiet,
    )  # fmt: skip
    bar_of: dict[str, TaskID] = {}

    def say(kind: str, what: str, share: float) -> None:
        if kind not in bar_of:
            bar_of[kind] = bars.add_task(what, total=1.0, kind=kind)
        bars.update(bar_of[kind], description=what, completed=share)

    try:
        with bars:
            run = learning.learn(config, catalog, store, say, methods=methods)
    except learning.Busy as error:
        return complain(f"learn: {error}", WRONG)
    if as_json:
        output.emit(run)
        return 0
    for result in run.results:
        output.say(f"{result.kind:<10} {result.outcome:<9} {result.reason}")
    if run.waiting:
        output.say(
            f"{output.plural(run.waiting, 'task')} not embedded yet: a run spends {EMBED_S:.0f} s on that, with rare"
            " tools and the latest tasks first, and the next one goes on; while most are not, models read words alone"
        )
    is_new = any(result.outcome == "promoted" and result.number for result in run.results)
    has_models = any(each.kind != "run" for each in store.artifacts.history())
    output.say(
        f"{output.plural(run.episodes, 'task')} ({run.imported} imported){_say_left_out(run)}, {run.took_s:.1f} s"
        f"{'; `foretool learn --report` has all' * has_models}"
        f"{', `foretool learn --rollback` takes it back' * is_new}"
    )
    return 0


def _say_left_out(run: Any) -> str:
    """Say which tasks on record a run did not learn from, "" if it read all of them."""
    left = [f"{output.plural(run.gone, 'task')} whose tools are gone"] if run.gone else []
    left += [f"{output.plural(run.unshared, 'task')} not to be learned from"] if run.unshared else []
    return f", without {' and '.join(left)}" if left else ""


def _roll_back(store: Store, methods: Sequence[str], as_json: bool) -> int:
    artifacts = store.artifacts
    kinds = [kind for kind in artifacts.served() if not methods or kind in methods]
    done = {kind: artifacts.roll_back(kind) for kind in kinds}
    if as_json:
        output.emit(done)
        return 0
    if not done:
        output.say("No learned model serves; there is nothing to roll back.")
    for kind, outcome in done.items():
        assert outcome is not None
        before, now = outcome
        serves = f"{kind} {now.number} serves again" if now else "none serves; ranking goes on without it"
        output.say(f"{kind} {before.number} no longer serves; {serves}")
    return 0


def _report(store: Store, as_json: bool) -> int:
    found = store.artifacts.history()
    if as_json:
        output.emit({"served": [each for each in found if each.active], "history": found})
        return 0
    rows = [
        (each.kind, each.number, output.when(each.created_at), _state(each),
         each.report.get("episodes", "-"), each.report.get("replayed", "-"), *_figures(each.report))
        for each in found if each.kind != "run"
    ]  # fmt: skip
    if not rows:
        output.say("Nothing was learned yet; `foretool learn` trains once there are enough tasks.")
        return 0
    columns = ("kind", "number#", "when", "state", "tasks#", "replayed#", "was", "became", "difference")
    output.table(columns, rows[:20])
    latest = {each.kind: each for each in reversed(found) if each.report.get("reason")}
    for each in latest.values():
        output.say(f"{each.kind} {each.number}, {_state(each)}: {each.report['reason']}")
    output.say("was, became: mean reciprocal rank of the next tool on later tasks")
    return 0


def _state(artifact: Artifact) -> str:
    if artifact.active:
        return "served"
    if not artifact.promoted_at:
        return "not better"
    return "replaced" if artifact.size else "replaced, bytes gone"


def _figures(report: dict[str, Any]) -> tuple[str, str, str]:
    old, new = report.get("old", {}), report.get("new", {})
    low, mean, high = report.get("difference", (0.0, 0.0, 0.0))
    return f"{old.get('mrr', 0):.3f}", f"{new.get('mrr', 0):.3f}", f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"
