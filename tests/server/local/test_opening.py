"""The answer that a client gets before its window has a proxy."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from requirements import requirement

from foretool.server.local.opening import MOST_BYTES, KeptAnswers, Opening, forget_answers
from foretool.server.local.places import ProxyIdentity

LINE = b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{}}'
ANSWER = b'{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25"}}'


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "mcp.json"
    path.write_text("{}")
    return path


def answers(config: Path, profile: str = "", **environ: str) -> KeptAnswers:
    return KeptAnswers(str(config.with_name("run")), ProxyIdentity(str(config), profile, "/home/me"), environ)


@requirement("windows:opening")
def test_the_same_line_gets_the_same_answer(config: Path) -> None:
    answers(config).keep(LINE, ANSWER)
    assert answers(config).find(LINE) == ANSWER
    assert answers(config).find(LINE + b" ") is None
    answers(config).keep(LINE, ANSWER.replace(b"-25", b"-26"))
    assert answers(config).find(LINE) == ANSWER.replace(b"-25", b"-26")


@requirement("windows:opening")
def test_no_answer_is_kept_for_another_config_profile_or_storage_or_a_changed_config(config: Path) -> None:
    answers(config).keep(LINE, ANSWER)
    assert answers(config, "work").find(LINE) is None
    assert answers(config, FORETOOL_STORAGE="/other").find(LINE) is None
    config.write_text('{"mcpServers": {}}')
    assert answers(config).find(LINE) is None
    config.unlink()
    assert answers(config).find(LINE) is None
    answers(config).keep(LINE, ANSWER)


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (LINE.replace(b"initialize", b"tools/list"), ANSWER),
        (LINE, b'{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"no"}}'),
        (LINE, ANSWER + b" " * MOST_BYTES),
    ],
)
def test_nothing_but_a_greeting_of_usual_length_is_kept(config: Path, line: bytes, answer: bytes) -> None:
    answers(config).keep(line, answer)
    assert answers(config).find(line) is None


def test_the_greeting_of_the_newest_era_is_kept_too(config: Path) -> None:
    line = b'{"jsonrpc":"2.0","id":0,"method":"server/discover","params":{}}'
    answers(config).keep(line, b'{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"_meta lacks a version"}}')
    assert answers(config).find(line) is None
    answer = b'{"jsonrpc":"2.0","id":0,"result":{"supportedVersions":["2026-07-28"]}}'
    answers(config).keep(line, answer)
    assert answers(config).find(line) == answer


def test_a_client_whose_lines_never_come_again_fills_no_disk(config: Path) -> None:
    for number in range(100):
        answers(config).keep(LINE + b" " * number, ANSWER)
    assert len(list((config.parent / "run").iterdir())) <= 16


@requirement("windows:opening")
def test_a_damaged_file_is_no_answer(config: Path) -> None:
    answers(config).keep(LINE, ANSWER)
    (file,) = (config.parent / "run").iterdir()
    file.write_bytes(file.read_bytes()[:40])
    assert answers(config).find(LINE) is None


def test_kept_answers_can_be_dropped(config: Path) -> None:
    answers(config).keep(LINE, ANSWER)
    forget_answers({"FORETOOL_SOCKETS": str(config.parent / "run")})
    assert answers(config).find(LINE) is None
    forget_answers({"FORETOOL_SOCKETS": str(config.parent / "none")})
    forget_answers({"FORETOOL_SOCKETS": "off"})


@pytest.fixture
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))


@pytest.fixture
def pipes() -> Iterator[tuple[int, int, int, int]]:
    files = (*os.pipe(), *os.pipe())
    yield files
    for file in files:
        os.close(file)


@requirement("windows:opening")
def test_the_first_line_is_answered_and_all_that_was_read_is_left_for_the_proxy(
    config: Path, pipes: tuple[int, int, int, int]
) -> None:
    source, client, heard, output = pipes
    answers(config).keep(LINE, ANSWER)
    opening = Opening(answers(config), source, output)
    os.write(client, LINE[:20])
    opening.wait(0)
    assert opening.data == LINE[:20] and not opening.answer
    os.write(client, LINE[20:] + b'\n{"jsonrpc"')
    opening.wait(5)
    assert opening.answer and opening.data == LINE + b'\n{"jsonrpc"'
    assert os.read(heard, MOST_BYTES) == ANSWER + b"\n"


def test_a_line_without_a_kept_answer_is_left_for_the_proxy(config: Path, pipes: tuple[int, int, int, int]) -> None:
    source, client, _, output = pipes
    opening = Opening(answers(config), source, output)
    os.write(client, LINE + b"\n")
    opening.wait(5)  # without a version it is to be refused
    assert opening.data == LINE + b"\n" and not opening.answer


def test_waiting_ends_when_the_proxy_speaks(config: Path, pipes: tuple[int, int, int, int]) -> None:
    source, _, heard, output = pipes
    os.write(output, b"x")
    Opening(answers(config), source, output).wait(60, heard)


@requirement("windows:failover")
def test_what_a_client_says_after_the_hand_over_is_left_to_the_window(
    config: Path, pipes: tuple[int, int, int, int]
) -> None:
    source, client, _, output = pipes
    opening = Opening(answers(config), source, output)
    assert opening.hand_over() == b""
    os.write(client, b"a call while the window looks for another proxy\n")
    opening.wait(60)
    assert os.read(source, 6) == b"a call"


@requirement("windows:opening")
def test_a_client_that_nobody_knows_is_answered_after_some_patience(
    config: Path, pipes: tuple[int, int, int, int], quiet: None
) -> None:
    source, client, heard, output = pipes
    line = LINE.replace(b"{}}", b'{"protocolVersion":"2025-06-18"}}')
    os.write(client, line + b'\n{"jsonrpc"')
    opening = Opening(answers(config), source, output)
    opening.wait(0)
    assert opening.data and not opening.answer, "a proxy that is there says more"
    opening.wait(5)
    assert opening.answer and opening.data == line + b'\n{"jsonrpc"'
    assert b'"protocolVersion":"2025-06-18"' in os.read(heard, MOST_BYTES)


@requirement("windows:opening")
def test_on_a_busy_machine_such_a_client_is_answered_at_once(
    config: Path, pipes: tuple[int, int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, client, heard, output = pipes
    monkeypatch.setattr(os, "getloadavg", lambda: (float(os.cpu_count() or 1), 0.0, 0.0))
    os.write(client, LINE.replace(b"{}}", b'{"protocolVersion":"2025-06-18"}}') + b"\n")
    opening = Opening(answers(config), source, output)
    opening.wait(0)
    assert opening.answer and b'"serverInfo"' in os.read(heard, MOST_BYTES)


def test_what_a_client_says_further_does_not_keep_it_from_being_answered(
    config: Path, pipes: tuple[int, int, int, int]
) -> None:
    source, client, heard, output = pipes
    opening = Opening(answers(config), source, output)
    os.write(client, LINE.replace(b"{}}", b'{"protocolVersion":"2025-06-18"}}') + b"\n")
    opening.wait(0)
    os.write(client, b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    opening.wait(5)
    assert opening.answer and os.read(heard, MOST_BYTES).count(b"\n") == 1
    assert os.read(source, MOST_BYTES).startswith(b'{"jsonrpc":"2.0","method"'), "it is the relay's to read"
