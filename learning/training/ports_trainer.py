"""Trains an encoder with the served form of the PORTS loss: queries are read with thin matrices, tools keep vectors.

The loss is the contrastive one over every tool plus a share of the published one (eq. 3 and 5). With its temperature of
.5 the published loss alone moves the encoder too little in the steps that a CPU affords. An example without scores of
the language model takes part in all but eq. 3. The published losses alone, and training on both sides, are in
`bench.papers.published.ports`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from msgspec import Struct

from foretool.learning.training.optimizers import log_softmax
from foretool.learning.training.thin_encoder import ThinEncoder, as_floats, draw_batches, rate_at
from foretool.retrieval import encoders
from foretool.retrieval.adapters import Adapter
from foretool.retrieval.model_format import Floats

_CERTAIN = 1e-6
"""Odds are taken of probabilities at most this near to 0 or 1."""


class Example(Struct, frozen=True):
    """A task and one tool that it took."""

    query: str
    tool: int
    """The number of the tool's document."""
    also: tuple[int, ...] = ()
    """Other documents that are right too, and so never negatives."""
    call: str = ""
    """The call with its arguments, y of eq. 2; empty if only the tool is known."""
    tried: tuple[int, ...] = ()
    """Documents of tools that failed at this task, or were shown for it while another was needed; they become
    negatives before all others."""
    used: bool = False
    """Whether a later call took a value of this one's result."""


class TrainingPlan(Struct, frozen=True):
    """How an encoder is trained; the paper's values unless a line says otherwise."""

    negatives: int = 3
    gamma: float = 0.5
    beta: float = 0.5
    weight: float = 0.3
    """Lambda, the weight of eq. 5."""
    temperature: float = 0.05
    """Of the contrastive loss."""
    share: float = 0.3
    """Of the published loss beside the contrastive one."""
    batch: int = 64
    """The paper: 2."""
    epochs: int = 1
    """The paper: 2."""
    rate: float = 1e-3
    """Of the thin matrices, falling along a cosine; the paper: 1e-5, of all weights."""
    rank: int = 16
    tokens: tuple[int, int] = (48, 64)
    """Of a query and of a document; the paper: 512."""
    seed: int = 42
    half: bool = True
    """Whether products are taken in bfloat16, on a processor that has it."""


Useful = Callable[[int, Sequence[int]], Sequence[float] | None]
"""The mean log-probability of the right call of example i given each of these documents; None if one is not known."""


class TrainingBatch(NamedTuple):
    """The examples of one training step, with the candidate tools of each."""

    examples: list[int]
    candidates: list[list[int]]
    """Documents, the right one first."""


def choose_candidates(cosines: Floats, example: Example, among: Sequence[int] | None, negatives: int) -> list[int]:
    """Return the right document and the most similar of the others; `cosines` (documents,), `among`: which may be
    taken."""
    right = {example.tool, *example.also}
    order = (
        np.argsort(-cosines, kind="stable").tolist() if among is None else sorted(among, key=lambda at: -cosines[at])
    )
    order = list(dict.fromkeys([*(at for at in example.tried if among is None or at in among), *order]))
    return [example.tool, *[at for at in order if at not in right][:negatives]]


class PortsTrainer:
    """One training: the encoder, its optimizer, and how far it is. Resumes from `checkpoint` if that file exists."""

    def __init__(
        self,
        weights: encoders.Weights,
        documents: Sequence[str],
        examples: Sequence[Example],
        plan: TrainingPlan,
        folder: Path,
        checkpoint: Path | None = None,
        useful: Useful | None = None,
        scored: Mapping[int, Sequence[int]] | None = None,
        vectors: Floats | None = None,
        start: Adapter | None = None,
    ) -> None:
        """`folder`: where the encoder's weights are laid out. `scored`: by example, the documents that negatives are
        taken from, if only those have scores. `vectors`: of the documents, if they are known. `start`: what an earlier
        training of the same rank left, to continue from."""
        self._torch: Any = import_module("torch")
        self.weights, self.examples, self.plan = weights, examples, plan
        self.useful, self.scored = useful, scored or {}
        self.encoder = ThinEncoder(weights, folder, plan.rank, plan.seed, half=plan.half)
        self.encoder.model.eval()  # without dropout two runs of one seed are one
        self._optimizer: Any = self._torch.optim.AdamW(self.encoder.parameters, plan.rate, weight_decay=0.01)
        self._documents = self.encoder.tokens(documents, plan.tokens[1])
        self._queries = self._query_tokens([each.query for each in examples])
        self._steps = draw_batches([len(each) for each in self._queries], plan.batch, plan.epochs, plan.seed)
        self._vectors = vectors
        self.total = len(self._steps)
        self.done = 0
        self.losses: list[float] = []
        if start is not None:
            self.encoder.continue_from(start)
        self._checkpoint = checkpoint
        if checkpoint is not None and checkpoint.exists():
            self._resume(checkpoint)

    @property
    def vectors(self) -> Floats:
        """(documents, dimension) as of the last time that the documents were embedded."""
        if self._vectors is None:
            self._vectors = self.encoder.embed(self._documents)
        return self._vectors

    def run(self, progress: Callable[[int, int, float], None] | None = None, until: int | None = None) -> None:
        """Train to the end, or up to a step; `progress` gets the steps done, their total, and the loss."""
        while self.done < min(self.total, until or self.total):
            self.losses.append(self._step(self._steps[self.done]))
            self.done += 1
            if progress is not None:
                progress(self.done, self.total, float(np.mean(self.losses[-20:])))
            if self._checkpoint is not None and (self.done % 20 == 0 or self.done == self.total):
                self.save(self._checkpoint)

    def cosines(self, examples: Sequence[Example]) -> Floats:
        """Return the cosine of each example's task with each document, by the encoder as it is now; (examples,
        documents)."""
        return self.encoder.embed(self._query_tokens([each.query for each in examples])) @ self.vectors.T

    def save(self, path: Path) -> None:
        """Write a checkpoint, under another name until it is complete."""
        part = path.with_name(f"{path.name}.part")
        self._torch.save(
            {
                "done": self.done,
                "losses": self.losses,
                "vectors": self._torch.from_numpy(self.vectors),
                "thin": {name: (part.left.data, part.right.data) for name, part in self.encoder.thin.items()},
                "optimizer": self._optimizer.state_dict(),
            },
            part,
        )
        part.replace(path)

    def _resume(self, path: Path) -> None:
        kept = self._torch.load(path, weights_only=True)
        for name, (left, right) in kept["thin"].items():
            self.encoder.thin[name].left.data.copy_(left)
            self.encoder.thin[name].right.data.copy_(right)
        self._optimizer.load_state_dict(kept["optimizer"])
        self.done, self.losses, self._vectors = kept["done"], kept["losses"], kept["vectors"].numpy()

    def _query_tokens(self, queries: Sequence[str]) -> list[list[int]]:
        return self.encoder.tokens([self.weights.prefix + each for each in queries], self.plan.tokens[0])

    def _step(self, chosen: Sequence[int]) -> float:
        torch, plan = self._torch, self.plan
        for group in self._optimizer.param_groups:
            group["lr"] = rate_at(self.done, self.total, plan.rate)
        queries = self.encoder.vectors([self._queries[at] for at in chosen])
        near = as_floats(queries) @ self.vectors.T
        batch = TrainingBatch(
            list(chosen),
            [
                choose_candidates(row, self.examples[at], self.scored.get(at), plan.negatives)
                for row, at in zip(near, chosen, strict=True)
            ],
        )
        loss = self._loss(queries @ self._tool_vectors(batch).T, batch)  # cosines: (queries, documents)
        self._optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.encoder.parameters, 1.0)
        self._optimizer.step()
        return float(loss.detach())

    def _tool_vectors(self, batch: TrainingBatch) -> Any:
        """Return an array (documents, dimension) that a step compares its queries with."""
        return self._torch.from_numpy(self.vectors)

    def _loss(self, cosines: Any, batch: TrainingBatch) -> Any:
        """Return the mean loss over the batch; `cosines` (queries, documents)."""
        return self._contrastive(cosines, batch) + self.plan.share * self._published(cosines, batch)

    def _contrastive(self, cosines: Any, batch: TrainingBatch) -> Any:
        """Return the contrastive loss: the right document of each query at 0, its other right ones masked."""
        torch = self._torch
        masked = torch.zeros_like(cosines, dtype=torch.bool)
        for row, at in enumerate(batch.examples):
            masked[row, [*self.examples[at].also, self.examples[at].tool]] = True
        right = torch.tensor([row[:1] for row in batch.candidates])
        ordered = torch.cat([cosines.gather(1, right), cosines.masked_fill(masked, -1e4)], 1)
        return contrastive(ordered, self.plan.temperature, torch).mean()

    def _published(self, cosines: Any, batch: TrainingBatch) -> Any:
        """Eq. 3 where the language model was asked, plus lambda times eq. 5."""
        log_p = self._log_p(cosines, batch)
        return self._replug(log_p, batch) + self.plan.weight * preference(log_p, self._torch).mean()

    def _log_p(self, cosines: Any, batch: TrainingBatch) -> Any:
        """Eq. 1 over the candidates of each query; (queries, 1 + negatives)."""
        fewest = min(map(len, batch.candidates))
        places = self._torch.tensor([row[:fewest] for row in batch.candidates])
        return log_retrieval(cosines.gather(1, places), self.plan.gamma, self._torch)

    def _replug(self, log_p: Any, batch: TrainingBatch) -> Any:
        """Eq. 3, of the examples whose candidates all have scores; the mean over all."""
        torch, fewest = self._torch, log_p.shape[1]
        known = [
            self.useful(at, row[:fewest]) if self.useful else None
            for at, row in zip(batch.examples, batch.candidates, strict=True)
        ]
        rows = [at for at, values in enumerate(known) if values is not None]
        if not rows:
            return log_p.sum() * 0.0
        log_q = log_usefulness(torch.tensor([known[at] for at in rows]), self.plan.beta, torch)
        return replug(log_p[rows], log_q, torch).sum() / len(known)


# The equations of the paper, on numpy and on torch alike (`xp` is either module); candidate 0 is always the right tool.


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
    p = xp.clip(xp.exp(log_p), _CERTAIN, 1.0 - _CERTAIN)
    return xp.log(p) - xp.log(1.0 - p)


def preference(log_p: Any, xp: Any = np) -> Any:
    """Eq. 5: the sum over negatives of -log sigma(log of the ratio of odds); (queries,)."""
    odds = log_odds(log_p, xp)
    ratio = odds[..., :1] - odds[..., 1:]
    return xp.sum(xp.logaddexp(ratio * 0.0, -ratio), -1)


def contrastive(cosines: Any, temperature: float, xp: Any = np) -> Any:
    """Multiple negatives ranking: -log of the right tool's share among all; (queries,)."""
    return -log_softmax(cosines / temperature, xp)[..., 0]
