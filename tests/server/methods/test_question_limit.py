"""How many questions one upstream may put: a few at a time, each of a size that somebody can answer."""

from __future__ import annotations

from typing import Any

from foretool.server.methods.question_limit import MOST_ASKED, MOST_OPEN, MOST_QUESTION, RATE, QuestionLimit
from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import EMPTY, Message
from foretool.server.upstreams.connection import Request


class Told:
    """Collects what the upstream is told, on a clock that the test sets."""

    def __init__(self) -> None:
        self.now = 0.0
        self.answers: list[Message] = []
        self.limit = QuestionLimit(lambda: self.now)

    def ask(self, ident: Any, request: Request | None = None, upstream: str = "u", size: int = 0) -> Any:
        params = jsonrpc.raw({"message": "x" * size})
        question = Message(id=ident, method="elicitation/create", params=params)
        return self.limit.admit(upstream, question, request, self.answers.append)


def request() -> Request:
    return Request("tools/call", {}, lambda reply: None)


def test_only_so_many_questions_of_one_request_are_open_and_an_answer_makes_room() -> None:
    told, course = Told(), request()
    answers = [told.ask(number, course) for number in range(MOST_OPEN)]
    assert None not in answers
    assert told.ask("more", course) is None
    assert told.answers[0].id == "more"
    assert told.ask("other", request()) is not None, "another request has its own questions"
    answers[0](Message(method="notifications/progress", params=EMPTY))
    assert told.ask("still", course) is None, "progress is not an answer"
    answers[0](Message(id=0, result=EMPTY))
    assert told.ask("now", course) is not None


def test_a_question_that_is_taken_back_or_never_answered_makes_room() -> None:
    told, course = Told(), request()
    for number in range(MOST_OPEN):
        told.ask(number, course)
    told.limit.close("u", 3)
    assert told.ask("a", course) is not None
    assert told.ask("b", course) is None
    told.now += 601.0
    assert told.ask("c", course) is not None


def test_one_request_leads_to_only_so_many_questions_however_fast_they_are_answered() -> None:
    told, course = Told(), request()
    admitted = 0
    for number in range(MOST_ASKED + 10):
        if (answer := told.ask(number, course)) is not None:
            admitted += 1
            answer(Message(id=number, result=EMPTY))
    assert admitted == MOST_ASKED


def test_questions_of_no_request_come_at_a_rate() -> None:
    told = Told()
    admitted = 0
    for number in range(1000):
        if (answer := told.ask(number)) is not None:
            admitted += 1
            answer(Message(id=number, result=EMPTY))
    assert admitted == RATE[0]
    told.now += 1
    assert told.ask("later") is not None


def test_what_nobody_could_answer_is_refused_and_the_refusal_is_short() -> None:
    told = Told()
    assert told.ask(1, request(), size=MOST_QUESTION) is None
    assert told.ask("i" * 5000, request()) is None
    assert [answer.id for answer in told.answers] == [1, None]
    assert all(len(jsonrpc.encode(answer)) < 500 for answer in told.answers)
