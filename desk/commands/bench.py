"""`foretool bench`: how well tools are found for the tasks on record, or for a file of queries."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Final

import click
from msgspec import Struct

from foretool.desk.replay.queries import MOST, QuerySet, read_log, read_queries
from foretool.desk.replay.rankings import SERVED, Interval, RankingFigures, Rankings
from foretool.server.commands import output
from foretool.server.commands.exit import WRONG, complain
from foretool.server.commands.misses import read_duration
from foretool.server.commands.options import config_option, json_option, profile_option
from foretool.server.commands.search import open_search

_FEW: Final = 30
"""With fewer queries, intervals say little."""


class BenchAnswer(Struct, frozen=True):
    """How well each ranking finds the tools that queries need."""

    source: str
    """The file of queries; "" for the tasks on record."""
    queries: int
    needed: int
    """Tools that the queries need, together."""
    tools: int
    """How many tools were searched."""
    wordless: int
    """Tasks left out because their words are not on record."""
    unknown: int
    """Tasks left out because no tool of theirs is known and may be found."""
    encoders: str
    """Which take part, joined by `+`; "" where words alone rank."""
    rankings: tuple[RankingFigures, ...]


@click.command("bench")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path), required=False)
@click.option(
    "--since", type=read_duration, metavar="TIME", default="90d", show_default=True,
    help="Only tasks of the last 7d, 12h, 30min, ...",
)  # fmt: skip
@click.option(
    "--tasks", "most", type=click.IntRange(1), default=MOST, show_default=True,
    help="At most this many, the latest ones.",
)  # fmt: skip
@profile_option
@config_option
@json_option
def command(path: Path | None, as_json: bool, profile: str, file: Path | None, since: float, most: int) -> int:
    """Measure how well tools are found, beside BM25 and one encoder.

    Ranks your tools for each task on record and looks where the tools stand that it called. Nothing
    that came after a task began ranks it. FILE has queries instead, one a line:
    {"query": "what is the time in Tokyo", "calls": ["time__get_current_time"]}; with "any": true one
    of the calls is enough. Records nothing.

    \b
    foretool bench
    foretool bench --since 30d --json
    foretool bench queries.jsonl
    """
    now = time.time()
    with open_search(path, profile) as (app, shown_to):
        reach = app.policy.reach(shown_to)
        rankings = Rankings(app, app.config.settings, reach.finds)
        tools = rankings.tools
        if file is None:
            found = read_log(app.store, tools, now - since, now, most)
        else:
            try:
                found = read_queries(file, tools, app.store.calls.usage(), now)
            except ValueError as error:
                raise click.ClickException(f"bench: {error}") from None
        if not found.queries:
            return complain(f"bench: {_why_none(found, file)}", WRONG)
        with output.waiting(f"ranking for {output.plural(len(found.queries), 'task')}"):
            figures = tuple(rankings.compare(found.queries))
        encoders = app.search.encoders.names if app.search.encoders is not None else ""
    needed = sum(len(each.needs) for each in found.queries)
    answer = BenchAnswer(
        str(file or ""), len(found.queries), needed, len(tools), found.wordless, found.unknown, encoders, figures
    )
    return output.show(answer, as_json, _print)


def _why_none(found: QuerySet, file: Path | None) -> str:
    if file is not None:
        return f"{file}: no line has a query and calls tools of this config; `foretool tools` names them"
    if found.wordless:
        return (
            f"the words of {output.plural(found.wordless, 'task')} are not on record; a client has to search, or the"
            " prompt hook to tell them, before a task can be measured"
        )
    return "no task of this time is on record; give a longer --since, or let a client call tools first"


def _print(answer: BenchAnswer) -> None:
    where = f"of {answer.source}" if answer.source else "on record"
    queries, needed = output.plural(answer.queries, "task"), output.plural(answer.needed, "needed tool")
    output.say(f"{queries} {where}, {needed} among {answer.tools}", "bold")
    rows = [(each.ranking, *(_cell(one) for one in (each.first, each.in_5, each.in_10))) for each in answer.rankings]
    output.table(("ranking", "first#", "in five#", "in ten#"), rows)
    for each in answer.rankings:
        over = each.served_over_it
        if each.ranking != SERVED:
            said = f"{over.mean:+.3f} in five ({over.low:+.3f} to {over.high:+.3f})"
            output.say(f"served over {each.ranking}: {said}")
    left_out = [
        f"{output.plural(count, 'task')} {why}"
        for count, why in ((answer.wordless, "without words"), (answer.unknown, "without a tool that may be found"))
        if count
    ]
    if left_out:
        output.say(f"left out: {' and '.join(left_out)}")
    if answer.queries < _FEW:
        output.say("with so few tasks the intervals say little")
    if not answer.encoders:
        output.say("words alone rank; `foretool status` says why")


def _cell(figure: Interval) -> str:
    return f"{figure.mean:.2f} ({figure.low:.2f}-{figure.high:.2f})"
