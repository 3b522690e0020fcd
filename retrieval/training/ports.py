"""PORTS (Molfetta et al., EMNLP 2025): fine-tunes the encoder itself, so that it prefers the tools that help a language
model to make the right call.

The equations stand first and run on numpy and on torch alike (`xp` is either module); candidate 0 is always the right
tool. As published: eq. 1 to 5 over the right tool and three hard negatives, refreshed every 50 steps, weight .3, gamma
and beta .5. As served ("full"): the same loss added to the contrastive one over every tool, for with a temperature of
.5 the published loss alone moves the encoder too little in the steps a CPU affords; only queries are read with what is
learned, tools keep the vectors they have; thin matrices are trained instead of all weights (`low_rank`), from those on
that come with us (`shipped`); and an example without scores of the language model takes part in all but eq. 3.

The model is an adapter of the encoder's file (`retrieval.adapters`): method "ports", version 1, about a megabyte.
Serving opens it through `encoders.adapted` and scores with it in `rankers.ports`.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from foretool.retrieval import adapters, encoders
from foretool.retrieval.adapters import Adapter
from foretool.retrieval.document import document, embedded_text
from foretool.retrieval.encoders.onnx import cut, padded, tokenizer_of
from foretool.retrieval.model_format import Floats
from foretool.retrieval.training import Material, Progress, TooLittle, continuation, low_rank
from foretool.storage.records import Tool

Loss = Literal["ports", "replug", "contrastive", "full"]
"""`ports`: eq. 3 + lambda eq. 5, as published; `replug`: eq. 3 alone; `contrastive`: multiple negatives ranking alone;
`full`: `contrastive` + `ports`, as served."""

MINIMUM = 50
"""Fewest episodes with a task in words."""
CERTAIN = 1e-6
"""Odds are taken of probabilities at most this near to 0 or 1."""


# Equations


def log_softmax(scores: Any, xp: Any = np) -> Any:
    """(..., tools) to the logarithm of shares."""
    shifted = scores - xp.amax(scores, -1)[..., None]
    return shifted - xp.log(xp.sum(xp.exp(shifted), -1))[..., None]


def log_retrieval(cosines: Any, gamma: float, xp: Any = np) -> Any:
    """Eq. 1: log P_R; (queries, candidates)."""
    return log_softmax(cosines / gamma, xp)


def log_usefulness(mean_logprobs: Any, beta: float, xp: Any = np) -> Any:
    """Eq. 2: log Q, from the mean log-probability of the right call given each candidate; (queries, candidates)."""
    return log_softmax(mean_logprobs / beta, xp)


def replug(log_p: Any, log_q: Any, xp: Any = np) -> Any:
    """Eq. 3: KL(P_R || Q); (queries,)."""
    return xp.sum(xp.exp(log_p) * (log_p - log_q), -1)


def log_odds(log_p: Any, xp: Any = np) -> Any:
    """Eq. 4: log pi; (queries, candidates)."""
    p = xp.clip(xp.exp(log_p), CERTAIN, 1.0 - CERTAIN)
    return xp.log(p) - xp.log(1.0 - p)


def preference(log_p: Any, xp: Any = np) -> Any:
    """Eq. 5: the sum over negatives of -log sigma(log of the ratio of odds); (queries,)."""
    odds = log_odds(log_p, xp)
    ratio = odds[..., :1] - odds[..., 1:]
    return xp.sum(xp.logaddexp(ratio * 0.0, -ratio), -1)


def contrastive(cosines: Any, temperature: float, xp: Any = np) -> Any:
    """Multiple negatives ranking: -log of the right tool's share among all; (queries,)."""
    return -log_softmax(cosines / temperature, xp)[..., 0]


# What is trained on


class Example(Struct, frozen=True):
    """A task and one tool it took."""

    query: str
    tool: int
    """Which of the documents."""
    also: tuple[int, ...] = ()
    """Other documents that are right too, and so never negatives."""


class Plan(Struct, frozen=True):
    """How it is trained; what the paper says where nothing else is said."""

    loss: Loss = "full"
    negatives: int = 3
    refresh: int = 50
    """Steps after which the tools' vectors, and with them the hard negatives, are worked out again."""
    gamma: float = 0.5
    beta: float = 0.5
    weight: float = 0.3
    """Lambda, of eq. 5."""
    temperature: float = 0.05
    """Of the contrastive loss."""
    share: float = 0.3
    """Of the published loss beside the contrastive one, in `full`: the best of .03, .1, .3 and 1 on tools of ToolE that
    were held out of training, by less than the error."""
    batch: int = 32
    """The paper: 2."""
    epochs: int = 1
    """The paper: 2."""
    rate: float = 1e-3
    """Of the thin matrices, falling along a cosine; the paper: 1e-5, of all weights."""
    rank: int = 16
    sides: Literal["both", "query"] = "both"
    """`query`: tools keep the vectors of the untrained encoder, and only tasks are read anew. Nothing has to be
    embedded again when a model is promoted, and a step costs a third."""
    fresh: int = 56
    """Tools at most that a step reads anew where both sides are trained; the others are as of the last refresh."""
    tokens: tuple[int, int] = (48, 64)
    """Of a query and of a document; the paper: 512."""
    seed: int = 42
    half: bool = True
    """Products in bfloat16."""


Useful = Callable[[int, Sequence[int]], Sequence[float] | None]
"""The mean log-probability of the right call of example i given each of these documents; None where it is not known."""


class Batch(NamedTuple):
    """A step's examples with the candidates of each."""

    examples: list[int]
    candidates: list[list[int]]
    """The right document first."""


def candidates(cosines: Floats, example: Example, among: Sequence[int] | None, negatives: int) -> list[int]:
    """The right document and the most similar of the others; `cosines` (documents,), `among`: which may be taken."""
    right = {example.tool, *example.also}
    order = (
        np.argsort(-cosines, kind="stable").tolist() if among is None else sorted(among, key=lambda at: -cosines[at])
    )
    return [example.tool, *[at for at in order if at not in right][:negatives]]


def read_anew(batch: Batch, most: int) -> list[int]:
    """The right documents of a step, then the hardest other ones of each example, then the next, up to `most`."""
    ranks = max(map(len, batch.candidates))
    order = [row[rank] for rank in range(ranks) for row in batch.candidates if rank < len(row)]
    return sorted(list(dict.fromkeys(order))[:most])


SORTED = 8
"""Batches among which the tasks are put in order of length, so that few tokens of a batch are padding."""


def steps(lengths: Sequence[int], plan: Plan) -> list[list[int]]:
    """Which examples make up each step, over all epochs; the same for the same seed. `lengths`: tokens of each task."""
    draw = random.Random(plan.seed)  # noqa: S311 (an order, not a secret)
    found: list[list[int]] = []
    for _ in range(plan.epochs):
        order = list(range(len(lengths)))
        draw.shuffle(order)
        epoch: list[list[int]] = []
        for start in range(0, len(order), SORTED * plan.batch):
            part = sorted(order[start : start + SORTED * plan.batch], key=lambda at: lengths[at])
            epoch += [part[at : at + plan.batch] for at in range(0, len(part), plan.batch)]
        draw.shuffle(epoch)
        found += epoch
    return found


def rate_at(step: int, total: int, rate: float, warm: float = 0.05) -> float:
    """Up in a straight line, then down along a cosine."""
    rising = max(int(total * warm), 1)
    if step < rising:
        return rate * (step + 1) / rising
    return float(rate * 0.5 * (1.0 + np.cos(np.pi * (step - rising) / max(total - rising, 1))))


# Training


class Trainer:
    """One training: the model, its thin matrices, and where it stands. Resumes from `checkpoint`, if that is there."""

    def __init__(
        self,
        weights: encoders.Weights,
        documents: Sequence[str],
        examples: Sequence[Example],
        plan: Plan,
        folder: Path,
        checkpoint: Path | None = None,
        useful: Useful | None = None,
        scored: Mapping[int, Sequence[int]] | None = None,
        vectors: Floats | None = None,
        start: Adapter | None = None,
    ) -> None:
        """`folder`: where the model's weights are laid out. `scored`: by example the documents that negatives are taken
        from, where only those have scores. `vectors`: of the documents, where they are known. `start`: what an earlier
        training left, to go on from; of the same rank."""
        torch = import_module("torch")

        self._torch: Any = torch
        torch.manual_seed(plan.seed)
        self.weights, self.documents, self.examples, self.plan = weights, documents, examples, plan
        self.useful, self.scored = useful, scored or {}
        self.model, self.names = low_rank.opened(weights, folder)
        self.model.eval()  # without dropout two runs of one seed are one
        self.thin = low_rank.make_thin(self.model, plan.rank, plan.seed)
        self._optimizer: Any = torch.optim.AdamW(
            [each for part in self.thin.values() for each in (part.left, part.right)], plan.rate, weight_decay=0.01
        )
        self._tokenizer: Any = tokenizer_of(Path(weights.file).parent if not weights.package else None)
        self._documents = self.tokens(documents, plan.tokens[1])
        self._queries = self.tokens([weights.prefix + each.query for each in examples], plan.tokens[0])
        self._plan = steps([len(each) for each in self._queries], plan)
        # (documents, dimension), as of the last refresh.
        self._cached: Floats = np.empty((0, 0), np.float32) if vectors is None else vectors
        self._cached_at = -1 if vectors is None else 0
        self.done = 0
        self.losses: list[float] = []
        if start is not None:
            low_rank.load(self.thin, self.names, start)
        self._checkpoint = checkpoint
        if checkpoint is not None and checkpoint.exists():
            self._resume(checkpoint)

    @property
    def total(self) -> int:
        return len(self._plan)

    def run(self, progress: Callable[[int, int, float], None] | None = None, until: int | None = None) -> None:
        """Train to the end, or up to a step; `progress` gets steps done, of how many, and the loss."""
        while self.done < min(self.total, until or self.total):
            if self._cached_at < 0 or (self.plan.sides == "both" and self.done % self.plan.refresh == 0):
                self._refresh()
            self.losses.append(self._step(self._plan[self.done]))
            self.done += 1
            if progress is not None:
                progress(self.done, self.total, float(np.mean(self.losses[-20:])))
            if self._checkpoint is not None and (self.done % 20 == 0 or self.done == self.total):
                self.save(self._checkpoint)

    def embed(self, tokens: Sequence[Sequence[int]], batch: int = 64) -> Floats:
        """(texts, dimension) without learning from it."""
        found = np.zeros((len(tokens), self.model.get_embedding_dimension()), np.float32)
        order = sorted(range(len(tokens)), key=lambda at: len(tokens[at]))
        with self._torch.inference_mode():
            for start in range(0, len(order), batch):
                part = order[start : start + batch]
                found[part] = low_rank.as_floats(self._vectors([tokens[at] for at in part]))
        return found

    def embed_texts(self, documents: Sequence[str] = (), queries: Sequence[str] = ()) -> tuple[Floats, Floats]:
        """Vectors of texts as they are asked for in serving: its limits, not those of training."""
        weights = self.weights
        return (
            self.embed(self.tokens([weights.document_prefix + text for text in documents], weights.document_tokens)),
            self.embed(self.tokens([weights.prefix + text for text in queries], weights.query_tokens)),
        )

    def tokens(self, texts: Sequence[str], limit: int) -> list[list[int]]:
        return [cut(self._tokenizer.encode(text[: limit * 12]).ids, limit) for text in texts]

    def cosines(self, examples: Sequence[Example]) -> Floats:
        """(examples, documents), by the encoder as it is now and the documents as they were last refreshed."""
        if self._cached_at < 0:
            self._refresh()
        prefix = self.weights.prefix
        return self.embed(self.tokens([prefix + each.query for each in examples], self.plan.tokens[0])) @ self._cached.T

    def first(self, examples: Sequence[Example]) -> float:
        """How often a right document comes first."""
        best = self.cosines(examples).argmax(1).tolist() if examples else []
        return (
            float(np.mean([at in (each.tool, *each.also) for at, each in zip(best, examples, strict=True)]))
            if examples
            else 0.0
        )

    def adapter(self, report: Mapping[str, Any]) -> Adapter:
        return low_rank.adapter(self.weights, self.thin, self.names, report)

    def save(self, path: Path) -> None:
        """Under another name until it is whole."""
        part = path.with_name(f"{path.name}.part")
        self._torch.save(
            {
                "done": self.done,
                "losses": self.losses,
                "cached": self._torch.from_numpy(self._cached),
                "cached_at": self._cached_at,
                "thin": {name: (part.left.data, part.right.data) for name, part in self.thin.items()},
                "optimizer": self._optimizer.state_dict(),
            },
            part,
        )
        part.replace(path)

    def _resume(self, path: Path) -> None:
        kept = self._torch.load(path, weights_only=True)
        for name, (left, right) in kept["thin"].items():
            self.thin[name].left.data.copy_(left)
            self.thin[name].right.data.copy_(right)
        self._optimizer.load_state_dict(kept["optimizer"])
        self.done, self.losses = kept["done"], kept["losses"]
        self._cached, self._cached_at = kept["cached"].numpy(), kept["cached_at"]

    def _refresh(self) -> None:
        self._cached, self._cached_at = self.embed(self._documents), self.done

    def _vectors(self, tokens: Sequence[Sequence[int]]) -> Any:
        """(texts, dimension) of length 1, as a tensor that is learned from."""
        torch = self._torch
        ids, mask = map(torch.from_numpy, padded(tokens))
        fed = {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}
        with torch.autocast("cpu", torch.bfloat16, enabled=self.plan.half):
            return self.model(fed)["sentence_embedding"].float()

    def _step(self, chosen: Sequence[int]) -> float:
        torch, plan = self._torch, self.plan
        for group in self._optimizer.param_groups:
            group["lr"] = rate_at(self.done, self.total, plan.rate)
        queries = self._vectors([self._queries[at] for at in chosen])
        near = low_rank.as_floats(queries) @ self._cached.T
        batch = Batch(
            list(chosen),
            [
                candidates(row, self.examples[at], self.scored.get(at), plan.negatives)
                for row, at in zip(near, chosen, strict=True)
            ],
        )
        vectors = torch.from_numpy(self._cached)
        if plan.sides == "both":
            fresh = read_anew(batch, plan.fresh)
            read = self._vectors([self._documents[at] for at in fresh])
            vectors = vectors.index_copy(0, torch.tensor(fresh), read)
        loss = self._loss(queries @ vectors.T, batch)  # cosines: (queries, documents)
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_([each for part in self.thin.values() for each in (part.left, part.right)], 1.0)
        self._optimizer.step()
        return float(loss.detach())

    def _loss(self, cosines: Any, batch: Batch) -> Any:
        """The mean over the batch."""
        torch, plan = self._torch, self.plan
        total = cosines.sum() * 0.0
        if plan.loss in ("contrastive", "full"):
            total = total + contrastive(self._right_first(cosines, batch), plan.temperature, torch).mean()
        if plan.loss == "contrastive":
            return total
        share = plan.share if plan.loss == "full" else 1.0
        fewest = min(map(len, batch.candidates))
        places = torch.tensor([row[:fewest] for row in batch.candidates])
        log_p = log_retrieval(cosines.gather(1, places), plan.gamma, torch)  # (queries, 1 + negatives)
        known = [
            self.useful(at, row[:fewest]) if self.useful else None
            for at, row in zip(batch.examples, batch.candidates, strict=True)
        ]
        rows = [at for at, values in enumerate(known) if values is not None]
        if rows:
            log_q = log_usefulness(torch.tensor([known[at] for at in rows]), plan.beta, torch)
            total = total + share * replug(log_p[rows], log_q, torch).sum() / len(known)
        if plan.loss != "replug":
            total = total + share * plan.weight * preference(log_p, torch).mean()
        return total

    def _right_first(self, cosines: Any, batch: Batch) -> Any:
        """Every document, the right one of each query at 0, other right ones out of the way."""
        torch = self._torch
        shut = torch.zeros_like(cosines, dtype=torch.bool)
        for row, at in enumerate(batch.examples):
            shut[row, [*self.examples[at].also, self.examples[at].tool]] = True
        right = torch.tensor([row[:1] for row in batch.candidates])
        return torch.cat([cosines.gather(1, right), cosines.masked_fill(shut, -1e4)], 1)


# The method


MOST_ASKED = 1500
"""Pairs of task and tool that the language model is asked about in one training, the latest tasks first: some
minutes."""
HARD = 5
"""Tools beside the right one that it is asked about for a task; the hardest three of them are the negatives."""
HELD_OUT = 0.1
"""Share of the latest tasks that are not trained on, for the report."""
SERVED = Plan(loss="full", sides="query", batch=64)
PASSES = 4096
"""Tasks read in one training: a minute of one core. Few tasks are gone through several times, at most eight."""


class Ports:
    """See `Method`."""

    name = "ports"
    minimum = MINIMUM

    def __init__(self, plan: Plan = SERVED, scorer: str = "auto") -> None:
        """`scorer`: as `continuation.open_scorer` takes it, or "none"; the variable FORETOOL_LLM stands above it."""
        self.plan = plan
        self.scorer = os.environ.get("FORETOOL_LLM", scorer)

    def train(self, material: Material, progress: Progress) -> bytes:
        """An adapter of the first encoder. Raises `TooLittle`, also where nothing is installed that could train."""
        weights = trainable()
        called, examples = only_called(examples_of(material))
        if len(examples) < self.minimum:
            raise TooLittle(f"{len(examples)} calls of tasks in words; it takes {self.minimum}")
        tools = [material.tools[at] for at in called]
        texts = [embedded_text(document(each, material.server_texts.get(each.upstream, ""))) for each in tools]
        kept = int(len(examples) * (1.0 - HELD_OUT))
        vectors = material.documents(texts) if material.documents else None
        plan = replace(self.plan, seed=material.seed, epochs=max(1, min(8, PASSES // kept)))
        told = sha256(msgspec.json.encode((texts, examples, plan, weights.sha256))).hexdigest()[:16]
        with TemporaryDirectory() as scratch:
            checkpoint = work_folder() / f"{told}.checkpoint"
            trainer = Trainer(
                weights, texts, examples[:kept], plan, Path(scratch), checkpoint, vectors=vectors, start=shipped(plan)
            )
            asked = self._asked(tools, trainer, progress)
            trainer.useful, trainer.scored = asked.useful, asked.scored
            before = trainer.first(examples[kept:])
            trainer.run(lambda done, total, loss: progress(f"training, loss {loss:.3f}", done / total))
            report = {"examples": kept, "asked": asked.pairs, "scorer": asked.model, "plan": msgspec.to_builtins(plan)}
            report["first of the held out"] = [round(before, 4), round(trainer.first(examples[kept:]), 4)]
            data = trainer.adapter(report).dumps()
            checkpoint.unlink(missing_ok=True)
        return data

    def _asked(self, tools: Sequence[Tool], trainer: Trainer, progress: Progress) -> Asked:
        """What the language model says, where there is one."""
        if self.scorer == "none":
            return Asked()
        try:
            scorer = continuation.open_scorer(self.scorer)
        except continuation.ScorerError:
            if self.scorer != "auto":
                raise
            return Asked()
        with continuation.Kept(work_folder() / "scores.txt") as kept:
            return ask(trainer, tools, scorer, kept, lambda done, of: progress("asking the model", done / of))


class Asked(Struct, frozen=True):
    """What a language model said of tasks and tools."""

    means: Mapping[tuple[int, int], float] = {}
    """By example and document, the mean log-probability of the right call."""
    scored: Mapping[int, tuple[int, ...]] = {}
    model: str = ""

    @property
    def pairs(self) -> int:
        return len(self.means)

    def useful(self, example: int, documents: Sequence[int]) -> Sequence[float] | None:
        """See `Useful`."""
        found = [self.means.get((example, each)) for each in documents]
        return None if None in found else [each for each in found if each is not None]


def ask(
    trainer: Trainer,
    tools: Sequence[Tool],
    scorer: continuation.ContinuationScorer,
    kept: continuation.Kept,
    progress: Callable[[int, int], None] | None = None,
    most: int = MOST_ASKED,
    hard: int = HARD,
) -> Asked:
    """The latest examples, each with the right tool and the most similar others, in the order of the trainer's
    documents."""
    count = min(len(trainer.examples), most // (1 + hard))
    chosen = range(len(trainer.examples) - count, len(trainer.examples))
    near = trainer.cosines([trainer.examples[at] for at in chosen])
    scored = {
        at: tuple(candidates(row, trainer.examples[at], None, hard)) for at, row in zip(chosen, near, strict=True)
    }
    asked = {
        (at, each): continuation.Asked(
            docstring(tools[each]), trainer.examples[at].query, f"{tools[scored[at][0]].name}()"
        )
        for at in chosen
        for each in scored[at]
    }
    scores = continuation.score_all(scorer, asked.values(), kept, progress)
    return Asked({pair: scores[each].mean for pair, each in asked.items()}, scored, scorer.model)


def docstring(tool: Tool) -> str:
    """A tool as a function of Python, as the paper shows tools to the language model."""
    told = document(tool)
    lines = [f"def {told.name}({', '.join(told.parameters)}):", '"""', " ".join(told.description.split())[:400], '"""']
    return "\n".join(lines)


def examples_of(material: Material) -> list[Example]:
    """Each task with each tool it took, oldest first; a task of several tools is several examples (4.1)."""
    place = {tool.id: at for at, tool in enumerate(material.tools)}
    found = []
    for episode in material.episodes:
        right = list(dict.fromkeys(place[each] for each in episode.calls if each in place))
        for query in episode.tasks[:1]:
            found += [Example(query, each, tuple(other for other in right if other != each)) for each in right]
    return found


def only_called(examples: Sequence[Example]) -> tuple[list[int], list[Example]]:
    """The documents that are right for some example, and the examples by their places among these.

    Only they are trained with: a tool that nobody has called yet would be a negative and nothing else, and what is
    trained would find it less than before.
    """
    called = sorted({at for each in examples for at in (each.tool, *each.also)})
    place = {at: new for new, at in enumerate(called)}
    return called, [Example(each.query, place[each.tool], tuple(place[at] for at in each.also)) for each in examples]


def shipped(plan: Plan) -> Adapter | None:
    """What the first encoder was trained to before it came here, to go on from; None where it was not, or otherwise."""
    weights = encoders.MANIFEST[0]
    if not weights.adapter:
        return None
    found = adapters.loads(Path(adapters.__file__).with_name(weights.adapter).read_bytes())
    fits = found.base == weights.sha256 and all(left.shape[1] == plan.rank for left, _ in found.changes.values())
    return found if fits else None


def trainable() -> encoders.Weights:
    """The encoder that is trained. Raises `TooLittle` where it, or what trains it, is not installed."""
    weights = encoders.MANIFEST[0].untrained
    missing = [name for name in ("torch", "sentence_transformers") if find_spec(name) is None]
    if missing:
        raise TooLittle(f"{', '.join(missing)} not installed; pip install 'foretool[train]'")
    if encoders.locate(weights) is None:
        raise TooLittle(f"encoder {weights.name!r} is not installed; {encoders.INSTALL}")
    return weights


def work_folder() -> Path:
    """Where scores and half-done trainings are kept, so that a training that was killed goes on."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "foretool" / "ports"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


METHOD = Ports()
