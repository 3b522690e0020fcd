"""Compares foretool with other proxies in one run, as a table.

    python -m bench.proxy.peers KIND --peerbench DIR [--peers a,b] [--joined] [--model] [-- OPTIONS OF PEERBENCH]

DIR is a folder of scripts that start each proxy over the same upstreams and print JSON lines; PEERS_HOME says where the
proxies are installed. This benchmark runs one of the scripts with foretool among the peers and prints a table with
ratios, so that the figures of one run stand beside each other: `calls` (latency, throughput), `startup`, `slow` (every
upstream takes two seconds to start), `never` (no upstream ever starts), `tokens` (of the list), `search` (latency,
quality). "x ours" is a figure divided by that of foretool. foretool is a process of its own, as the other proxies are;
with `--joined` it is a window that joins a proxy, whose memory then stands in no table. With `--model` its store has a
model of what is called next, of 260 tools and 1,000 tasks (`calls`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench import processes
from bench.options import add_foretool, make_parser

Row = dict[str, Any]
Cells = list[str]

OURS = "ours"
DIRECT = "direct"
LIMIT_S = 3600.0
WITH_MODEL = Path(__file__).resolve().with_name("with_model.py")
MODEL_TOOLS = ["alpha__alpha_echo", *(f"alpha__alpha_t{at}" for at in range(1, 260))]
"""The tools of the model; peerbench calls the first."""


class Kind(NamedTuple):
    """A script of peerbench with its arguments, the default peers, and the columns of its table."""

    script: Sequence[str]
    peers: str
    heads: str
    cells: Callable[[Row, Mapping[str, Row]], Cells]


def times(value: float | None, base: float | None) -> str:
    """The value divided by `base`."""
    return f"{value / base:.2f}" if value is not None and base else "-"


def added(row: Row, rows: Mapping[str, Row]) -> float | None:
    """The milliseconds that a proxy adds to the upstream alone."""
    direct = rows.get(DIRECT, {}).get("p50_ms")
    return None if direct is None or row["peer"] == DIRECT else float(row["p50_ms"] - direct)


def calls_cells(row: Row, rows: Mapping[str, Row]) -> Cells:
    """The cells of latency and throughput, also as multiples of ours."""
    ours = rows.get(OURS, row)
    own = added(row, rows)
    return [
        f"{row['p50_ms']:.3f}",
        f"{row['p99_ms']:.2f}",
        "-" if own is None else f"{own:+.3f}",
        times(own, added(ours, rows)),
        f"{row['rps']:.0f}",
        times(row["rps"], ours["rps"]),
        f"{row['rss_mib']}",
        f"{row['errors']}",
    ]


def startup_cells(row: Row, rows: Mapping[str, Row]) -> Cells:
    """The cells of cold and warm start, first call and memory, also as multiples of ours."""
    ours = rows.get(OURS, row)
    warm = warm_s(row)
    return [
        shown(row["first_s"]),
        shown(warm),
        times(warm, warm_s(ours)),
        shown(row["call_s_median"]),
        times(row["call_s_median"] or None, ours["call_s_median"] or None),
        f"{row['tools_listed']}",
        f"{row['rss_mib'] or '-'}",
        times(row["rss_mib"] or None, ours["rss_mib"] or None),
    ]


def warm_s(row: Row) -> float | None:
    """The median of the starts after the first one, which is cold."""
    later = sorted(row["list_s"][1:] or row["list_s"])
    return float(later[len(later) // 2]) if later else None


def shown(value: Any) -> str:
    """The value as text; a dash for a missing one."""
    return "-" if value in (None, [], "") else f"{value:.3f}" if isinstance(value, float) else str(value)


def tokens_cells(row: Row, rows: Mapping[str, Row]) -> Cells:
    """The cells of the list: its tools, its tokens, and what it saves of the upstreams' own lists."""
    whole = next((each["list_tokens"] for each in rows.values() if "servers" in each), None)
    tokens = row.get("list_tokens")
    saved = f"{100 * (1 - tokens / whole):.2f} %" if tokens is not None and whole else "-"
    listed = row.get("listed", row.get("tools"))
    return [shown(listed), shown(tokens), saved, shown(row.get("again_list_s")), shown(row.get("rss_mib"))]


def search_cells(row: Row, rows: Mapping[str, Row]) -> Cells:
    """The cells of quality and speed of a search."""
    ours = rows.get(OURS, row)
    recalls = [shown(row.get(key)) for key in ("hit@1", "recall@1", "recall@5", "recall@10")]
    speed = [shown(row.get("p50_ms")), times(row.get("p50_ms"), ours.get("p50_ms")), shown(row.get("p95_ms"))]
    return [*recalls, *speed, shown(row.get("answer_tokens"))]


ALL = "direct,ours,mcp-compressor,slop-mcp,lazy-mcp,modular-mcp,callbus,fastmcp-mount,graph-tool-call,contextweaver"
STARTERS = "ours,slop-mcp,lazy-mcp,mcp-compressor,modular-mcp,callbus,graph-tool-call-cache,contextweaver,fastmcp-mount"
CALLS = "p50 ms|p99 ms|added ms|x ours|calls/s at 32|x ours|RSS MiB|errors"
STARTS = "cold list s|warm list s|x ours|first call s|x ours|tools listed|RSS MiB|x ours"
KINDS = {
    "calls": Kind(("bench.py", "calls", "--n", "1000", "--rounds", "20"), ALL, CALLS, calls_cells),
    "startup": Kind(("bench.py", "startup", "--counts", "1,30", "--reps", "5"), STARTERS, STARTS, startup_cells),
    "slow": Kind(
        ("bench.py", "startup", "--counts", "10", "--reps", "2", "--fault", "hang-start:2"),
        "ours,slop-mcp,lazy-mcp,modular-mcp,callbus",
        STARTS,
        startup_cells,
    ),
    "never": Kind(
        ("bench.py", "startup", "--counts", "10", "--reps", "1", "--fault", "hang-start:86400"),
        "ours,slop-mcp,lazy-mcp",
        STARTS,
        startup_cells,
    ),
    "tokens": Kind(
        ("tokens.py",),
        "ours,slop-mcp,mcp-compressor,mcp-compressor-max,lazy-mcp,modular-mcp,callbus,fastmcp-bm25,graph-tool-call,contextweaver",
        "listed|tokens (characters / 4)|saved|list again s|RSS MiB",
        tokens_cells,
    ),
    "search": Kind(
        ("searchbench.py",),
        "ours,callbus,slop-mcp",
        "hit@1|r@1|r@5|r@10|p50 ms|x ours|p95 ms|answer tokens",
        search_cells,
    ),
}


def lines_of(folder: Path, command: Sequence[str], foretool: Sequence[str]) -> list[Row]:
    """Run a script of peerbench; its rows, echoed to stderr as they come. `foretool` starts our proxy. Raises
    `subprocess.TimeoutExpired`."""
    ours = json.dumps(foretool)
    with subprocess.Popen(
        [sys.executable, *command], cwd=folder, env={**os.environ, "OURS": ours}, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        rows, deadline = [], time.monotonic() + LIMIT_S
        for line in process.stdout:
            sys.stderr.write(line)
            rows.append(json.loads(line))
            if time.monotonic() > deadline:
                process.terminate()
                raise subprocess.TimeoutExpired(list(command), LIMIT_S)
    return rows


def tables(kind: Kind, rows: Sequence[Row]) -> list[str]:
    """The lines of a table for each number of upstreams."""
    groups: dict[Any, dict[str, Row]] = {}
    failed = [f"{row['peer']}: {row[key]}" for row in rows for key in ("error", "err") if row.get(key)]
    for row in rows:
        if not row.get("error") and row.get("list_s") != []:
            groups.setdefault(row.get("upstreams"), {})[row["peer"]] = row
    lines = []
    for upstreams, group in groups.items():
        heads = ["peer" if upstreams is None else f"peer, {upstreams} upstreams", *kind.heads.split("|")]
        lines += [line(heads), line(["---"] * len(heads))]
        lines += [line([peer, *kind.cells(row, group)]) for peer, row in group.items()]
        lines.append("")
    return lines + [f"failed: {each}" for each in failed]


def line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments, run the script, and print its table."""
    parser = make_parser("bench.proxy.peers", __doc__)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("--peerbench", type=Path, required=True, metavar="DIR", help="the folder of scripts")
    parser.add_argument("--peers", help="comma-separated; default: those that make sense for the kind")
    parser.add_argument("--joined", action="store_true", help="measure a window that joins a proxy")
    parser.add_argument("--model", action="store_true", help="serve a model of what is called next")
    add_foretool(parser)
    words = list(sys.argv[1:] if argv is None else argv)
    # What stands after `--` is the script's; it comes last there, so it wins.
    own, more = (words[: words.index("--")], words[words.index("--") + 1 :]) if "--" in words else (words, [])
    arguments = parser.parse_args(own)
    kind = KINDS[arguments.kind]
    if not (arguments.peerbench / kind.script[0]).is_file():
        parser.error(f"--peerbench: {arguments.peerbench} has no {kind.script[0]}")
    foretool = processes.installed(arguments.foretool)
    more = [str(Path(each).resolve()) if Path(each).is_file() else each for each in more]
    before = processes.load_average()
    command = [*kind.script, "--peers", arguments.peers or kind.peers, *more]
    serve = [*foretool, "serve", "--config", "{config}", *([] if arguments.joined else ["--alone"])]
    if arguments.model:
        serve = [sys.executable, str(WITH_MODEL), "{config}", ",".join(MODEL_TOOLS), "--", *serve]
    rows = lines_of(arguments.peerbench, command, serve)
    print("\n".join(tables(kind, rows)))
    print(f"\nload average: {before} before, {processes.load_average()} after; {' '.join(command)}")


if __name__ == "__main__":
    main()
