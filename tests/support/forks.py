"""Commands as forks of one process that has imported what they need.

A start takes 40 ms of a processor in place of 400, and in place of 1,000 where it loads the MCP SDK. What is started
stays a process of its own, with its own pipes, environment and folder. A program beside the socket takes the place of
the interpreter: it hands all of these on, and ends as the fork does.
"""

from __future__ import annotations

import gc
import marshal
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

MODULES = (
    "httpcore2", "httpx2", "mcp.client.auth", "truststore", "foretool.server.app", "foretool.server.cli",
    "foretool.server.commands.group", "foretool.server.commands.login", "foretool.server.commands.serving",
    "foretool.server.commands.window", "foretool.server.serve", "foretool.server.signin.flow", "served",
)  # fmt: skip
"""None of them starts a thread, which a fork would lose."""
PROGRAM = """#!/bin/sh
exec "{python}" -SE "{client}" "$@"
"""
CLIENT = """import marshal, os, socket, sys

with socket.socket(socket.AF_UNIX) as line:
    line.connect({line!r})
    command = marshal.dumps((sys.argv[1:], dict(os.environ), os.getcwd()))
    socket.send_fds(line, [len(command).to_bytes(4, "big")], [0, 1, 2])
    line.sendall(command)
    sys.exit(int.from_bytes(line.recv(1) or b"\\1", "big"))
"""


@contextmanager
def forking() -> Iterator[str]:
    """What to start in place of Python, while the process lives that forks."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as line:
        line.bind(f"{folder}/line")
        line.listen(64)
        program, client = Path(folder, "python"), Path(folder, "client.py")
        client.write_text(CLIENT.format(line=f"{folder}/line"))
        program.write_text(PROGRAM.format(python=sys.executable, client=client))
        program.chmod(0o700)
        command = [sys.executable, "-P", __file__, str(line.fileno())]
        with subprocess.Popen(command, pass_fds=[line.fileno()], stdin=subprocess.PIPE):
            yield str(program)


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parent))
    for name in MODULES:
        __import__(name)
    gc.freeze()  # what is looked through for garbage is copied in each fork
    with socket.socket(fileno=int(sys.argv[1])) as line:
        # Its input ends with the process of the tests, however that ends.
        while line in select.select([line, sys.stdin], [], [])[0]:
            link, _ = line.accept()
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if os.fork() == 0:
                line.close()
                _keep(link)
                os._exit(0)
            link.close()


def _keep(link: socket.socket) -> None:
    """Run one command until it ends, or whoever wanted it has gone."""
    size, files, _, _ = socket.recv_fds(link, 4, 3)
    with link.makefile("rb") as read:
        arguments, environ, folder = marshal.loads(read.read(int.from_bytes(size, "big")))
    alive, ends = os.pipe()
    child = os.fork()
    if child == 0:
        link.close()
        for place, file in enumerate(files):
            os.dup2(file, place)
        os._exit(_run(arguments, environ, folder))
    for file in (ends, *files):
        os.close(file)
    found, _, _ = select.select([link, alive], [], [])
    if alive not in found:
        os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if alive in found:
        link.sendall(bytes([os.waitstatus_to_exitcode(status) & 255]))


def _run(arguments: list[str], environ: dict[str, str], folder: str) -> int:
    os.environ.clear()
    os.environ.update(environ)
    os.chdir(folder)
    sys.stdin, sys.stdout, sys.stderr = os.fdopen(0), os.fdopen(1, "w"), os.fdopen(2, "w")
    try:
        if arguments[:2] == ["-P", "-m"]:
            sys.argv = arguments[2:]
            runpy.run_module(arguments[2], run_name="__main__", alter_sys=True)
        else:
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")
        return 0
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()


if __name__ == "__main__":
    main()
