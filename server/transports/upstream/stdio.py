"""Upstreams that are child processes: lines of JSON on their stdin and stdout; the end of their stderr is kept.

Each child leads a process group of its own, and has a mark in its environment that whatever it starts inherits. A small
`sh` in a session of its own knows the groups and our marks, and ends these processes if we die without having done so
(SIGKILL). So no upstream outlives the proxy; `system/strays` says what is not found. A launcher that is still loading
is asked to end and has time for that, which the `sh` waits for, so that nobody else has to.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from foretool.server.protocol import jsonrpc
from foretool.server.protocol.jsonrpc import UNSET, BadMessage, Message
from foretool.server.protocol.lines import LineSplitter, TooLong
from foretool.server.protocol.loose_messages import BrokenReply, LooseLines, without_colours
from foretool.server.system.strays import MARK, end_strays, find_descendants
from foretool.server.transports.allowance import Allowance, StepWatch
from foretool.server.transports.pipes import PipeReader, PipeWriter, Turn
from foretool.server.transports.tasks import SLICE_S
from foretool.server.transports.upstream.base import LAST_LINE, Link, LinkError, Receiver
from foretool.server.transports.upstream.loading import Loading, is_launcher

_PIECE: Final = 64 * 1024
"""Bytes that are read at once. A server may have made its pipe longer."""
_STDERR_LINES: Final = 60
"""Node prints what went wrong first, then a stack and all fields of the error."""
_STDERR_WIDTH: Final = 400
_LAST_WORDS_S: Final = 5.0
"""What a child wrote longer than this before its end has nothing to do with the end."""
_NOISE_LINES: Final = 5
MOST_WAITING: Final = 8 * 1024 * 1024
"""When more bytes than this wait for a child that does not read its input, further requests fail, unsent."""
_GRACE_S: Final = 2.0
"""Time for a child to exit after its stdin is closed, and again after SIGTERM (specification: stdio, shutdown)."""

_GENTLE_S: Final = 120.0
"""Time for a launcher to end that was loading: npm finishes unpacking before it takes back what it has unpacked."""

_SPAWNS: Final = 4 * (os.cpu_count() or 1)
"""Most children that start at a time: hundreds at once would leave no time for us or for each other."""
_BEGINS_S: Final = 0.1
"""A silent child counts as starting for this long; one that waits for the network must not hold up others."""
_YIELDS_S: Final = 0.5
"""Longest wait of a start for a client to read its answer."""

# dash, which often is /bin/sh, takes a process group only after `kill -s NAME --`.
_WATCHER_SCRIPT: Final = """
trap '' INT TERM HUP
read -r mark
# Prints the processes with mark $1 in their environment, without those that have one of the marks in $spared.
strays() {
  if [ -r /proc/self/environ ]; then
    for file in $(grep -lsF -e "$1" /proc/[0-9]*/environ); do
      for m in $spared; do grep -qsF -e "$m" "$file" && continue 2; done
      file=${file%/environ}; echo "${file#/proc/}"
    done
  else
    ps -AEww -o pid= -o command= | while read -r pid rest; do
      case $rest in *"$1"*) ;; *) continue ;; esac
      for m in $spared; do case $rest in *"$m"*) continue 2 ;; esac; done
      echo "$pid"
    done
  fi
}
# Asks the group $1 with mark $2 to end, once: npm takes back what it has unpacked, and a second signal cuts that off.
end_gently() {
  kill -s TERM -- "-$1" 2>/dev/null
  n=0
  while [ $n -lt @GENTLE_S@ ] && kill -s 0 -- "-$1" 2>/dev/null; do sleep 1; n=$((n + 1)); done
  kill -s KILL -- "-$1" 2>/dev/null
  spared=
  for p in $(strays "$2" 2>/dev/null); do kill -s KILL "$p" 2>/dev/null; done
}
groups= loading= ending=
while read -r sign group own; do
  kept=; for g in $groups; do [ "$g" = "$group" ] || kept="$kept $g"; done; groups=$kept
  kept=; for g in $loading; do [ "${g%%/*}" = "$group" ] || kept="$kept $g"; done; loading=$kept
  case $sign in
    +) groups="$groups $group" ;;
    l) loading="$loading $group/$own" ;;
    e) end_gently "$group" "$own" & ending="$ending $own" ;;
  esac
done
for g in $loading; do end_gently "${g%%/*}" "${g#*/}" & ending="$ending ${g#*/}"; done
spared=$ending
left=$(strays "$mark" 2>/dev/null)
for g in $groups; do kill -s TERM -- "-$g" 2>/dev/null; done
for p in $left; do kill -s TERM "$p" 2>/dev/null; done
[ -z "$groups$left" ] || sleep 1
for g in $groups; do kill -s KILL -- "-$g" 2>/dev/null; done
for round in 1 2 3 4 5 6 7 8 9 10; do
  left=$(strays "$mark" 2>/dev/null)
  [ -n "$left" ] || break
  for p in $left; do kill -s KILL "$p" 2>/dev/null; done
done
""".replace("@GENTLE_S@", f"{_GENTLE_S:g}")


class ChildWatcher:
    """Ends the children's process groups as soon as this process is gone, and lets children start in turn."""

    def __init__(self) -> None:
        self.slots = asyncio.Semaphore(_SPAWNS)
        self.has_unread_output: Callable[[], bool] = lambda: False
        """Whether a client has not read all of its answers yet."""
        self._turn = asyncio.Lock()
        self._id = os.urandom(12).hex()
        self._marks = 0
        self._ending: list[subprocess.Popen[bytes]] = []
        """Launchers that were asked to end, for as long as they run: somebody has to collect their exit status."""
        self._sh: subprocess.Popen[bytes] | None = None

    def make_mark(self) -> str:
        """Return a new mark that identifies one child. All marks begin alike, and none is the beginning of another."""
        self._marks += 1
        return f"{self._id}.{self._marks};"

    def watch(self, group: int, loading: str = "") -> None:
        """End this group when we are gone. `loading`: its mark, if it is a launcher that may be loading; watch it again
        without once it has loaded."""
        if self._sh is None:
            self._sh = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHER_SCRIPT],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                cwd="/",
                env={"PATH": "/usr/bin:/bin:/usr/local/bin"},
            )
            self._write(f"{MARK}={self._id}\n")
        self._write(f"l {group} {loading}\n" if loading else f"+ {group}\n")

    async def wait_for_turn(self) -> None:
        """Wait until the next child may be started, because starting one stops this process for a moment. One child
        starts per round of the loop, none while a client reads an answer."""
        async with self._turn:
            end = time.monotonic() + _YIELDS_S
            await asyncio.sleep(0)
            while self.has_unread_output() and time.monotonic() < end:
                await asyncio.sleep(0.002)

    def forget(self, group: int) -> None:
        self._write(f"- {group}\n")

    def end_gently(self, process: subprocess.Popen[bytes], mark: str) -> None:
        """Ask a launcher that is still loading to end, without waiting for it."""
        self._write(f"e {process.pid} {mark}\n")
        self._ending = [each for each in (*self._ending, process) if each.poll() is None]

    def close(self) -> None:
        for process in self._ending:
            if process.poll() is None:
                process.returncode = 0  # the small sh looks after it: it may outlive us
        if self._sh is not None and self._sh.stdin is not None:
            self._sh.stdin.close()
            self._sh.wait()
            self._sh = None

    def _write(self, line: str) -> None:
        if self._sh is not None and self._sh.stdin is not None:
            try:
                self._sh.stdin.write(line.encode())
                self._sh.stdin.flush()
            except BrokenPipeError:
                self._sh = None  # somebody killed it; the next child starts another one


class Child(NamedTuple):
    """A program to start."""

    command: str
    args: Sequence[str]
    env: Mapping[str, str]
    """Its whole environment."""
    cwd: str | None


class StdioLink(Link):
    """One child process and its three pipes."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        mark: str,
        receiver: Receiver,
        watcher: ChildWatcher,
        limit: int,
        turn: Turn,
        allowance: Allowance,
        loading: Loading | None = None,
    ) -> None:
        """`loading`: watches the child if it is a launcher."""
        self.pid = process.pid
        self._process = process
        self._mark = mark
        self._receiver = receiver
        self._watcher = watcher
        self._turn = turn
        self._loop = asyncio.get_running_loop()
        self._lines = LineSplitter(limit)
        self._loose = LooseLines(limit)
        self._noise: deque[bytes] = deque(maxlen=_NOISE_LINES)
        """The last lines of its stdout that were not messages."""
        self._errors: deque[str] = deque(maxlen=_STDERR_LINES)
        self._error_at = 0.0
        """When the last one came."""
        self._error_lines = LineSplitter(64 * 1024)
        self._allowance = allowance
        self._stdin: PipeWriter | None = None
        self._outputs: list[PipeReader] = []
        self._closing = False
        self._loading = loading
        self._watching: asyncio.Task[None] | None = None
        self._starting: asyncio.TimerHandle | None = None

    def _release_slot(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
            self._starting = None
            self._watcher.slots.release()

    @property
    def is_loading(self) -> bool:
        return self._loading is not None and self._loading.goes_on and self._process.poll() is None

    def _stop_loading(self) -> None:
        self._loading = None
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None

    async def connect(self) -> None:
        process = self._process
        # When its stdin breaks, its output ends as well, and that is reported: the protocol has nothing to do.
        stdin, _ = await self._loop.connect_write_pipe(asyncio.BaseProtocol, process.stdin)
        self._stdin = PipeWriter(stdin, self._turn)
        assert process.stdout is not None and process.stderr is not None
        self._outputs.append(PipeReader(process.stdout, self._on_output, self._on_end, _PIECE))
        self._outputs.append(PipeReader(process.stderr, self._on_errors, lambda: None, _PIECE))
        self._turn.add(self._outputs[0])
        # The child counts as starting until its first output, but not for long.
        self._starting = self._loop.call_later(_BEGINS_S, self._release_slot)
        if self._loading is not None:
            self._watching = asyncio.create_task(self._loading.watch())

    def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        if self._stdin is None or self._stdin.is_closing():
            refusal = "its input is closed"
        elif self._stdin.waiting > MOST_WAITING:
            refusal = f"it does not read its input, where {MOST_WAITING // 2**20} MiB wait for it"
        else:
            if message.method is not UNSET and message.id is not UNSET:
                self._allowance.note_request()
            self._stdin.write(jsonrpc.without_line_breaks(jsonrpc.encode(message)) + b"\n")
            return
        if message.method is not UNSET and isinstance(message.id, int):
            self._receiver.on_failed(message.id, refusal, sent=False)

    def stderr(self) -> tuple[str, ...]:
        return tuple(self._errors)

    def _on_output(self, data: bytes) -> None:
        if self._starting is not None:
            self._release_slot()
        self._take(self._lines.feed(data))

    def _take(self, lines: Iterator[bytes | bytearray]) -> None:
        """Handle lines for a slice of time, and the others after everything else had its turn."""
        watch, until, are_left = StepWatch(), time.perf_counter() + SLICE_S, False
        with self._turn:
            for line in lines:
                self._on_line(line)
                if time.perf_counter() > until:
                    are_left = True
                    break
            # A large answer goes out at the end of the turn, and what it was read into must be gone by then.
            line = b""
            for dropped in self._lines.take_too_long():
                self._on_too_long(dropped)
        self._allowance.spend(watch.took())
        pause_s = self._allowance.pause_s
        if pause_s or are_left:
            self._outputs[0].rest(pause_s, partial(self._take, lines) if are_left else None)

    def _on_line(self, line: bytes | bytearray) -> None:
        try:
            message = jsonrpc.decode(line) if line[0] == 0x7B and not self._loose.is_within else None
        except BadMessage:
            message = None
        found = self._loose.read(line) if message is None else message
        if found is None or isinstance(found, BrokenReply):
            if not self._loose.is_within:
                self._noise.append(bytes(line[:_STDERR_WIDTH]))
                self._receiver.on_invalid_line(bytes(line[:_STDERR_WIDTH]))
            if found is not None:
                self._receiver.on_unreadable(found.id)
            return
        message = found
        if self._loading is not None:
            self._stop_loading()
            self._watcher.watch(self._process.pid)
        if message.method is UNSET:
            self._allowance.note_reply(len(line))
        self._receiver.on_message(message, None)

    def noise(self) -> str:
        lines = [*self._noise, self._loose.begun[:_STDERR_WIDTH], self._lines.begun[:_STDERR_WIDTH]]
        return b"\n".join(lines).decode(errors="replace")

    def _on_too_long(self, line: TooLong) -> None:
        """Give up the request whose reply is not read. Before its end, a line that does not begin with an id is that of
        the only request in flight, if there is one."""
        if not line.is_over:
            self._receiver.on_invalid_line(b"(a line over the size limit)")
        if b'"method"' not in line.start or b'"result"' in line.start:
            known = line.id is not None and line.id.isdigit()
            if known or not line.is_over:
                self._receiver.on_too_large(int(line.id) if known and line.id else None, self._lines.limit)

    def _on_errors(self, data: bytes) -> None:
        watch = StepWatch()
        for line in deque(self._error_lines.feed(data), _STDERR_LINES):
            text = without_colours(bytes(line[: 2 * _STDERR_WIDTH]))
            self._errors.append(text[:_STDERR_WIDTH].decode(errors="replace"))
            self._error_at = self._loop.time()
        self._allowance.spend(watch.took())
        if pause_s := self._allowance.pause_s:
            self._outputs[1].rest(pause_s)

    def _on_end(self) -> None:
        self._release_slot()
        if not self._closing:
            # Its stderr may say why, and comes on another pipe: let this round of the loop read it first.
            self._loop.call_soon(self._report_end)

    def _report_end(self, looks: int = 5) -> None:
        code = self._process.poll()
        if code is None and looks > 0 and not self._closing:
            # A process closes its output before it has exited: its exit status says more, if it comes soon.
            self._loop.call_later(0.004, self._report_end, looks - 1)
            return
        why = "closed its output" if code is None else _exit_reason(code)
        is_recent = self._loop.time() - self._error_at < _LAST_WORDS_S
        last = f"{LAST_LINE}{self._errors[-1]!r}" if self._errors and is_recent else ""
        self._receiver.on_closed(why + last)

    async def close(self) -> None:
        """Close stdin, then send SIGTERM and SIGKILL to the group, each after `_GRACE_S` (specification: stdio). A
        launcher whose server has not spoken may be loading, and gets more time, for which nobody waits here."""
        self._closing = True
        may_load = self._loading is not None
        self._stop_loading()
        if may_load and self._process.poll() is None:
            self._watcher.end_gently(self._process, self._mark)
            await self._has_exited(_GRACE_S)
            self._close_pipes()
            return
        # While it runs, it is known as the parent of what it started.
        is_running = self._process.poll() is None
        family = await asyncio.to_thread(find_descendants, self._process.pid) if is_running else []
        if self._stdin is not None:
            self._stdin.close()
        for step in (None, signal.SIGTERM, signal.SIGKILL):
            if step is not None:
                self._signal(step)
            if await self._has_exited(_GRACE_S if step is not signal.SIGKILL else 10.0):
                break
        # A launcher may leave helpers behind in the group (npx starts node in a shell).
        self._kill_group()
        await asyncio.to_thread(end_strays, self._mark, family)
        self._close_pipes()

    def _close_pipes(self) -> None:
        if self._stdin is not None:
            self._stdin.close()
        for output in self._outputs:
            self._turn.remove(output)
            output.close()

    def abort(self) -> None:
        """End the child at once: it could not be connected."""
        self._closing = True
        self._stop_loading()
        self._kill_group()

    def _kill_group(self) -> None:
        self._signal(signal.SIGKILL)
        self._watcher.forget(self._process.pid)

    def _signal(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):  # the group is empty
            os.killpg(self._process.pid, number)

    async def _has_exited(self, patience: float) -> bool:
        end = self._loop.time() + patience
        while self._process.poll() is None:
            if self._loop.time() > end:
                return False
            await asyncio.sleep(0.01)
        return True


def _exit_reason(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


def _spawn(child: Child, mark: str) -> subprocess.Popen[bytes]:
    """Start the process. It takes about a millisecond; asyncio would add a thread per child on Python 3.11."""
    command, cwd = child.command, child.cwd
    try:
        return subprocess.Popen(
            [command, *child.args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**child.env, MARK: mark},
            cwd=cwd,
            start_new_session=True,
        )
    except FileNotFoundError:
        if cwd is not None and not Path(cwd).is_dir():
            raise LinkError(f"cwd {cwd!r} is not a folder") from None
        raise LinkError(f"command {command!r} was not found") from None
    except OSError as error:
        raise LinkError(f"command {command!r} could not be started: {error.strerror}") from None


async def open_stdio(
    child: Child, receiver: Receiver, watcher: ChildWatcher, limit: int, turn: Turn | None = None,
    allowance: Allowance | None = None,
) -> StdioLink:  # fmt: skip
    """Start a child process and connect its pipes. `limit`: bytes of one message. `turn`: shared by all pipes of a
    proxy. `allowance`: of the server, over all its links. Raises `LinkError` when the process cannot start."""
    await watcher.slots.acquire()
    try:
        await watcher.wait_for_turn()
        mark = watcher.make_mark()
        process = _spawn(child, mark)
        loading = Loading(process.pid) if is_launcher(child.command, child.args) else None
        watcher.watch(process.pid, mark if loading is not None else "")
        allowance = allowance or Allowance()
        link = StdioLink(process, mark, receiver, watcher, limit, turn or Turn(), allowance, loading)
        try:
            await link.connect()
        except BaseException:
            link.abort()
            raise
    except BaseException:
        watcher.slots.release()
        raise
    return link
