"""What the tasks of a simulation cost: hidden calls, discovery turns, and the tokens that foretool puts before a model.

A *discovery turn* is a turn in which the model asks `discover_tools` instead of doing the task. A *hidden call* is a
call of a tool that the list lacked. Tokens are counted in two ways. `tokens_per_task` counts each text once: the list,
what it gained, answers of discoveries, what a prompt hook printed, and blocks that foretool appended to results.
`read_per_task` counts what a model reads: the list at every turn, and every other text at each turn after it came.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from statistics import fmean
from typing import Any, Final

from msgspec import Struct, field

from bench.clients.messages import Json

RESAMPLES: Final = 2000
SEED: Final = 7


def name_of(row: Json) -> str:
    """The policy of a run, and its client where that is not the one that lists again."""
    client = row.get("client", "again")
    return str(row["policy"]) if client == "again" else f"{row['policy']}, {client}"


class Search(Struct, frozen=True):
    """One discovery: what was wanted, and what was known of it."""

    task: int
    """The number of the task in its block, from 0."""
    query: str
    wanted: str
    place: int
    """The calls of the task before it."""
    seen: int
    """Earlier tasks that called the tool, searches of this task apart."""
    hook_said: int
    """Tools that the prompt hook had named for the task."""
    by_name: bool
    """Whether the tool had been named, though without its arguments."""
    found: bool
    """Whether the answer named it."""


class Cost(Struct):
    """The calls and tokens of one block of tasks."""

    calls: int = 0
    hidden: int = 0
    """Calls of tools that were not in the list when they were wanted."""
    discoveries: int = 0
    not_found: int = 0
    """Discoveries whose answer lacked the wanted tool."""
    hinted: int = 0
    """Hidden calls that names in the list, a prompt hook or an appended block made possible without a discovery."""
    list_tokens: int = 0
    """Tokens of the lists at the beginning of each conversation."""
    grown_tokens: int = 0
    """Tokens of the tools that lists gained."""
    answer_tokens: int = 0
    """Tokens of answers of discoveries."""
    hook_tokens: int = 0
    """Tokens that the prompt hook printed."""
    hint_tokens: int = 0
    """Tokens of blocks that foretool appended to results."""
    read_tokens: int = 0
    """Tokens of all of these, counted at each turn in which they stood before the model."""
    at_first: int = 0
    """Discoveries before the first call of a task, which no answer to a call can spare."""
    by_name: int = 0
    """Discoveries of a tool that was named without its arguments."""
    searches: list[Search] = field(default_factory=list)
    by_task: list[tuple[int, int, int]] = field(default_factory=list)
    """Discovery turns, tokens and tokens read of each task, as they add up."""

    @property
    def spent(self) -> int:
        """The tokens of every text, each counted once."""
        return self.list_tokens + self.grown_tokens + self.answer_tokens + self.hook_tokens + self.hint_tokens

    def read(self, listed: int, said: int) -> None:
        """Count one turn of the model. `listed`: tokens of its list; `said`: of all else that foretool told it."""
        self.read_tokens += listed + said

    def end_task(self) -> None:
        """Keep what the costs are after a task."""
        self.by_task.append((self.discoveries, self.spent, self.read_tokens))


def block_of(cost: Cost, count: int) -> Json:
    """The figures of a block, per task."""
    ends = [(0, 0, 0), *cost.by_task]
    return {
        "tasks": count,
        "calls": cost.calls,
        "hidden": cost.hidden,
        "hidden_share": round(cost.hidden / cost.calls, 4),
        "hidden_per_task": round(cost.hidden / count, 3),
        "discoveries_per_task": round(cost.discoveries / count, 3),
        "at_first_per_task": round(cost.at_first / count, 3),
        "by_name_per_task": round(cost.by_name / count, 3),
        "not_found_share": round(cost.not_found / cost.discoveries, 3) if cost.discoveries else 0.0,
        "hinted_per_task": round(cost.hinted / count, 3),
        "list_tokens": round(cost.list_tokens / count),
        "listed_tokens": round((cost.list_tokens + cost.grown_tokens) / count),
        "answer_tokens": round(cost.answer_tokens / count),
        "hook_tokens": round(cost.hook_tokens / count),
        "hint_tokens": round(cost.hint_tokens / count),
        "tokens_per_task": round(cost.spent / count),
        "read_per_task": round(cost.read_tokens / count),
        "each": [
            [after - before for before, after in zip(one, other, strict=True)]
            for one, other in zip(ends, cost.by_task, strict=False)
        ],
    }


def summary(blocks: Sequence[Json], every: int) -> Json:
    """The tasks before the first epoch against as many at the end, all of them, and all after the first epoch.

    `every`: blocks between two epochs.
    """
    count = min(every, len(blocks) - 1) or 1
    first, last, later = blocks[:count], blocks[-count:], blocks[count:] or blocks
    kept = {"set": blocks[0]["set"], "policy": name_of(blocks[0]), "learning": blocks[0]["learning"]}
    start, end = hidden_share(first), hidden_share(last)
    return {
        "test": "simulation:run", **kept, "tasks": blocks[-1]["done"],
        "tasks_first": tasks_of(first), "tasks_last": tasks_of(last),
        "hidden_share_first": start, "hidden_share_last": end, "falls_to": round(end / start, 3) if start else 0.0,
        "hidden_share": hidden_share(blocks), "hidden_share_after_first": hidden_share(later),
        "discoveries_first": by_task(first, "discoveries_per_task", 3),
        "discoveries_last": by_task(last, "discoveries_per_task", 3),
        "tokens_first": by_task(first, "tokens_per_task"), "tokens_last": by_task(last, "tokens_per_task"),
        "read_first": by_task(first, "read_per_task"), "read_last": by_task(last, "read_per_task"),
        "listed_tokens_first": by_task(first, "listed_tokens"), "listed_tokens_last": by_task(last, "listed_tokens"),
        "listed_tokens_after_first": by_task(later, "listed_tokens"),
        "most_list_tokens": max(block["list_tokens"] for block in blocks),
    }  # fmt: skip


def tasks_of(blocks: Sequence[Json]) -> int:
    """The number of tasks in several blocks."""
    return int(sum(block["tasks"] for block in blocks))


def hidden_share(blocks: Sequence[Json]) -> float:
    """The share of hidden calls over several blocks."""
    return round(float(sum(block["hidden"] for block in blocks) / sum(block["calls"] for block in blocks)), 4)


def by_task(blocks: Sequence[Json], key: str, digits: int | None = None) -> float:
    """The mean over the tasks of several blocks; 0 where runs of an earlier version lack it."""
    return round(float(sum(block.get(key, 0) * block["tasks"] for block in blocks) / tasks_of(blocks)), digits)


def compare(runs: Sequence[tuple[Sequence[Json], Sequence[Json]]], every: int) -> Iterator[Json]:
    """What learning changes in the same tasks, at the end and in all tasks after the first epoch, with 95 % intervals.

    `runs`: the blocks without learning and with it, for each order of the tasks of one set. Ratios are of means; the
    tasks are drawn again in pairs. Runs that kept no figures by task are left out.
    """
    whole = [(off, on) for off, on in runs if len(off) == len(on) and all(block.get("each") for block in (*off, *on))]
    if not whole:
        return
    first = whole[0][1][0]
    for tasks in ("last", "after the first epoch"):
        pairs = [pair for off, on in whole for pair in _pairs(off, on, every, tasks)]
        row: dict[str, Any] = {"test": "simulation:learning", "set": first["set"], "policy": name_of(first),
                               "learning": [whole[0][0][0]["learning"], first["learning"]],
                               "part": tasks, "orders": len(whole), "tasks": len(pairs)}  # fmt: skip
        for place, name in enumerate(("discoveries", "tokens", "read")):
            row[name] = ratio([(float(one[place]), float(other[place])) for one, other in pairs])
        yield row


def _pairs(off: Sequence[Json], on: Sequence[Json], every: int, tasks: str) -> Iterator[tuple[list[int], list[int]]]:
    count = min(every, len(on) - 1) or 1
    part = slice(-count, None) if tasks == "last" else slice(count, None)
    return zip(_each(off[part]), _each(on[part]), strict=True)


def _each(blocks: Sequence[Json]) -> list[list[int]]:
    return [task for block in blocks for task in block["each"]]


def ratio(pairs: Sequence[tuple[float, float]]) -> Json:
    """The mean of both, their ratio (other by one) and its interval by bootstrap over pairs; None where one is 0."""
    draw = random.Random(SEED).choices
    means = [fmean(each) for each in zip(*pairs, strict=True)]
    drawn = (draw(pairs, k=len(pairs)) for _ in range(RESAMPLES))
    sums = ((sum(one for one, _ in some), sum(other for _, other in some)) for some in drawn)
    found = sorted(other / one for one, other in sums if one)
    given: Json = {"off": round(means[0], 3), "on": round(means[1], 3)}
    if not means[0] or not found:
        return {**given, "ratio": None, "interval": None}
    ends = [round(found[int(share * len(found))], 3) for share in (0.025, 0.975)]
    return {**given, "ratio": round(means[1] / means[0], 3), "interval": ends}


def table(summaries: Sequence[Json]) -> Iterator[str]:
    """A Markdown row for each run, as docs/benchmarks.md has them."""
    for each in summaries:
        yield (
            f"| {each['set']} | {each['policy']} | {each['learning']} | {each['hidden_share_first']:.3f} |"
            f" {each['hidden_share_last']:.3f} | x {each['falls_to']:.2f} | {each['hidden_share_after_first']:.3f} |"
            f" {each['discoveries_first']:.2f} -> {each['discoveries_last']:.2f} |"
            f" {each['tokens_first']:,.0f} -> {each['tokens_last']:,.0f} |"
            f" {each['listed_tokens_first']:,.0f} -> {each['listed_tokens_last']:,.0f} |"
            f" {each['read_first']:,.0f} -> {each['read_last']:,.0f} |"
        )


def comparison_table(rows: Sequence[Json]) -> Iterator[str]:
    """A Markdown row for each comparison, as docs/benchmarks.md has them."""
    for row in rows:
        learning = " -> ".join(row["learning"])
        yield "| " + " | ".join([row["set"], row["policy"], learning, row["part"], *_cells(row)]) + " |"


def _cells(row: Json) -> Iterator[str]:
    for name, digits in (("discoveries", 2), ("tokens", 0), ("read", 0)):
        told = row[name]
        yield f"{told['off']:,.{digits}f} -> {told['on']:,.{digits}f}"
        yield "-" if told["ratio"] is None else "x {:.2f} ({:.2f} to {:.2f})".format(told["ratio"], *told["interval"])
