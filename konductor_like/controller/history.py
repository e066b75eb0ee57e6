"""Reading the time before the start again, as far as the rules in force look back."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from konductor_like.controller import logs
from konductor_like.controller.metrics import Metrics
from konductor_like.controller.rulebook import Rulebook
from konductor_like.detection.joining import Joiner
from konductor_like.loki.asking import Queries
from konductor_like.loki.budget import ByteBudget
from konductor_like.loki.history import Account, HistoryReader, Wanted
from konductor_like.model import span_text
from konductor_like.policy.config import PolicyConfig
from konductor_like.settings import Settings


def history_reader(
    loki: Queries,
    settings: Settings,
    rulebook: Rulebook,
    queries: Callable[[], Mapping[str, str]],
    metrics: Metrics,
    budget: ByteBudget,
    *,
    since_ns: int,
    now_ns: int,
    stop: threading.Event,
) -> HistoryReader:
    """The reader of one term, which begins at ``now_ns``; nothing before ``since_ns`` is evidence.

    ``queries`` gives what is asked for faults by the rules in force, by ``kernel`` and ``pod``.
    """
    rules: PolicyConfig = settings.rules()

    def wanted() -> Wanted:
        asked, digest = queries(), rulebook.digest
        seconds = rules.under(rulebook.escalations, digest).window_seconds
        return Wanted(digest, asked["kernel"], asked.get("pod"), seconds)

    reader = HistoryReader(
        loki,
        settings,
        wanted,
        Joiner(lambda: rulebook.detector).detect,
        budget,
        since_ns=since_ns,
        now_ns=now_ns,
        whole=_say_whole,
        pause=stop.wait,
    )
    metrics.history_unread.set_function(lambda: reader.unread_seconds)
    logs.info(
        f"Reading the last {span_text(wanted().seconds)} again for the rules that look back; until then a "
        "threshold may be reached late."
    )
    return reader


def _say_whole(account: Account) -> None:
    logs.info(
        f"The past is read again: {account.lines} lines, {account.faults} faults, {account.queries} queries, "
        f"{account.bytes_processed / 2**20:.1f} MiB processed."
    )
    if account.incomplete:
        logs.warning(
            f"{account.incomplete} single nanoseconds of it hold more lines than Loki gives at once."
        )
