"""`foretool status --stats`: how often a needed tool was hidden, and what lists and answers cost, by day and client."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from msgspec.structs import asdict

from foretool.retrieval.tokens import estimate
from foretool.server import offline
from foretool.server.commands import output
from foretool.server.config.loader import Config
from foretool.server.recording.costs import (
    FEWEST,
    UNKNOWN,
    Costs,
    add_costs,
    by_client,
    estimate_own_search,
    read_costs,
    say_calls,
    say_saving,
)

_BARS: Final = "▁▂▃▄▅▆▇█"
_LONGEST_LINE: Final = 45
"""So many bars stand side by side; where there are more, several share one."""
_NARROW: Final = 100
"""On fewer columns each day and client is shown as a card of two lines instead of a row."""


_SMALL: Final = "because the list at each turn and the searches took more than all tools would have"
_FEW: Final = "because the list at each turn and the searches took more than the names of all tools would have"
"""Why foretool may cost more than what it is compared with."""


def show_stats(config: Config, since: float, *, as_json: bool) -> int:
    """Show misses, discovery turns and tokens of the last so many seconds, by day and client. Returns the exit
    status."""
    now = time.time()
    with offline.open_offline(config) as app:
        tools = app.catalog.tools()
        full = sum(app.catalog.tokens(tool.id) for tool in tools)
        with output.waiting("adding up what is on record"):
            rows = read_costs(app.store, now - since, now, full)
        estimate_own_search(rows, sum(estimate(tool.id) for tool in tools), full / max(len(tools), 1))
    total, clients = add_costs(rows, ""), by_client(rows)
    told: dict[str, Any] = {
        "since": now - since, "full_list_tokens": full, "total": describe_costs(total),
        "clients": [describe_costs(each) for each in clients.values()], "days": [describe_costs(each) for each in rows],
    }  # fmt: skip
    return output.show(told, as_json, lambda _: _print(rows, clients, total, full))


def describe_costs(costs: Costs) -> dict[str, Any]:
    """Return the counts of a row, with rates per call and per task; None where there are too few tasks for rates."""
    return {
        **asdict(costs),
        "miss_rate": costs.miss_rate,
        "discoveries_per_task": costs.per_task(costs.rated_discoveries),
        "hidden_per_task": costs.per_task(costs.rated_hidden),
        "read_per_task": costs.per_task(costs.rated_read_tokens),
        "full_per_task": costs.per_task(costs.rated_full_tokens),
        "saved": costs.saved,
        "own_search_per_task": costs.per_task(costs.own_search_tokens),
        "saved_of_own_search": costs.saved_of_own_search,
    }


UNSEEN: Final = "a prompt hook that reached no client of foretool"
"""What is said of hints that belong to no session on record."""


def _print(rows: Sequence[Costs], clients: Mapping[str, Costs], total: Costs, full: int) -> None:
    if not rows:
        output.say("Nothing is on record for this time. Try a longer one: foretool status --stats --since 90d")
        return
    idle = sorted({name for name, costs in clients.items() if not _has_done(costs)})
    done = [row for row in rows if _has_done(row)]
    if output.console().width < _NARROW:
        for row in done:
            output.say(f"{row.day}  {row.client}", "bold")
            if len(done) > 1:  # else it is what is said of all below
                output.say(f"  {_count(row)}")
    else:
        columns = (
            "day",
            "client",
            "tasks#",
            "calls#",
            "refused#",
            "failed#",
            "hidden#",
            "misses#",
            "searches#",
            "tokens read#",
        )
        output.table(columns, [_cells(row) for row in done])
    if idle:
        output.say(f"Called and searched nothing: {', '.join(UNSEEN if each == UNKNOWN else each for each in idle)}.")
    if len(clients) > 1:
        for name, costs in clients.items():
            if costs.tasks or costs.calls:
                output.say(f"{name}: {_sentence(costs)}")
                _print_courses([row for row in rows if row.client == name])
    output.say(f"in all: {_sentence(total)}", "bold")
    if total.calls:
        output.say(say_saving(total))
    output.say(
        f"A list of all tools takes {full:,} tokens now; past calls are compared with the tools of their time. What was"
        " read is an estimate: the list counts at each call and search, an answer from then on to the end of its task."
        " A task is what a session called up to the next prompt (without a hook, to a search for something else) or a"
        " pause of half an hour."
        " Where no call worked there is none."
        " Refused: calls that did not run, because a rule, the config or the user said no, the arguments were wrong, or"
        " the server was down; with all tools listed they count as not made. Failed: they ran and came to nothing."
        " Calls of a name that no tool has, and those of foretool call, do not count; the answer to such a"
        " name, called through a bridge, counts as a search."
    )
    _print_courses(rows)


def _has_done(row: Costs) -> bool:
    return bool(row.tasks or row.calls or row.misses or row.discoveries or row.read_tokens)


def _print_courses(rows: Sequence[Costs]) -> None:
    """Print how the rates went, the oldest first."""
    spans = by_span(rows)
    if len(spans) < 2:
        return
    courses: tuple[tuple[str, Sequence[float | None], Callable[[float], str]], ...] = (
        ("missed", [each.miss_rate for each in spans], lambda share: f"{share:.0%}"),
        ("searches", [each.per_task(each.rated_discoveries) for each in spans], lambda count: f"{count:.2f} a task"),
        ("saved", [each.saved for each in spans], lambda share: f"{share:.0%}"),
    )
    for name, values, write in courses:
        known = [each for each in values if each is not None]
        if known:
            least, most = write(min(known)), write(max(known))
            between = least if least == most else f"{least.removesuffix(' a task')} to {most}"
            output.say(f"  {name:<11}  {sparkline(values)}  {between}")


def by_span(rows: Sequence[Costs]) -> list[Costs]:
    """Return sums over several days in a row, each with enough tasks to form rates; the rest goes to the last sum.
    Where there would be too many, neighbours are joined."""
    spans: list[list[Costs]] = [[]]
    for day in sorted({row.day for row in rows}):
        if sum(each.rated_tasks for each in spans[-1]) >= FEWEST:
            spans.append([])
        spans[-1] += [row for row in rows if row.day == day]
    if len(spans) > 1 and sum(each.rated_tasks for each in spans[-1]) < FEWEST:
        spans[-2:] = [[*spans[-2], *spans[-1]]]
    size = -(-len(spans) // _LONGEST_LINE)
    return [add_costs(chain.from_iterable(spans[start : start + size]), "") for start in range(0, len(spans), size)]


def sparkline(values: Sequence[float | None]) -> str:
    """Draw values as a line of bars between 0 and the highest; a blank where there is none."""
    most = max((each for each in values if each is not None), default=0.0)
    marks = [
        " " if each is None else _BARS[0] if each <= 0 or most <= 0 else _BARS[round(each / most * (len(_BARS) - 1))]
        for each in values
    ]
    return "".join(marks)


def _cells(row: Costs) -> tuple[object, ...]:
    return (
        row.day, row.client, f"{row.tasks:,}", f"{row.calls:,}", f"{row.refused:,}", f"{row.failed:,}",
        f"{row.hidden:,}", f"{row.misses:,}", f"{row.discoveries:,}", f"{row.read_tokens:,}",
    )  # fmt: skip


def _count(row: Costs) -> str:
    calls = say_calls(row.calls, row.refused, row.failed)
    counted = [output.plural(row.tasks, "task"), calls, output.plural(row.misses, "miss")]
    counted.append(output.plural(row.discoveries, "search"))
    return ", ".join([*counted, f"{row.read_tokens:,} tokens of lists, answers and hints read"])


def _sentence(costs: Costs) -> str:
    if not costs.has_rates:
        return f"{_count(costs)} (rates take {FEWEST} tasks whose end is known; so far {costs.rated_tasks})"
    counts = (costs.rated_read_tokens, costs.rated_full_tokens, costs.own_search_tokens)
    read, full, own = (_number(costs.per_task(count)) for count in counts)
    return (
        f"{_count(costs)}; of the calls of {costs.rated_tasks:,} tasks {costs.miss_rate:.0%} missed; per task:"
        f" {_number(costs.per_task(costs.rated_discoveries), 2)} searches,"
        f" {_number(costs.per_task(costs.rated_hidden), 2)} hidden calls, {read} tokens read; {full} with the full"
        f" list: {_saved(costs.saved, _SMALL)}; {own} with the client's own search:"
        f" {_saved(costs.saved_of_own_search, _FEW)}"
    )


def _saved(share: float | None, why: str) -> str:
    """Say what share of other tokens was saved, or how much more was read, and why."""
    if share is None:
        return "-"
    if share >= 0:
        return f"{share:.0%} saved"
    return f"{-share:.0%} more read, {why}" if share > -1 else f"{1 - share:.1f} times as much read, {why}"


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
