"""The part of the fixture that makes tasks of calls (SEP-2663): tools and methods that the suite asks for by name."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import mcp_types as types
from mcp.shared.exceptions import MCPError

Json = dict[str, Any]
EXTENSION: Final = "io.modelcontextprotocol/tasks"
CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
MISSING_CAPABILITY: Final = -32021
CONFIRM: Final = {"type": "object", "properties": {"confirm": {"type": "boolean"}}}
USER_NAME: Final = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def said(words: str, **more: Any) -> Json:
    return {"content": [{"type": "text", "text": words}], **more}


def question(message: str, form: Json) -> Json:
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": form}}


class Job:
    """One task and its state."""

    def __init__(self, work: Callable[[Job], Coroutine[Any, Any, Json]]) -> None:
        self.ident = secrets.token_hex(16)
        self.status = "working"
        self.created = self.updated = datetime.now(UTC).isoformat()
        self.more: Json = {}
        self.asked: Json = {}
        self.answers: Json = {}
        self.news = asyncio.Event()
        self.runs = asyncio.create_task(self.run(work))

    async def run(self, work: Callable[[Job], Coroutine[Any, Any, Json]]) -> None:
        try:
            self.turn("completed", result=await work(self))
        except MCPError as error:
            self.turn("failed", error={"code": error.error.code, "message": error.error.message})
        except asyncio.CancelledError:
            self.turn("cancelled")

    def turn(self, status: str, **more: Any) -> None:
        self.status, self.more, self.updated = status, more, datetime.now(UTC).isoformat()

    async def ask(self, questions: Json) -> Json:
        """Ask, and wait until every question is answered."""
        self.asked, self.answers = dict(questions), {}
        while self.asked:
            self.turn("input_required", inputRequests=dict(self.asked))
            self.news.clear()
            await self.news.wait()
        self.turn("working")
        return self.answers

    def take(self, answers: Mapping[str, Any]) -> None:
        known = self.asked.keys() & answers.keys()
        self.answers |= {key: answers[key] for key in known}
        self.asked = {key: each for key, each in self.asked.items() if key not in known}
        if self.status == "input_required":
            self.turn("input_required", inputRequests=dict(self.asked))
        self.news.set()

    def state(self, kind: str) -> Json:
        times = {"createdAt": self.created, "lastUpdatedAt": self.updated, "ttlMs": 600_000, "pollIntervalMs": 200}
        return {"resultType": kind, "taskId": self.ident, "status": self.status, **times}


jobs: dict[str, Job] = {}


def declares(params: Mapping[str, Any]) -> bool:
    meta = params.get("_meta") or {}
    return EXTENSION in ((meta.get(CAPABILITIES) or {}).get("extensions") or {})


def need(params: Mapping[str, Any]) -> None:
    if not declares(params):
        needed: Json = {"requiredCapabilities": {"extensions": {EXTENSION: {}}}}
        raise MCPError(MISSING_CAPABILITY, "Missing required client capability", needed)


async def compute(job: Job | None, arguments: Json) -> Json:
    await asyncio.sleep(float(arguments.get("seconds", 0)))
    return said("computed")


async def fail(job: Job | None, arguments: Json) -> Json:
    await asyncio.sleep(0.3)
    return said("it did not work", isError=True)


async def break_down(job: Job | None, arguments: Json) -> Json:
    raise MCPError(types.INTERNAL_ERROR, "it broke")


async def confirm(job: Job | None, arguments: Json) -> Json:
    if job is not None:
        await job.ask({f"confirm-{job.ident}": question("Delete it?", CONFIRM)})
    return said("deleted")


async def ask_twice(job: Job | None, arguments: Json) -> Json:
    if job is not None:
        await job.ask({f"{key}-{job.ident}": question(f"The {key}?", CONFIRM) for key in ("first", "second")})
    return said("answered")


ANY: Final[Json] = {"type": "object", "properties": {}}
SECONDS: Final[Json] = {"type": "object", "properties": {"seconds": {"type": "number"}, "label": {"type": "string"}}}
NAMED: Final[Json] = {"type": "object", "properties": {"name": {"type": "string"}}}
FILE: Final[Json] = {"type": "object", "properties": {"filename": {"type": "string"}}}
WORK: Final = {
    "slow_compute": (compute, SECONDS),
    "failing_job": (fail, ANY),
    "protocol_error_job": (break_down, ANY),
    "confirm_delete": (confirm, FILE),
    "multi_input": (ask_twice, ANY),
}
REQUIRED: Final = {"failing_job"}
"""Tools that run as a task alone."""
FORMS: Final = {"greet": NAMED, "test_tool_with_task": ANY, **{name: form for name, (_, form) in WORK.items()}}


async def call(name: str, params: Mapping[str, Any]) -> Json:
    """The result of a call of one of these tools: a task where the client takes one."""
    arguments = dict(params.get("arguments") or {})
    if name == "greet":
        return said(f"Hello, {arguments.get('name')}!")
    if name in REQUIRED or name == "test_tool_with_task":
        need(params)
    if name == "test_tool_with_task":
        answer = (params.get("inputResponses") or {}).get("user_name")
        if answer is None:
            return {"resultType": "input_required", "inputRequests": {"user_name": question("Who?", USER_NAME)}}

        async def greet(job: Job) -> Json:
            return said(f"Hello, {answer['content']['name']}!")

        return begin(greet)
    work = WORK[name][0]
    if not declares(params) or (name == "slow_compute" and not arguments.get("seconds")):
        return await work(None, arguments)
    return begin(lambda job: work(job, arguments))


def begin(work: Callable[[Job], Coroutine[Any, Any, Json]]) -> Json:
    job = Job(work)
    jobs[job.ident] = job
    return job.state("task")


def job_of(params: Mapping[str, Any]) -> Job:
    need(params)
    if (job := jobs.get(str(params.get("taskId")))) is None:
        raise MCPError(types.INVALID_PARAMS, "Task not found")
    return job


async def get(ctx: Any, _: Any) -> Json:
    job = job_of(ctx.params or {})
    return {**job.state("complete"), **job.more}


async def update(ctx: Any, _: Any) -> Json:
    job_of(ctx.params or {}).take((ctx.params or {}).get("inputResponses") or {})
    return {}


async def cancel(ctx: Any, _: Any) -> Json:
    job_of(ctx.params or {}).runs.cancel()
    return {}


METHODS: Final = {"tasks/get": get, "tasks/update": update, "tasks/cancel": cancel}
