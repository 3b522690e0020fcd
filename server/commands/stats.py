"""`foretool stats`: how often a needed tool was hidden, and what lists and answers cost, by day and client."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import Any, Final

import click
from msgspec.structs import asdict

from foretool.retrieval.tokens import estimate
from foretool.server import offline
from foretool.server.commands import output
from foretool.server.commands.misses import read_duration
from foretool.server.commands.options import config_option, json_option
from foretool.server.config.loader import load
from foretool.server.recording.costs import Costs, add_costs, by_client, estimate_own_search, read_costs

BARS: Final = "▁▂▃▄▅▆▇█"
LONGEST_LINE: Final = 45
"""So many days stand side by side; of more, several share a bar."""
NARROW: Final = 130
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
    from then on. "full list" is what listing every tool would have cost instead. "own search" is an estimate of what a
    client reads that defers all tools behind a search of its own: the names of all tools at every turn, one search for
    each task, and five definitions from then on.
    """
    now = time.time()
    with offline.read(load(path)) as app:
        tools = app.catalog.tools()
        full = sum(app.catalog.tokens(tool.id) for tool in tools)
        with output.waiting("adding up what is on record"):
            rows = read_costs(app.store, now - since, now, full)
        estimate_own_search(rows, sum(estimate(tool.id) for tool in tools), full / max(len(tools), 1))
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
        "own_search_per_task": costs.per_task(costs.own_search_tokens),
        "saved_of_own_search": costs.saved_of_own_search,
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
                   "saved#", "own search#", "saved#")  # fmt: skip
        output.table(columns, [_cells(row) for row in rows])
        output.say("Discoveries, hidden calls and tokens are per task.")
    if len(clients) > 1:
        for name, costs in clients.items():
            if not costs.tasks and not costs.calls:
                continue
            output.say(f"{name}: {_sentence(costs)}")
            _print_courses([row for row in rows if row.client == name])
    output.say(f"in all: {_sentence(total)}", "bold")
    _print_courses(rows)


def _print_courses(rows: Sequence[Costs]) -> None:
    """Print how the figures went from day to day, the oldest first."""
    days = by_day(rows)
    if len(days) < 2:
        return
    courses: tuple[tuple[str, Sequence[float | None], Callable[[float], str]], ...] = (
        ("missed", [each.miss_rate for each in days], lambda share: f"{share:.0%}"),
        ("discoveries", [each.per_task(each.discoveries) for each in days], lambda count: f"{count:.2f} a task"),
        ("saved", [each.saved for each in days], lambda share: f"{share:.0%}"),
    )
    for name, values, write in courses:
        known = [each for each in values if each is not None]
        if known:
            least, most = write(min(known)), write(max(known))
            between = least if least == most else f"{least.removesuffix(' a task')} to {most}"
            output.say(f"  {name:<11}  {sparkline(values)}  {between}")


def by_day(rows: Sequence[Costs]) -> list[Costs]:
    """Return the sum of each day from the first to the last one; of neighbours together where there are too many."""
    sums = {day: add_costs((row for row in rows if row.day == day), "") for day in {row.day for row in rows}}
    first, last = (date.fromisoformat(end(sums)) for end in (min, max))
    all_days = [str(first + timedelta(days=number)) for number in range((last - first).days + 1)]
    size = -(-len(all_days) // LONGEST_LINE)
    return [
        add_costs((sums[day] for day in all_days[start : start + size] if day in sums), "")
        for start in range(0, len(all_days), size)
    ]


def sparkline(values: Sequence[float | None]) -> str:
    """Draw values as a line of bars between 0 and the highest; a blank where there is none."""
    most = max((each for each in values if each is not None), default=0.0)
    marks = [
        " " if each is None else BARS[0] if each <= 0 or most <= 0 else BARS[round(each / most * (len(BARS) - 1))]
        for each in values
    ]
    return "".join(marks)


def _cells(row: Costs) -> tuple[object, ...]:
    return (
        row.day, row.client, row.tasks, row.calls, _percent(row.miss_rate), _number(row.per_task(row.discoveries), 2),
        _number(row.per_task(row.hidden), 2), _number(row.per_task(row.read_tokens)),
        _number(row.per_task(row.full_tokens)), _percent(row.saved), _number(row.per_task(row.own_search_tokens)),
        _percent(row.saved_of_own_search),
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
            f" full list: {_saved(row.saved)}; {_number(row.per_task(row.own_search_tokens))} with the client's own"
            f" search: {_saved(row.saved_of_own_search)}"
        )
    return found


def _sentence(costs: Costs) -> str:
    return "; ".join(_lines(costs))


def _saved(share: float | None) -> str:
    """Say what share of other tokens was saved, or how much more was read."""
    return "-" if share is None else f"{share:.0%} saved" if share >= 0 else f"{-share:.0%} more read"


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.0%}"


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
