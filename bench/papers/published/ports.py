"""PORTS as published (Molfetta et al., EMNLP 2025): its losses alone, and training that also reads the tools again.

The paper trains with eq. 3 plus lambda times eq. 5, over the right tool and three hard negatives that are refreshed
every 50 steps. The product serves the `full` loss on queries only (`training.ports_trainer`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from foretool.learning.training.ports_trainer import PortsTrainer, TrainingBatch, TrainingPlan
from foretool.retrieval.model_format import Floats

Loss = Literal["ports", "replug", "contrastive", "full"]
"""`ports`: eq. 3 plus lambda times eq. 5, as published; `replug`: eq. 3 alone; `contrastive`: multiple negatives
ranking alone; `full`: `contrastive` plus a share of `ports`, as served."""


class PublishedPlan(TrainingPlan, frozen=True):
    """A training plan with the choices that the product does not have."""

    loss: Loss = "ports"
    sides: Literal["both", "query"] = "both"
    """Whether tools are read again as well as queries."""
    refresh: int = 50
    """Steps after which all tools are embedded again, where both sides are trained."""
    fresh: int = 56
    """Tools at most that one step reads again; the others are as of the last refresh."""


class PublishedTrainer(PortsTrainer):
    """Trains with any of the losses, on queries alone or on both sides."""

    plan: PublishedPlan

    def _step(self, chosen: Any) -> float:
        if self.plan.sides == "both" and self.done % self.plan.refresh == 0:
            self._vectors = self.encoder.embed(self._documents)
        return super()._step(chosen)

    def _tool_vectors(self, batch: TrainingBatch) -> Any:
        if self.plan.sides == "query":
            return super()._tool_vectors(batch)
        fresh = choose_fresh(batch, self.plan.fresh)
        read = self.encoder.vectors([self._documents[at] for at in fresh])
        return super()._tool_vectors(batch).index_copy(0, self._torch.tensor(fresh), read)

    def _loss(self, cosines: Any, batch: TrainingBatch) -> Any:
        if self.plan.loss == "contrastive":
            return self._contrastive(cosines, batch)
        if self.plan.loss == "replug":
            return self._replug(self._log_p(cosines, batch), batch)
        return self._published(cosines, batch) if self.plan.loss == "ports" else super()._loss(cosines, batch)


def choose_fresh(batch: TrainingBatch, most: int) -> list[int]:
    """Return the right documents of a step, then the hardest other ones of each example, then the next, up to
    `most`."""
    ranks = max(map(len, batch.candidates))
    order = [row[rank] for rank in range(ranks) for row in batch.candidates if rank < len(row)]
    return sorted(list(dict.fromkeys(order))[:most])


def embed_texts(
    trainer: PortsTrainer, documents: Sequence[str] = (), queries: Sequence[str] = ()
) -> tuple[Floats, Floats]:
    """Return the vectors of texts by the encoder that is trained, with the limits of serving, not those of training."""
    weights, encoder = trainer.weights, trainer.encoder
    prefixed = [weights.document_prefix + text for text in documents], [weights.prefix + text for text in queries]
    limits = weights.document_tokens, weights.query_tokens
    one, other = (encoder.embed(encoder.tokens(*each)) for each in zip(prefixed, limits, strict=True))
    return one, other
