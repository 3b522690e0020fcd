"""Where the command starts: what it runs without click, and what leaves the process."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from command_fakes import WEATHER, fill, write_config

from foretool.server import cli


def test_an_error_of_our_own_is_one_line_without_its_message(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit:
        cli.main([click])  # type: ignore[list-item]
    assert exit.value.code == 1
    said = capsys.readouterr().err
    assert re.fullmatch(r"foretool: internal error: \w+ in \S+; set FORETOOL_TRACEBACK=1 .*\n", said), said


def test_the_hook_starts_without_anything_heavy() -> None:
    code = (
        "import os, sys\nfrom foretool.server.cli import main\nos._exit = sys.exit\n"
        "try: main(['hint'])\n"
        "except SystemExit: print(sorted({'click', 'rich', 'asyncio', 'pydantic', 'numpy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input="", capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout == "[]\n"


@pytest.mark.slow
def test_what_a_search_says_is_written_whole_before_the_process_leaves(tmp_path: Path) -> None:
    path = write_config(tmp_path)
    fill(path).close()
    words = ("search", "weather forecast", "--json", "--config", str(path))
    done = subprocess.run([sys.executable, "-m", "foretool", *words], capture_output=True, text=True, timeout=30)
    assert done.returncode == 0 and json.loads(done.stdout)["matches"][0]["tool"] == WEATHER
    wrong = subprocess.run([sys.executable, "-m", "foretool", "search"], capture_output=True, text=True, timeout=30)
    assert wrong.returncode == 2 and "TASK" in wrong.stderr


INTERRUPTED = """
import os, signal, sys
from foretool.server import cli
from foretool.server.commands import group, list as commands

def press(*_):
    os.kill(os.getpid(), signal.SIGINT)

class Dying:
    def __del__(self):
        press()
        for _ in range(1000): pass

def import_a_library():
    import swallows  # as native libraries do

def destroy():
    Dying()

def be_deaf():  # as a terminal that is about to read is, for one moment
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    taken = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, lambda *_: signal.signal(signal.SIGINT, taken))
    press()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])

def fail():
    try:
        press()
        import time; time.sleep(5)
    finally:
        raise ValueError("it was broken off")

def wait():
    import asyncio
    from foretool.server.system import interrupts
    async def run():
        asyncio.get_running_loop().call_soon(press)
        try:
            await asyncio.sleep(20)
        finally:
            await asyncio.sleep(0)
            print("ended in order", flush=True)
    interrupts.run(run())

def answer(path):
    import time
    {work}()
    time.sleep(5)
    print("the whole answer")

commands.show_overview = answer
cli.main()
"""


@pytest.mark.parametrize("work", ["press", "import_a_library", "destroy", "be_deaf", "fail", "wait"])
def test_ctrl_c_ends_a_command_whatever_it_is_at(work: str, tmp_path: Path) -> None:
    swallows = "import os, signal\ntry:\n    os.kill(os.getpid(), signal.SIGINT)\n    for _ in range(1000): pass\n"
    (tmp_path / "swallows.py").write_text(f"{swallows}except KeyboardInterrupt:\n    raise ImportError('native')\n")
    script = INTERRUPTED.replace("{work}", work)
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=30,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert done.returncode == 130
    assert "Traceback" not in done.stderr and "internal error" not in done.stderr
    assert done.stdout == ("ended in order\n" if work == "wait" else "")


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["latin-1", "ascii:strict"])
def test_a_terminal_that_lacks_characters_gets_the_answer_without_them_and_json_as_it_is(
    encoding: str, tmp_path: Path
) -> None:
    path = tmp_path / "mcp.json"
    settings = {"storage": "s.sqlite3", "encoder": "none"}
    path.write_text(json.dumps({"mcpServers": {"a": {"command": "天気"}}, "foretool": settings}), "utf-8")
    environ = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0", "FORETOOL_CONFIG": str(path)}

    def said(*arguments: str) -> bytes:
        command = [sys.executable, "-m", "foretool", "list", *arguments]
        done = subprocess.run(command, env=environ, capture_output=True, check=False, timeout=60)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout

    assert re.search(rb" -{30,} \n +a +new .+ '\?\?' ", said())
    assert json.loads(said("--json"))[0]["runs"] == "'天気'"


@pytest.mark.slow
@pytest.mark.parametrize("closed", ["1>&-", "2>&-"])
def test_a_command_works_whose_output_was_closed(closed: str, tmp_path: Path) -> None:
    path = write_config(tmp_path)
    fill(path).close()
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", sys.executable, "-m", "foretool", "list", "--config", str(path)]
    done = subprocess.run(command, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, b"")
