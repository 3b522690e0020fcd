"""Trains the encoder on both sides, queries and documents of tools, through the same thin matrices: tried, not shipped.

    python -m bench.learning.both_sides --data FOLDER --start FILE --cache FOLDER --out FILE

FILE is what `bench.learning.shipped_encoder train` wrote; half of it is the start. The tasks are those of the same
licensed training parts (`RECIPE`), a fifth as many strung together, and a quarter of those that need one tool cut down
to a few of their words (`shorten`), because people word wishes so. A step reads 32 tasks and at most 96 documents: the
right ones and those that were taken for right most easily. All other documents stand with the vectors of the last time
that they were read. The loss is the contrastive one, every tool of a task right at once, plus `ANCHOR` times how far
the similarities have left those of the untrained encoder (KL divergence, of tasks to tools and of tools to each
other), so that what training does not show stays where it was.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
from msgspec import Struct

from bench.kept_encoder import open_kept, open_vectors
from bench.learning.shipped_encoder import ALIKE, base, read_trained, scaled
from bench.options import make_parser
from foretool.learning.training.thin_encoder import ThinEncoder, as_floats, draw_batches, rate_at
from foretool.retrieval import adapters
from foretool.retrieval.model_format import Floats

RECIPE = (("toole_unseen", 2500), ("sealtools", 700), ("ultratool", 3027), ("apibench", 600), ("octopus_unseen", 160))
"""Training parts, and how many tasks of each at most."""
TWICE = "sealtools"
"""The set with the most tools and the fewest tasks; its tasks are read twice."""
DRAW, SEED = 3, 42
START = 0.5
"""The share of the earlier training that this one starts from."""
STRUNG, SHORT = 0.2, 0.25
STEPS, BATCH, RATE, TEMPERATURE, ANCHOR = 240, 32, 5e-4, 0.05, 0.5
HARD, AHEAD, MOST_RIGHT = 24, 4, 72
"""Wrong documents that a step reads at most, from how many of the first of each task, and right ones at most."""
TOKENS = (56, 40)
"""Of a task and of a document."""
REFRESH = 110
"""The step after which all documents are read again."""
FEWEST, MOST = 3, 14
"""Words of a shortened task."""
_STOP_WORDS = (
    "a an the of to in on for and or is are i me my you your please can could would with that this it be as at by from"
    " need want like some"
)
_STOP = frozenset(_STOP_WORDS.split())


class Wish(Struct, frozen=True):
    """A task, the documents that are right, and its set."""

    query: str
    right: tuple[int, ...]
    set: int


class Wishes(Struct, frozen=True):
    """What is trained on."""

    texts: list[str]
    sets: list[int]
    """The set of each document."""
    tasks: list[Wish]


def shorten(query: str, draw: random.Random) -> str:
    """Keep 30 to 70 % of a task's telling words in their order."""
    words = [word for word in query.split() if word.lower().strip(".,?!") not in _STOP]
    if len(words) <= FEWEST:
        return query
    count = min(max(FEWEST, int(len(words) * draw.uniform(0.3, 0.7))), MOST)
    return " ".join(words[at] for at in sorted(draw.sample(range(len(words)), count)))


def read_wishes(data: Path) -> Wishes:
    """Read documents and tasks of every set of the recipe."""
    draw = random.Random(DRAW)
    texts: list[str] = []
    sets: list[int] = []
    by_set: list[list[Wish]] = []
    for number, (name, most) in enumerate(RECIPE):
        read, place, rows = read_trained(data / name, len(texts))
        texts += read
        sets += [number] * len(read)
        draw.shuffle(rows)
        by_set.append(
            [Wish(row["query"], tuple(sorted({place[call] for call in row["calls"]})), number) for row in rows[:most]]
        )
    return Wishes(texts, sets, mixed(by_set))


def mixed(by_set: Sequence[Sequence[Wish]]) -> list[Wish]:
    """All tasks, with the strung and the shortened ones."""
    draw = random.Random(SEED)
    found: list[Wish] = []
    for own in by_set:
        found += own
        for _ in range(int(STRUNG * len(own))):
            parts = draw.sample(list(own), draw.randint(2, 4))
            right = tuple(sorted({at for each in parts for at in each.right}))
            found.append(Wish(" ".join(each.query for each in parts), right, own[0].set))
    twice = [name for name, _ in RECIPE].index(TWICE)
    found += [each for own in by_set for each in own if each.set == twice]
    return [
        Wish(shorten(each.query, draw), each.right, each.set)
        if len(each.right) == 1 and draw.random() < SHORT
        else each
        for each in found
    ]


def chosen_documents(near: Floats, right: Sequence[Sequence[int]], draw: random.Random) -> list[int]:
    """Return the documents that a step reads: the right ones, at most three of a task, then the wrong ones that come
    first. `near` (tasks, documents) has the right ones far below."""
    wanted = [at for own in right for at in (own if len(own) <= 3 else draw.sample(list(own), 3))]
    found = list(dict.fromkeys(wanted))[:MOST_RIGHT]
    first = np.argsort(-near, 1)[:, :AHEAD]
    wrong = dict.fromkeys(at for rank in range(AHEAD) for at in first[:, rank].tolist())
    return [*found, *[at for at in wrong if at not in set(found)][:HARD]]


def divergence(before: Any, after: Any, torch: Any) -> Any:
    """The mean KL divergence of rows of similarities after training from those before, both over the temperature."""
    was = torch.log_softmax(before, 1)
    return (was.exp() * (was - torch.log_softmax(after, 1))).sum(1).mean()


def contrast(scores: Any, right: Sequence[Sequence[int]], shut: Any, torch: Any) -> Any:
    """The mean loss over the tasks; `shut` (tasks, documents) are no negatives: right ones, and what may be right."""
    others = torch.logsumexp(scores.masked_fill(shut, -1e9), 1)
    total = scores.sum() * 0.0
    for row, places in enumerate(right):
        own = scores[row, list(places)]
        total = total + (torch.logaddexp(own, others[row].expand_as(own)) - own).mean()
    return total / len(right)


def train(
    wishes: Wishes, untrained: Floats, start: adapters.Adapter, folder: Path, most: int = STEPS
) -> adapters.Adapter:
    """Train for at most `most` steps, and return the adapter. `untrained` (documents, dimension): the vectors of the
    documents by the untrained encoder."""
    torch: Any = import_module("torch")
    rank = next(iter(start.changes.values()))[0].shape[1]
    encoder = ThinEncoder(base(), folder, rank, SEED)
    encoder.model.eval()
    queries = encoder.tokens([each.query for each in wishes.tasks], TOKENS[0])
    documents = encoder.tokens(wishes.texts, TOKENS[1])
    before = encoder.embed(queries)  # the thin matrices change nothing yet
    encoder.continue_from(start)
    optimizer = torch.optim.AdamW(encoder.parameters, RATE, weight_decay=0.01)
    vectors, sets, draw = encoder.embed(documents), np.asarray(wishes.sets), random.Random(SEED)
    steps = draw_batches([len(each) for each in queries], BATCH, 20, SEED)[:most]
    for step, chosen in enumerate(steps):
        for group in optimizer.param_groups:
            group["lr"] = rate_at(step, len(steps), RATE)
        right = [wishes.tasks[at].right for at in chosen]
        shut = np.zeros((len(chosen), len(vectors)), np.bool_)
        for row, places in enumerate(right):
            alike = (untrained @ untrained[list(places)].T).max(1) > ALIKE
            shut[row] = alike & (sets != sets[places[0]])
            shut[row, list(places)] = True
        asked = encoder.vectors([queries[at] for at in chosen])
        near = as_floats(asked) @ vectors.T
        near[shut] = -9.0
        # Texts of similar length run together.
        fresh = sorted(chosen_documents(near, right, draw), key=lambda at: len(documents[at]))
        half = len(fresh) // 2
        read = torch.cat([encoder.vectors([documents[at] for at in part]) for part in (fresh[:half], fresh[half:])])
        scores = asked @ torch.from_numpy(vectors).index_copy(0, torch.tensor(fresh), read).T / TEMPERATURE
        itself = torch.eye(len(fresh)) * -1e4
        known = torch.from_numpy(untrained[fresh])
        anchor = divergence(torch.from_numpy(before[list(chosen)] @ untrained.T) / TEMPERATURE, scores, torch)
        anchor = anchor + divergence(
            known @ known.T / TEMPERATURE + itself, read @ read.T / TEMPERATURE + itself, torch
        )
        loss = contrast(scores, right, torch.from_numpy(shut), torch) + ANCHOR * anchor
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(encoder.parameters, 1.0)
        optimizer.step()
        vectors[fresh] = as_floats(read)
        if step == REFRESH:
            vectors = encoder.embed(documents)
        print(f"step {step + 1} of {len(steps)}, loss {float(loss.detach()):.3f}", flush=True)
    report = {"sets": dict(RECIPE), "tasks": len(wishes.tasks), "documents": len(wishes.texts), "seed": SEED}
    return encoder.adapter({**report, "sides": "both", "start": START, "steps": len(steps)})


def main(argv: Sequence[str] | None = None) -> None:
    """Read the arguments and train."""
    parser = make_parser("bench.learning.both_sides", __doc__)
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--start", type=Path, required=True, metavar="FILE")
    parser.add_argument("--cache", type=Path, required=True, metavar="FOLDER", help="keeps vectors")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE")
    arguments = parser.parse_args(argv)
    wishes = read_wishes(arguments.data)
    with open_vectors(arguments.cache) as vectors:
        untrained = open_kept(base(), vectors).documents(wishes.texts)
    start = scaled(adapters.loads(arguments.start.read_bytes()), START)
    arguments.out.write_bytes(train(wishes, untrained, start, arguments.cache / "model").dumps())


if __name__ == "__main__":
    main()
