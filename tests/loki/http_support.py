"""A client for tests with a mocked transport."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from konductor_like.loki.client import LokiClient, retrying
from tests.loki.support import ENDPOINT, NOW, QUERY, SECOND, settings


def client_of(endpoint: str = ENDPOINT, **values: Any) -> LokiClient:
    """A client that asks once."""
    return LokiClient(settings(log_endpoint=endpoint, **values), retrying(attempts=1))


def ask(client: LokiClient, query: str = QUERY) -> Any:
    with closing(client):
        return client.query_range(query, NOW, NOW + SECOND, 5000)
