"""What the HTTP server goes by: who may come in, and how much each may take. A reload sets other rules."""

from __future__ import annotations

from dataclasses import dataclass, field

from foretool.server.config.addresses import Address, is_loopback
from foretool.server.config.errors import ConfigError
from foretool.server.config.loader import Config
from foretool.server.config.settings import Settings
from foretool.server.config.tokens import WAY_OUT, all_tokens, find_problems, needs_token
from foretool.server.transports.client.access import Access, Issuer
from foretool.server.transports.client.security import Guards

_MIB = 1024 * 1024


class BindError(ConfigError):
    """The address cannot be served as configured. The message is one line: what, where, the way out."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """Limits on what HTTP clients may use together."""

    max_body: int = 4 * _MIB
    """Bytes of one message."""
    max_sessions: int = 1000
    """Legacy sessions of all clients together."""
    session_idle_s: float = 1800.0
    header_s: float = 10.0
    """How long a connection may take until the header lines of a request are complete."""
    max_connections: int = 512
    max_bodies: int = 64 * _MIB
    """Bytes of all messages that are being received or answered."""
    requests_per_minute: int = 0
    """Of one principal; 0 for any number."""


@dataclass(frozen=True, slots=True)
class HttpRules:
    """What the config says about HTTP clients at one time: tokens, hosts and limits."""

    access: Access
    guards: Guards = field(default_factory=Guards)
    limits: HttpLimits = field(default_factory=HttpLimits)


def read_rules(config: Config, address: Address, issuer: Issuer | None = None) -> HttpRules:
    """Return the rules of a config. Tokens with problems open nothing; `list_problems` says which these are. `issuer`:
    knows the tokens of the authorization server of `access`."""
    settings = config.settings
    weak = [entry for entry, _ in find_problems(settings)]
    tokens = [entry for entry in all_tokens(settings) if entry not in weak]
    return HttpRules(
        Access(tokens, config.profiles, is_open=_is_open(settings, address), issuer=issuer),
        Guards([*settings.allowed_hosts, address.host], settings.allowed_origins),
        HttpLimits(
            max_body=int(settings.max_message_mib * _MIB),
            max_sessions=settings.max_sessions,
            session_idle_s=settings.session_idle_s,
            header_s=settings.header_s,
            max_connections=settings.max_connections,
            requests_per_minute=settings.requests_per_minute,
            max_bodies=int(max(settings.max_bodies_mib, settings.max_message_mib) * _MIB),
        ),
    )


def _is_open(settings: Settings, address: Address) -> bool:
    """Return whether requests need no token: none is set, and only this user, or this machine, can connect."""
    if needs_token(settings):
        return False
    return bool(address.path) or (settings.insecure_loopback and is_loopback(address.host))


def list_problems(settings: Settings, address: Address) -> list[str]:
    """Return what is wrong with tokens and address, a line each. A token with a problem lets nobody in."""
    problems = [problem for _, problem in find_problems(settings)]
    if not problems and not needs_token(settings) and not _is_open(settings, address):
        problems.append(_need_of_token(address))
    return problems


def _need_of_token(address: Address) -> str:
    here = is_loopback(address.host)
    who = "every program and user of this machine" if here else "other machines"
    ways = [WAY_OUT, 'bind "unix:/path"', *(["set insecure_loopback to true"] if here else [])]
    return f"serve --http: no token is set, so {who} could call your tools at {address}; {', or '.join(ways)}"
