"""Which prompts name no task."""

from __future__ import annotations

import pytest

from foretool.server.hints.talk import is_talk


@pytest.mark.parametrize(
    "prompt",
    [
        "yes", "Yes, please!", "OK", "continue", "go on ...", "thanks", "try again", "stop", "undo that", "why?", "1",
        "no, the other one", "now the same for the second one", "that\u2019s wrong", "ja, mach weiter", "sí, adelante",
        "oui, vas-y", "好的", "はい", "계속해줘", "да, дальше", "…", "?",
    ],
)  # fmt: skip
def test_talk_names_no_task(prompt: str) -> None:
    assert is_talk(prompt)


@pytest.mark.parametrize(
    "prompt",
    [
        "list the files", "stop the container", "undo the last commit", "what is 2*3?", "continue with #12", "commit",
        "what is in ~/b", "go to example.com", "and the weather?", "12 + 1", "42", "weiter mit der Rechnung",
        "let him know that I agree", "thank her for it", "say sorry to them", "what do I have next?",
        "anything for later?", "help me with my resume", "继续 部署", "now do the same " * 8,
    ],
)  # fmt: skip
def test_what_has_a_word_of_its_own_may_name_one(prompt: str) -> None:
    assert not is_talk(prompt)
