"""Measures what the models of a profile bring over those for all, and what learning them takes.

    python -m bench.learning.profiles DATA [--set ultratool] [--tasks 400] [--encoder none] [--json]

A log is written as in `bench.growth.learning`, and its tasks are shared between two profiles by the tool that each
called first, so that two teams use one catalog differently. `foretool learn` then runs once with one profile for all
tasks, and once with the two. The rows: the processor time of each run, and for the tasks of each profile that nothing
has seen the mean reciprocal rank of the next tool, by what is for all and by what serves the profile, with the
difference over the same tasks and its 95 % interval.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from bench.growth.learning import Task, fill, learn, read_set, repeat
from bench.options import add_json, make_parser
from bench.reports import Row, print_row
from foretool.learning.encoded_texts import EncodedTexts
from foretool.learning.training.replay import rank_steps
from foretool.retrieval.evaluation import paired_difference
from foretool.retrieval.pipeline import Pipeline
from foretool.server import offline
from foretool.server.catalog import models
from foretool.server.catalog.search import Index
from foretool.server.config import loader as configs
from foretool.storage.opening import open_store
from foretool.storage.records import Episode, ToolId, Usage

PROFILES: Final = ("one", "two")


def profile_of(tool: ToolId) -> str:
    """Return whose tasks begin with a tool."""
    return PROFILES[sha256(tool.encode()).digest()[0] % len(PROFILES)]


def share_out(path: Path) -> None:
    """Give each session of the log the profile of its first call, and the config these profiles."""
    config = json.loads(path.read_text())
    config["foretool"]["profiles"] = {name: {} for name in PROFILES}
    path.write_text(json.dumps(config))
    with open_store(configs.load(path).storage) as store:
        first = {each.session: each.tool for each in store.calls.recent(-1)}  # the oldest comes last
        rows = [(profile_of(tool), session) for session, tool in first.items()]
        database: Any = store._database  # type: ignore[attr-defined]  # no proxy changes a session's profile
        database.write_all("UPDATE sessions SET profile = ? WHERE key = ?", rows)


def ranks(path: Path, tasks: Sequence[Task], profile: str) -> tuple[list[float], list[float]]:
    """Return the reciprocal rank in each task of a profile by what is for all, and by what serves the profile."""
    config = configs.load(path)
    with offline.read(config) as app:
        upstream_of = {tool.id: tool.upstream for tool in app.catalog.tools()}
        corpus = Index(app.catalog).update().corpus
        texts = EncodedTexts.open(config.settings, app.store)
        opened = models.open_models(models.read_models(app.store))
        episodes = [Episode(task.calls, (task.query,)) for task in tasks]
        found = []
        for learned in (opened.learned, opened.by_profile.get(profile, opened.learned)):
            pipeline = Pipeline(corpus, texts.meaning(app.catalog, corpus) if texts else None, learned)
            used: dict[ToolId, Usage] = {each.tool: each for each in app.store.calls.counted_usage_of(profile)}
            found.append([each.reciprocal for each in rank_steps(pipeline, episodes, upstream_of, used)])
        return found[0], found[1]


def measure(folder: Path, data: Path, count: int, encoder: str) -> Iterator[Row]:
    """Yield the rows of both runs."""
    tools, given, held_out = read_set(data)
    for name in ("all", "profiles"):
        (folder / name).mkdir()
        path = fill(folder / name, tools, repeat(given, count), encoder)
        if name == "profiles":
            share_out(path)
        cpu_s, _, peak, outcomes = learn(path)
        promoted = " ".join(kind for kind, outcome in outcomes.items() if outcome == "promoted")
        yield {"learned": name, "tasks": count, "cpu_s": round(cpu_s, 1), "peak_mib": round(peak), "promoted": promoted}
    with open_store(configs.load(path).storage) as store:
        store.calls.usage()
    for profile in PROFILES:
        tasks = [task for task in held_out if profile_of(task.calls[0]) == profile]
        for_all, own = ranks(path, tasks, profile)
        low, mean, high = paired_difference(own, for_all)
        yield {
            "profile": profile, "tasks": len(tasks), "mrr_all": round(fmean(for_all), 3),
            "mrr_own": round(fmean(own), 3), "difference": f"{mean:+.3f} ({low:+.3f} to {high:+.3f})",
        }  # fmt: skip


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print the rows."""
    parser = make_parser("bench.learning.profiles", __doc__)
    parser.add_argument("data", type=Path, metavar="DATA")
    parser.add_argument("--set", default="ultratool")
    parser.add_argument("--tasks", type=int, default=400)
    parser.add_argument("--encoder", default="none")
    add_json(parser)
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        for row in measure(Path(folder), arguments.data / arguments.set, arguments.tasks, arguments.encoder):
            print_row(row, arguments.json)


if __name__ == "__main__":
    main()
