"""What a backtest asks of Loki, how fast, and where it keeps the answers."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from konductor_like.backtest.keeping import Kept, name_of
from konductor_like.backtest.reading import Past
from konductor_like.backtest.silence import silence
from konductor_like.backtest.simulation import ns_of
from konductor_like.backtest.values import Silence, Span
from konductor_like.cli import session
from konductor_like.cli.errors import describe
from konductor_like.cli.output import warn
from konductor_like.detection import Detector
from konductor_like.loki.byte_budget import ByteBudget
from konductor_like.loki.client import LokiClient
from konductor_like.loki.errors import LokiError
from konductor_like.loki.logql import kernel_query, pod_query
from konductor_like.model import Source
from konductor_like.settings import Settings

KEPT_AFTER_NS = 6 * 3600 * 10**9
"""Younger lines are read anew each time: collectors that were cut off deliver late."""


class Reading(Protocol):
    """What the command line says about it."""

    @property
    def cache(self) -> Path | None:
        """Where to keep what was read; None for the user's cache directory."""

    @property
    def use_cache(self) -> bool:
        """Whether to keep it at all."""

    @property
    def mib_per_minute(self) -> int | None:
        """What Loki may process a minute; None for what the settings say."""


def pasts(
    loki: LokiClient, settings: Settings, detectors: list[Detector], asked: Reading
) -> dict[Source, Past]:
    """Each source's lines that any of the rules may need, in one query. Raises OSError for ``--cache``."""
    anchors = {
        source: tuple(dict.fromkeys(a for detector in detectors for a in detector.anchors(source)))
        for source in Source
    }
    budget = _budget(settings, asked)
    queries = {
        Source.KERNEL: kernel_query(settings, anchors[Source.KERNEL]),
        Source.POD: pod_query(settings, anchors[Source.POD]),
    }
    upto_ns = ns_of(session.now()) - KEPT_AFTER_NS
    return {
        source: Past(
            source, loki, query, settings, budget, time.sleep, warn, _kept(asked, settings, query), upto_ns
        )
        for source, query in queries.items()
        if query is not None
    }


def heard(loki: LokiClient, settings: Settings, span: Span, asked: Reading) -> Silence | None:
    """Whose kernel log was silent; None, and a warning, where that could not be found out."""
    budget = _budget(settings, asked)

    def spent(bytes_processed: int) -> None:
        budget.spend(bytes_processed)
        while budget.used >= 1:
            time.sleep(1)

    try:
        return silence(loki, settings, span, spent)
    except LokiError as error:
        warn(f"it is not known which nodes were silent: {error}")
    except KeyboardInterrupt:
        warn("it is not known which nodes were silent: interrupted")
    return None


def _budget(settings: Settings, asked: Reading) -> ByteBudget:
    return ByteBudget((asked.mib_per_minute or settings.loki_budget_mib_per_minute) * 2**20)


def _kept(asked: Reading, settings: Settings, query: str) -> Kept | None:
    if not asked.use_cache:
        return None
    address = urlsplit(settings.log_endpoint)
    place = f"{address.scheme}://{address.netloc.rpartition('@')[2]}{address.path}"
    name = name_of(place, settings.loki_tenant or "", query)
    if asked.cache is not None:
        return Kept(asked.cache, name)
    try:
        return Kept(_users_cache() / "konductor-like" / "backtest", name)
    except (OSError, RuntimeError) as error:  # a home that is read-only, or none: nobody asked for it
        warn(f"nothing is kept for another run: {describe(error)}")
        return None


def _users_cache() -> Path:
    """Raises RuntimeError where the user has no home."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return Path(given) if Path(given).is_absolute() else Path.home() / ".cache"
