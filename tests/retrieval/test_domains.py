"""Domains by naive Bayes, on a case computed by hand."""

from __future__ import annotations

import pytest
from requirements import requirement

from foretool.retrieval.domains import ELSE, Domains

EXAMPLES = {"money": ["refund a charge", "pay the invoice"], "code": ["merge the branch", "review code branch"]}


@requirement("itr:pins")
def test_the_posterior_by_hand() -> None:
    # money: refund, charge, pay, invoice (4 words); code: merge, branch, review, code, branch (5).
    # "refund the branch" is two words: money has one of them once, code the other twice.
    found = Domains(EXAMPLES).probabilities("refund the branch")
    money, code, other = 2 / 1004**2, 3 / 1005**2, 1 / 1000**2
    total = money + code + other
    assert found == pytest.approx({"money": money / total, "code": code / total, ELSE: other / total})


@requirement("itr:pins")
def test_a_domain_is_taken_where_it_is_likely_enough() -> None:
    domains = Domains(EXAMPLES)
    # One word: odds of 2 to 1 (code) to 1 (else). Two: 4 to 1 to 1. Three: 8 to 1 to 1.
    assert domains.probabilities("refund")["money"] == pytest.approx(0.5, abs=0.01)
    assert domains.of("refund the charge") == ELSE
    assert domains.probabilities("refund the charge")["money"] == pytest.approx(4 / 6, abs=0.01)
    assert domains.of("refund the charge and pay") == "money"
    assert Domains({"money": EXAMPLES["money"]}).of("refund the charge") == "money"
    assert domains.of("something else entirely") == ELSE


def test_without_examples_every_task_is_in_none() -> None:
    assert Domains({}).of("refund") == ELSE
    assert Domains({"money": []}).of("refund") == ELSE
