"""The loop's time that an upstream may take for what nobody asked."""

from __future__ import annotations

import asyncio
import time

import pytest

from foretool.server.transports.allowance import (
    BURST_S,
    BYTE_S,
    LEAST_PAUSE_S,
    MOST_PAUSE_S,
    REPLY_S,
    SHARE,
    Allowance,
    Answers,
    Took,
    metered,
)

pytestmark = pytest.mark.anyio


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def pause_after(allowance: Allowance, seconds: float) -> float:
    """How long the upstream is not read once it has taken so much time."""
    allowance.spend(Took(seconds, seconds))
    return allowance.pause_s


def test_replies_that_were_asked_for_cost_nothing_within_what_an_honest_one_takes() -> None:
    allowance = Allowance(Clock())
    for _ in range(100):
        allowance.note_request()
        allowance.note_reply(1_000_000)
        assert pause_after(allowance, REPLY_S + 1_000_000 * BYTE_S) == 0.0
    allowance.note_request()
    allowance.note_reply(10)
    assert pause_after(allowance, 1.0) > 0, "one that takes long is counted beyond that"


def test_replies_that_nobody_asked_for_cost_as_much_as_notifications() -> None:
    allowance = Allowance(Clock())
    for _ in range(100):
        allowance.note_reply(1_000_000)
    assert pause_after(allowance, 1.0) > 0


def test_what_answers_bring_is_not_saved_up() -> None:
    allowance = Allowance(Clock())
    for _ in range(1000):
        allowance.note_request()
        allowance.note_reply(10)
        allowance.spend(Took(0.001, 0.001))
    assert pause_after(allowance, 1.0) == MOST_PAUSE_S


def test_parts_of_an_answer_bring_their_time() -> None:
    allowance = Allowance(Clock())
    allowance.note_part(1024 * 1024)
    assert pause_after(allowance, 1024 * 1024 * BYTE_S) == 0.0
    allowance.note_part(1)
    assert pause_after(allowance, 2 * BURST_S) > 0, "a byte that takes long is counted"


def test_where_we_have_to_wait_for_the_processor_only_what_is_over_counts_with_that() -> None:
    allowance = Allowance(Clock())
    allowance.note_request()
    allowance.note_reply(10)
    assert allowance.spend(Took(REPLY_S / 2, 10.0)) > 0
    assert allowance.pause_s == 0.0
    assert allowance.spend(Took(BURST_S / 2, BURST_S)) == allowance.pause_s == 0.0
    assert pause_after(allowance, 1e-6) == LEAST_PAUSE_S


def test_in_the_long_run_it_has_its_share_of_the_time() -> None:
    clock = Clock()
    allowance, spent = Allowance(clock), 0.0
    while clock.now < 100:
        pause = pause_after(allowance, 0.01)
        spent += 0.01
        clock.now += 0.01 + pause
    assert 0.9 * SHARE < spent / clock.now < 1.1 * SHARE + BURST_S / clock.now


def test_a_moment_of_much_is_free_and_no_pause_is_endless() -> None:
    allowance = Allowance(Clock())
    assert pause_after(allowance, BURST_S * 0.9) == 0.0
    assert pause_after(allowance, BURST_S * 0.1 + 1e-6) == LEAST_PAUSE_S
    assert pause_after(allowance, 1000.0) == MOST_PAUSE_S


# Work that is counted step by step


def work_for(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def test_metered_work_has_its_value_and_its_error() -> None:
    async def value() -> int:
        await asyncio.sleep(0)
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_result, 2)
        return 1 + int(await future)

    async def error() -> None:
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.set_exception, KeyError("x"))
        await future

    assert await metered(value, Allowance()) == 3
    with pytest.raises(KeyError):
        await metered(error, Allowance())


async def test_metered_work_is_cancelled_and_timed_out_like_any_other() -> None:
    seen = []

    async def wait() -> str:
        try:
            async with asyncio.timeout(0.05):
                await asyncio.sleep(100)
        except TimeoutError:
            seen.append("timed out")
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return "never"

    task = asyncio.ensure_future(metered(wait, Allowance()))
    while not seen:
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["timed out", "cancelled"]


async def test_the_steps_of_metered_work_are_counted_and_it_waits_where_it_reads() -> None:
    allowance = Allowance(Clock())

    async def drip() -> None:
        for _ in range(4):
            work_for(BURST_S / 2)
            await asyncio.sleep(0)

    await metered(drip, allowance)
    assert allowance.pause_s > 0
    reading = asyncio.ensure_future(allowance.wait())
    await asyncio.sleep(0.01)
    assert not reading.done()
    reading.cancel()


async def test_a_request_and_its_answer_have_their_time_free() -> None:
    allowance = Allowance(Clock())

    async def ask() -> None:
        for _ in range(5):
            work_for(REPLY_S / 20)
            await asyncio.sleep(0)

    for _ in range(20):
        await metered(ask, allowance, REPLY_S)
    assert pause_after(allowance, BURST_S * 0.9) == 0.0


async def test_answers_to_a_server_go_a_few_at_a_time_and_it_is_not_read_while_many_wait() -> None:
    answers, going, gate = Answers(), [0], asyncio.Event()

    async def post() -> None:
        going[0] += 1
        await gate.wait()

    tasks = [asyncio.ensure_future(answers.send(post)) for _ in range(32)]
    await asyncio.sleep(0.01)
    await answers.wait_for_room()
    assert going == [4]
    tasks.append(asyncio.ensure_future(answers.send(post)))
    await asyncio.sleep(0.01)
    reading = asyncio.ensure_future(answers.wait_for_room())
    await asyncio.sleep(0.01)
    assert not reading.done()
    gate.set()
    await asyncio.gather(reading, *tasks)
