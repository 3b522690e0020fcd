"""Domains by naive Bayes, on a case computed by hand."""

from __future__ import annotations

import pytest
from requirements import requirement

from foretool.retrieval.domains import ELSE, Domains

EXAMPLES = {"money": ["refund a charge", "pay the invoice"], "code": ["merge the branch", "review code branch"]}


@requirement("itr:pins")
def test_the_posterior_by_hand() -> None:
    # money: refund, charge, pay, invoice (4 words); code: merge, branch, review, code, branch (5); 8 words in all.
    # "refund the branch": money (1+1)/(4+8) * (0+1)/12 = 2/144; code (0+1)/13 * (2+1)/13 = 3/169; else 1/64.
    found = Domains(EXAMPLES).probabilities("refund the branch")
    money, code, other = 2 / 144, 3 / 169, 1 / 64
    total = money + code + other
    assert found == pytest.approx({"money": money / total, "code": code / total, ELSE: other / total})


@requirement("itr:pins")
def test_a_domain_is_taken_where_it_is_likely_enough() -> None:
    domains = Domains(EXAMPLES)
    # (1/6)^2 = .0278 against (1/13)^2 = .0059 and 1/64 = .0156: .563. Three words: .0046 / (.0046 + .0005 + .002).
    assert domains.of("refund the charge") == ELSE
    assert domains.of("refund the charge and pay") == "money"
    assert domains.of("something else entirely") == ELSE


def test_without_examples_every_task_is_in_none() -> None:
    assert Domains({}).of("refund") == ELSE
    assert Domains({"money": []}).of("refund") == ELSE
