"""The journal of requests, in the terms of RBAC, for assertions."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from konductor_like.sandbox.http import Request
from konductor_like.sandbox.kubernetes.errors import ApiError
from konductor_like.sandbox.kubernetes.routing import route
from konductor_like.sandbox.server import Exchange


@dataclass(frozen=True, slots=True)
class Call:
    """One request for a resource, and how it was answered."""

    verb: str
    """RBAC's: get, list, watch, create, update, patch, delete."""
    group: str
    resource: str
    """With its subresource: ``nodes/status``."""
    namespace: str
    name: str
    status: int
    """The HTTP status; 0 where the connection was dropped with no answer."""
    user_agent: str
    request: Request

    @property
    def rbac(self) -> tuple[str, str, str]:
        """What a rule must allow: verb, group, resource."""
        return (self.verb, self.group, self.resource)

    @property
    def body(self) -> Any:
        """The request's body, decoded; None where there was none."""
        return json.loads(self.request.body) if self.request.body else None


def read_journal(journal: Iterable[Exchange]) -> Iterator[Call]:
    """The calls among the exchanges: discovery, health and nonsense are left out."""
    for exchange in journal:
        try:
            asked = route(exchange.request)
        except ApiError:
            continue
        if asked is None:
            continue
        attempt = asked.attempt
        yield Call(
            attempt.verb,
            attempt.group,
            attempt.resource,
            attempt.namespace,
            attempt.name,
            exchange.status,
            exchange.request.headers.get("user-agent", ""),
            exchange.request,
        )
