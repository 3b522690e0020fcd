"""Runs every benchmark of `docs/benchmarks.md` in one sitting: `python -m bench OUT [--only a,b]`, or `make bench`.

The benchmarks run one after the other, each in its own process. The output of each goes to OUT/<name>.txt. OUT/log
says which commit was measured, when each benchmark ran, and the load average before and after it. Publish the figures
of one whole sitting: a table of the better halves of two sittings is a lie. Some benchmarks need data (the folder
FORETOOL_DATA), other proxies (the folders PEERBENCH and PEERS_HOME) or an installed package to measure (the command
FORETOOL; default: the one beside this Python). A benchmark whose needs are not met is left out, and the output says so.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench import processes
from bench.options import make_parser

LIMIT_S = 1800.0
RANKED = ("livemcpbench", "mcpbench", "mcptoolbenchpp", "toole_unseen", "apibank")
PAPERS = ("dtdr", "tgr", "masstool", "ports")
SIMULATED = ("ultratool", "bfcl_multi_turn", "mcpbench")


class Step(NamedTuple):
    """One benchmark of a sitting."""

    name: str
    words: Sequence[str]
    """The words after `python -m`."""


def proxy_steps(foretool: Sequence[str]) -> Iterator[Step]:
    yield Step("startup", ("bench.proxy.startup", *foretool, "--repeat", "9"))
    yield Step("http", ("bench.proxy.http_calls",))
    yield Step("attacks", ("bench.trust.attacks", *foretool))
    yield Step("front-attacks", ("bench.trust.front_attacks", *foretool))
    yield Step("soak", ("bench.proxy.soak",))
    yield Step("shared", ("bench.proxy.shared_storage", *foretool))
    yield Step("hostile", ("bench.proxy.hostile_messages",))


def peer_steps(folder: str, foretool: Sequence[str]) -> Iterator[Step]:
    for kind in ("calls", "startup", "slow", "never"):
        yield Step(f"peers-{kind}", ("bench.proxy.peers", kind, "--peerbench", folder, *foretool))
    few = ("--peers", "direct,ours,mcp-compressor", "--", "--nups", "5")
    yield Step("peers-calls-5", ("bench.proxy.peers", "calls", "--peerbench", folder, *foretool, *few))


def data_steps(data: Path, foretool: Sequence[str]) -> Iterator[Step]:
    catalogs, queries = data / "mcp_catalogs", data / "livemcpbench" / "dev.jsonl"
    if catalogs.is_dir():
        whole = ("bench.proxy.many_servers", str(catalogs), *foretool, "--queries", str(queries))
        yield Step("replay-23", (*whole, "--limit", "23"))
        yield Step("replay-179", whole)
        yield Step("replay-249", (*whole, "--add", str(data / "livemcpbench")))
    for name in RANKED:
        if (data / name).is_dir():
            yield Step(f"ranking-{name}", ("bench.retrieval.ranking", str(data / name)))
    yield Step("gate", ("bench.retrieval.gate", str(data)))
    for name in SIMULATED:
        if (data / name).is_dir():
            alone = ("--sets", name, "--encoder", "none", *foretool)
            yield Step(f"simulation-{name}", ("bench.learning.simulation", str(data), *alone))
    for paper in PAPERS:
        yield Step(f"paper-{paper}", ("bench.papers", paper, "--data", str(data), "--json"))
    yield Step("paper-itr", ("bench.papers.itr_tables", "--data", str(data), "--json"))


def plan(foretool: Sequence[str]) -> Iterator[Step]:
    """The benchmarks that can run here; prints which are left out, and why."""
    yield from proxy_steps(foretool)
    if (peerbench := os.environ.get("PEERBENCH")) and os.environ.get("PEERS_HOME"):
        yield from peer_steps(peerbench, foretool)
    else:
        print("left out: other proxies; PEERBENCH and PEERS_HOME name no folders")
    if data := os.environ.get("FORETOOL_DATA"):
        yield from data_steps(Path(data), foretool)
    else:
        print("left out: catalogues, ranking and papers; FORETOOL_DATA names no folder")


def commit() -> str:
    """The commit of the checkout, with `+` where files have changed."""
    words = ("git", "describe", "--always", "--dirty=+")
    done = subprocess.run(words, cwd=Path(__file__).parents[1], capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


def run_sitting(folder: Path, steps: Sequence[Step]) -> None:
    """Run all steps; a step that fails or takes too long is noted, and the next one runs."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "log").open("w", encoding="utf-8") as log:
        print(f"commit {commit()}", file=log, flush=True)
        for step in steps:
            started, before = time.time(), processes.load_average()
            with (folder / f"{step.name}.txt").open("w") as out, (folder / f"{step.name}.err").open("w") as err:
                words = (sys.executable, "-m", *step.words)
                try:
                    status = str(subprocess.run(words, stdout=out, stderr=err, timeout=LIMIT_S, check=False).returncode)
                except subprocess.TimeoutExpired:
                    status = "too long"
            at = time.strftime("%H:%M:%S", time.localtime(started))
            took, after = time.time() - started, processes.load_average()
            line = f"{step.name:<24} at {at} for {took:6.1f} s  load {before} to {after}  status {status}"
            print(line, file=log, flush=True)
            print(line, flush=True)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and run the sitting."""
    parser = make_parser("bench", __doc__)
    parser.add_argument("out", type=Path, metavar="OUT", help="folder for what the commands print")
    parser.add_argument("--only", metavar="NAMES", help="comma-separated beginnings of names")
    arguments = parser.parse_args(argv)
    named = os.environ.get("FORETOOL")
    steps = list(plan(("--foretool", named) if named else ()))
    if arguments.only:
        wanted = tuple(arguments.only.split(","))
        steps = [step for step in steps if step.name.startswith(wanted)]
    run_sitting(arguments.out, steps)


if __name__ == "__main__":
    main()
