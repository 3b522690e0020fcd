"""`foretool stats`: how often a needed tool was hidden, and what lists and answers cost, by day and client."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from msgspec.structs import asdict

from foretool.server import offline
from foretool.server.commands import output
from foretool.server.commands.misses import read_duration
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.loader import load
from foretool.server.recording.costs import Costs, add_costs, by_client, read_costs

NARROW = 100
"""On fewer columns each day and client is shown as a card of three lines instead of a row."""


@click.command("stats")
@click.option(
    "--since", type=read_duration, metavar="TIME", default="14d", show_default=True,
    help="Only the last 7d, 12h, 30min, ...",
)  # fmt: skip
@config_option
@json_option
def command(path: Path | None, as_json: bool, since: float) -> int:
    """Show misses, discovery turns and tokens, by day and client.

    A miss is a needed tool that neither the list nor a hint had shown. A discovery turn is one that the model spent on
    discover_tools. "read" is what the model read of foretool per task: the list at every turn, and each answer and hint
    from then on. "full list" is what listing every tool would have cost instead.
    """
    now = time.time()
    with offline.read(load(path)) as app:
        full = sum(app.catalog.tokens(tool.id) for tool in app.catalog.tools())
        with output.waiting("adding up what is on record"):
            rows = read_costs(app.store, now - since, now, full)
    total, clients = add_costs(rows, ""), by_client(rows)
    told: dict[str, Any] = {
        "since": now - since, "full_list_tokens": full, "total": describe(total),
        "clients": [describe(each) for each in clients.values()], "days": [describe(each) for each in rows],
    }  # fmt: skip
    return output.show(told, as_json, lambda _: _print(rows, clients, total))


def describe(costs: Costs) -> dict[str, Any]:
    """Return the counts of a row, and what they come to per call and per task; None where there is nothing to divide
    by."""
    return {
        **asdict(costs),
        "miss_rate": costs.miss_rate,
        "discoveries_per_task": costs.per_task(costs.discoveries),
        "hidden_per_task": costs.per_task(costs.hidden),
        "read_per_task": costs.per_task(costs.read_tokens),
        "full_per_task": costs.per_task(costs.full_tokens),
        "saved": costs.saved,
    }


def _print(rows: Sequence[Costs], clients: Mapping[str, Costs], total: Costs) -> None:
    if not rows:
        output.say("Nothing is on record for this time. Try a longer one: foretool stats --since 90d")
        return
    if output.console().width < NARROW:
        for row in rows:
            _print_card(row)
    else:
        columns = ("day", "client", "tasks#", "calls#", "missed#", "discoveries#", "hidden#", "read#", "full list#",
                   "saved#")  # fmt: skip
        output.table(columns, [_cells(row) for row in rows])
        output.say("Discoveries, hidden calls and tokens are per task.")
    if len(clients) > 1:
        for name, costs in clients.items():
            output.say(f"{name}: {_sentence(costs)}")
    output.say(f"in all: {_sentence(total)}", "bold")


def _cells(row: Costs) -> tuple[object, ...]:
    return (
        row.day, row.client, row.tasks, row.calls, _percent(row.miss_rate), _number(row.per_task(row.discoveries), 2),
        _number(row.per_task(row.hidden), 2), _number(row.per_task(row.read_tokens)),
        _number(row.per_task(row.full_tokens)), _percent(row.saved),
    )  # fmt: skip


def _print_card(row: Costs) -> None:
    output.say(f"{row.day}  {row.client}", "bold")
    for line in _lines(row):
        output.say(f"  {line}")


def _lines(row: Costs) -> list[str]:
    found = [
        f"{output.plural(row.tasks, 'task')}, {output.plural(row.calls, 'call')}, missed {_percent(row.miss_rate)}"
    ]
    if row.tasks:
        found.append(
            f"per task: {_number(row.per_task(row.discoveries), 2)} discovery turns,"
            f" {_number(row.per_task(row.hidden), 2)} hidden calls"
        )
        found.append(
            f"{_number(row.per_task(row.read_tokens))} tokens read, {_number(row.per_task(row.full_tokens))} with the"
            f" full list: {_percent(row.saved)} saved"
        )
    return found


def _sentence(costs: Costs) -> str:
    return "; ".join(_lines(costs))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
