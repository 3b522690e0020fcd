"""Chooses a mix of trained encoders and its weight in the sum, on training parts alone.

    python -m bench.learning.encoder_choice --data FOLDER --head-to-head FILE --apart FILE --cache FOLDER
        --adapter shipped=FILE --adapter distilled=FILE ... [--mixes shipped:.6,distilled:.4 ...] [--weights .7,.85,1]

`shipped` is what the differences are to, at the weight that is served. A mix is the sum of several changes, each times
its share (model soups: Wortsman et al. 2022), brought back to one rank; without --mixes each adapter is tried alone.
The parts are those of `distilled_encoder report`, without the queries of the sets --apart. Of all mixes and weights
that lose nothing beyond its error on any part, the one with the highest sum of recall at 1, 5 and 10 in the mean over
the parts is marked. No development part is read. docs/decisions/0051 says what it chose.
"""

from __future__ import annotations

import random
from argparse import ArgumentTypeError
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from unittest.mock import patch

from bench.datasets import Task
from bench.kept_encoder import KeptEncoder, open_kept, open_vectors
from bench.learning.distilled_encoder import measured
from bench.learning.shipped_encoder import QueriesOnly, base, mixed
from bench.learning.wished_encoder import MOST, add_apart, apart_from, queries_of, servers_of
from bench.metrics import recall
from bench.options import add_json, make_parser
from bench.reports import Row, difference, print_row, rounded
from bench.retrieval.pool import Pool
from bench.retrieval.ranking_methods import build_method
from foretool.retrieval import adapters
from foretool.retrieval.adapters import Adapter
from foretool.retrieval.encoders import adapted
from foretool.retrieval.rankers import dense
from foretool.storage.records import Tool

SHIPPED = "shipped"
AT = (1, 5, 10)
Shares = tuple[tuple[str, float], ...]
"""The adapters of a mix and what each counts."""
Recalls = dict[str, dict[int, list[float]]]
"""By part and k, the recall of each task."""


def read_mix(text: str) -> Shares:
    """Read `shipped:.6,distilled:.4`."""
    parts = [each.partition(":") for each in text.split(",")]
    try:
        return tuple((name, float(share)) for name, _, share in parts)
    except ValueError:
        raise ArgumentTypeError(f"expected NAME:SHARE,NAME:SHARE, found {text!r}") from None


def read_adapter(text: str) -> tuple[str, Adapter]:
    """Read `NAME=FILE`."""
    name, _, file = text.partition("=")
    if not file or not Path(file).is_file():
        raise ArgumentTypeError(f"expected NAME=FILE, found {text!r}")
    return name, adapters.loads(Path(file).read_bytes())


def row_of(mix: Shares, weight: float, before: Recalls, after: Recalls) -> Row:
    """The mean gains over all parts, and what is lost beyond its error."""
    gains, lost = [], []
    for part, was in before.items():
        found = [difference(after[part][k], was[k]) for k in AT]
        gains.append([mean for mean, _, _ in found])
        lost += [f"{part} r@{k} {mean:+.3f}" for k, (mean, _, high) in zip(AT, found, strict=True) if high < 0]
    means = [fmean(each) for each in zip(*gains, strict=True)]
    said = ",".join(f"{name}:{share:g}" for name, share in mix)
    return {"mix": said, "weight": weight, "gains": rounded(means), "sum": round(sum(means), 4), "lost": lost}


def choose(rows: Sequence[Row]) -> Row | None:
    """The row with the highest sum of those that lost nothing beyond its error."""
    return max((row for row in rows if not row["lost"]), key=lambda row: row["sum"], default=None)


def measure(
    parts: Iterable[tuple[str, Sequence[Tool], Sequence[Task]]], encoder: KeptEncoder, weights: Sequence[float]
) -> Iterator[tuple[float, Recalls]]:
    """The recalls as served with this encoder, by its weight in the sum."""
    searches = [(name, tasks, build_method("served", Pool(tools, {}, [encoder]))) for name, tools, tasks in parts]
    for weight in weights:
        found: Recalls = {}
        with patch.dict(dense.TAUGHT, {encoder.name: weight}):
            for name, tasks, search in searches:
                ranked = [search(task.query) for task in tasks]
                found[name] = {k: [recall(r, t.gold, k) for r, t in zip(ranked, tasks, strict=True)] for k in AT}
        yield weight, found


def queries_by(adapter: Adapter, cache: Path, first: KeptEncoder) -> KeptEncoder:
    """The encoder with this change on its queries; tools keep the vectors that `first` has."""
    weights, model = base(), adapter.dumps()
    changed = QueriesOnly(adapted.AdaptedEncoder(weights, model, cache / "encoders"), first.encoder)
    return KeptEncoder(changed, first.vectors, first.key, f"queries {weights.key} {sha256(model).hexdigest()[:16]}")


def compare(
    parts: Sequence[tuple[str, Sequence[Tool], Sequence[Task]]],
    have: Mapping[str, Adapter],
    mixes: Sequence[Shares],
    weights: Sequence[float],
    cache: Path,
    first: KeptEncoder,
) -> Iterator[Row]:
    """A row for each mix and weight."""
    shipped = queries_by(have[SHIPPED], cache, first)
    ((_, before),) = measure(parts, shipped, [dense.ALONE])
    for mix in mixes:
        one = mixed([(have[name], share) for name, share in mix], {})
        encoder = shipped if mix == ((SHIPPED, 1.0),) else queries_by(one, cache, first)
        for weight, after in measure(parts, encoder, weights):
            yield row_of(mix, weight, before, after)


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and print the rows."""
    parser = make_parser("bench.learning.encoder_choice", __doc__)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--head-to-head", type=Path, metavar="FILE", help="a set whose servers take no part")
    add_apart(parser)
    parser.add_argument("--cache", type=Path, required=True, metavar="FOLDER", help="keeps vectors and encoders")
    parser.add_argument("--adapter", type=read_adapter, action="append", required=True, metavar="NAME=FILE")
    parser.add_argument("--mixes", type=read_mix, nargs="+", metavar="NAME:SHARE,...")
    parser.add_argument("--weights", default=f"{dense.ALONE}", metavar="W,W,...")
    parser.add_argument("--most", type=int, default=MOST, help=f"tasks of a part; default {MOST}")
    add_json(parser)
    arguments = parser.parse_args(argv)
    have = dict(arguments.adapter)
    mixes = arguments.mixes or [((name, 1.0),) for name in have]
    if unknown := ({name for mix in mixes for name, _ in mix} | {SHIPPED}) - have.keys():
        parser.error(f"--adapter: {', '.join(sorted(unknown))} is missing; give each adapter as NAME=FILE")
    draw = random.Random(7)
    parts = [
        (name, tools, draw.sample(tasks, arguments.most) if len(tasks) > arguments.most else tasks)
        for name, tools, tasks in apart_from(
            measured(arguments.data, servers_of(arguments)), queries_of(arguments.apart)
        )
    ]
    with open_vectors(arguments.cache) as vectors:
        first = open_kept(base(), arguments.cache / "encoders", vectors)
        rows = []
        for row in compare(parts, have, mixes, [float(each) for each in arguments.weights.split(",")],
                           arguments.cache, first):  # fmt: skip
            print_row(row, arguments.json)
            rows.append(row)
    if (best := choose(rows)) is not None:
        print_row({"chosen": best["mix"], "weight": best["weight"], "sum": best["sum"]}, arguments.json)


if __name__ == "__main__":
    main()
