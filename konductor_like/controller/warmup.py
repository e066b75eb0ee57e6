"""Reading the time before the start again, as far as the rules in force look back."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from konductor_like.controller import logs
from konductor_like.controller.active_rules import ActiveRules, RulesInForce
from konductor_like.controller.metrics import Metrics
from konductor_like.detection.multiline import MultilineDetector
from konductor_like.loki.warmup_reader import WarmupReader, WarmupScope, WarmupTotals
from konductor_like.loki.window_query import ByteBudget, Queries
from konductor_like.model.text import span_text
from konductor_like.policy.config import PolicyConfig
from konductor_like.settings import Settings


def warmup_reader(
    loki: Queries,
    settings: Settings,
    rulebook: ActiveRules,
    queries: Callable[[RulesInForce], Mapping[str, str]],
    metrics: Metrics,
    budget: ByteBudget,
    *,
    since_ns: int,
    now_ns: int,
) -> WarmupReader:
    """The reader of one leadership, which begins at ``now_ns``; nothing before ``since_ns`` is evidence.

    ``queries`` gives what is asked for faults by some rules, by ``kernel`` and ``pod``.
    """
    rules: PolicyConfig = settings.rules()

    def wanted() -> WarmupScope:
        in_force = rulebook.in_force  # another thread swaps it
        asked, seconds = queries(in_force), in_force.under(rules).window_seconds
        return WarmupScope(in_force.digest, asked["kernel"], asked.get("pod"), seconds)

    reader = WarmupReader(
        loki,
        settings,
        wanted,
        MultilineDetector(lambda: rulebook.in_force.detector).detect,
        budget,
        since_ns=since_ns,
        now_ns=now_ns,
        finished=_say_finished,
    )
    metrics.history_unread.set_function(lambda: reader.unread_seconds)
    logs.info(
        f"Reading the last {span_text(wanted().seconds)} again for the rules that look back; until then a "
        "threshold may be reached late."
    )
    return reader


def _say_finished(totals: WarmupTotals) -> None:
    logs.info(
        f"The past is read again: {totals.lines} lines, {totals.faults} faults, {totals.queries} queries, "
        f"{totals.bytes_processed / 2**20:.1f} MiB processed."
    )
    if totals.incomplete:
        logs.warning(f"{totals.incomplete} single nanoseconds of it hold more lines than Loki gives at once.")
