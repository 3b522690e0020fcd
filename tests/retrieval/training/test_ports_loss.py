"""The equations of PORTS give what was computed by hand, in numpy and in torch."""

from __future__ import annotations

from math import exp, log
from typing import Any

import numpy as np
import pytest
from requirements import requirement

from foretool.retrieval.training import ports_loss as ports

COSINES = [[1.0, 0.5], [0.25, 0.25]]
LOGPROBS = [[-1.0, -2.0], [-1.0, -1.0]]
P = exp(1.0) / (1.0 + exp(1.0))
"""Right tool, first row: cosines 1 and .5 over gamma .5 are 2 and 1."""
Q = exp(2.0) / (1.0 + exp(2.0))
"""The same of the log-probabilities: -2 and -4."""
KL = P * log(P / Q) + (1 - P) * log((1 - P) / (1 - Q))  # 0.08261
PREFERENCE = log(1.0 + exp(-2.0))  # odds e and 1/e, so the log of their ratio is 2: 0.12693


def modules() -> list[Any]:
    try:
        import torch
    except ImportError:
        return [np]
    return [np, torch]


def rows(values: list[list[float]], xp: Any) -> Any:
    return xp.asarray(values, dtype=xp.float64)


@requirement("ports:equations")
@pytest.mark.parametrize("xp", modules(), ids=lambda module: str(module.__name__))
def test_the_equations_give_what_was_computed_by_hand(xp: Any) -> None:
    log_p = ports.log_retrieval(rows(COSINES, xp), 0.5, xp)
    log_q = ports.log_usefulness(rows(LOGPROBS, xp), 0.5, xp)
    assert xp.exp(log_p)[0].tolist() == pytest.approx([0.731059, 0.268941], abs=1e-6)  # eq. 1
    assert xp.exp(log_q)[0].tolist() == pytest.approx([0.880797, 0.119203], abs=1e-6)  # eq. 2
    assert ports.replug(log_p, log_q, xp).tolist() == pytest.approx([KL, 0.0])  # eq. 3
    assert abs(KL - 0.08261) < 1e-5
    assert ports.log_odds(log_p, xp)[0].tolist() == pytest.approx([1.0, -1.0])  # eq. 4
    assert ports.preference(log_p, xp).tolist() == pytest.approx([PREFERENCE, log(2.0)])  # eq. 5
    assert abs(PREFERENCE - 0.12693) < 1e-5


@pytest.mark.parametrize("xp", modules(), ids=lambda module: str(module.__name__))
def test_the_preference_is_summed_over_the_negatives(xp: Any) -> None:
    # Cosines 1, .5, .5 over .5: shares e/(e+2) and 1/(e+2) twice; odds e/2 and 1/(e+1) twice.
    log_p = ports.log_retrieval(rows([[1.0, 0.5, 0.5]], xp), 0.5, xp)
    ratio = log((exp(1.0) / 2) / (1 / (exp(1.0) + 1)))
    assert ports.preference(log_p, xp).tolist() == pytest.approx([2 * log(1 + exp(-ratio))])


@pytest.mark.parametrize("xp", modules(), ids=lambda module: str(module.__name__))
def test_a_share_of_one_has_finite_odds_and_shut_tools_no_share(xp: Any) -> None:
    log_p = ports.log_retrieval(rows([[1.0, -1e4]], xp), 0.5, xp)
    assert ports.preference(log_p, xp).tolist() == pytest.approx([0.0], abs=1e-6)
    assert ports.contrastive(rows([[0.5, 0.5, -1e4]], xp), 0.05, xp).tolist() == pytest.approx([log(2.0)])
