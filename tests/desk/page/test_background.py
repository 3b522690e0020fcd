"""Commands in the background: one at a time, with their answers kept."""

from __future__ import annotations

import asyncio

import pytest

from foretool.desk.page.background import WAITING, Background

pytestmark = [pytest.mark.anyio, pytest.mark.slow]  # each command is a process


async def wait_for(background: Background, number: int) -> None:
    async with asyncio.timeout(60):
        while (work := background.get(number)) is not None and not work.is_over:
            await asyncio.sleep(0.02)
    assert work is not None


async def test_the_answer_of_a_command_is_kept() -> None:
    background = Background()
    number = background.begin(["--version"])
    assert number == 1 and background.begin(["--version"]) == 1
    await wait_for(background, 1)
    work = background.get(1)
    assert work is not None and work.answer is not None and work.answer.startswith(b"foretool")
    assert background.begin(["--version"]) == 2
    await wait_for(background, 2)


async def test_a_page_that_is_being_made_sees_the_work_in_one_state() -> None:
    background = Background()
    number = background.begin(["--version"])
    assert number is not None
    seen = background.get(number)
    await wait_for(background, number)
    assert seen is not None and not seen.is_over and seen.answer is None


async def test_a_command_that_fails_says_why_in_its_own_words() -> None:
    background = Background()
    number = background.begin(["tools", "--config=/nowhere/at/all.json"])
    assert number is not None
    await wait_for(background, number)
    work = background.get(number)
    assert work is not None and work.answer is None and "/nowhere/at/all.json" in work.problem


async def test_only_a_few_commands_wait() -> None:
    background = Background()
    begun = [background.begin(["--version", "x" * place]) for place in range(WAITING + 2)]
    assert begun == [*range(1, WAITING + 2), None]
    assert background.get(99) is None and len(begun) < 20
    for task in list(background._tasks):
        task.cancel()
    await asyncio.gather(*background._tasks, return_exceptions=True)
