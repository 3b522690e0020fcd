"""The equations of PORTS (Molfetta et al., EMNLP 2025), and the contrastive loss that the served loss adds them to.

The functions run on numpy and on torch alike (`xp` is either module); candidate 0 is always the right tool.
"""

from __future__ import annotations

from typing import Any

import numpy as np

CERTAIN = 1e-6
"""Odds are taken of probabilities at most this near to 0 or 1."""


def log_softmax(scores: Any, xp: Any = np) -> Any:
    """Turns scores (..., tools) into the logarithm of shares."""
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
