"""A remote server that tells people apart by their tokens, and an authorization server that trades tokens."""

from __future__ import annotations

import asyncio
import base64
import json
from collections import Counter
from typing import Any
from urllib.parse import parse_qs

import jwt
from http_fakes import Asked, upstream

SECRET = "s3cret-of-the-trader"


def tool(name: str, description: str = "") -> dict[str, Any]:
    return {"name": name, "description": description, "inputSchema": {"type": "object"}}


class Trader:
    """A token endpoint: `for-ann-1` for the token of Ann, `for-ann-2` the next time."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.authorizations: list[str] = []
        self.given: Counter[str] = Counter()
        self.refuses: dict[str, str] = {}
        """By subject: the code with which their token is refused."""
        self.expires_in: Any = 300
        self.more: dict[str, Any] = {}
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self.app = upstream(self.answer)

    async def answer(self, asked: Asked) -> None:
        form = {name: values[0] for name, values in parse_qs(asked.body).items()}
        self.asked.append(form)
        self.authorizations.append(asked.headers.get("authorization", ""))
        await self.may_answer.wait()
        if form["grant_type"] == "authorization_code":
            self.given[who := form["code"].removeprefix("code-of-")] += 1
            token = f"for-{who}-{self.given[who]}"
            await asked.answer({"access_token": token, "refresh_token": f"again-{who}", "token_type": "bearer"})
            return
        subject = str(jwt.decode(form["subject_token"], options={"verify_signature": False})["sub"])
        if code := self.refuses.get(subject):
            await asked.answer({"error": code, "error_description": "SECRET WORDS of the server"}, 400)
            return
        self.given[subject] += 1
        answer = {"access_token": f"for-{subject}-{self.given[subject]}", "token_type": "Bearer"}
        await asked.answer({**answer, "expires_in": self.expires_in, **self.more})

    @property
    def basic(self) -> list[str]:
        """Who has asked, as the server reads it."""
        return [base64.b64decode(each.removeprefix("Basic ")).decode() for each in self.authorizations]


class Mail:
    """A server of the legacy era with sessions: each person has tools, a session and a box of their own."""

    def __init__(self, tools: dict[str, list[dict[str, Any]]]) -> None:
        self.tools = tools
        self.authorizations: list[str] = []
        self.sessions: dict[str, str] = {}
        """By session: whose it is."""
        self.refused: set[str] = set()
        """Tokens that are not believed any more."""
        self.crossed: list[tuple[str, str]] = []
        """Sessions that somebody else's token came with."""
        self.app = upstream(self.answer)

    async def answer(self, asked: Asked) -> None:
        sent = asked.headers.get("authorization", "")
        self.authorizations.append(sent)
        token = sent.removeprefix("Bearer ")
        if not token.startswith("for-") or token in self.refused:
            await asked.answer({}, 401, www_authenticate='Bearer error="invalid_token"')
            return
        who = token.split("-")[1]
        if asked.method != "POST":
            await asked.answer({}, 405)
            return
        session = asked.headers.get("mcp-session-id", "")
        if session and self.sessions.get(session) != who:
            self.crossed.append((session, who))
        method = asked.body.get("method")
        if method == "initialize":
            session = f"session-{who}-{len(self.sessions)}"
            self.sessions[session] = who
            about = {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}, "prompts": {}, "resources": {}}}
            about |= {"serverInfo": {"name": "mail", "version": "1"}, "instructions": f"words for {who} alone"}
            await asked.result(about, mcp_session_id=session)
        elif "id" not in asked.body:
            await asked.answer(b"", 202)
        elif method == "tools/list":
            await asked.result({"tools": self.tools.get(who, [])})
        elif method == "tools/call":
            said = json.dumps(asked.body["params"].get("arguments", {}))
            text = f"box of {who} in {session}: {asked.body['params']['name']} {said}"
            await asked.result({"content": [{"type": "text", "text": text}]})
        else:
            error = {"code": -32601, "message": f"no {method}"}
            await asked.answer({"jsonrpc": "2.0", "id": asked.id, "error": error})
