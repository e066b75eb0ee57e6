"""One backtest from the first line to the result; what ends it early is told, and what is known is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from konductor_like.backtest.arriving import arrivals, round_up
from konductor_like.backtest.play import Player, play
from konductor_like.backtest.reading import Page, Past
from konductor_like.backtest.values import History, Result, Span, difference
from konductor_like.loki.errors import LokiError
from konductor_like.model import Source
from konductor_like.settings import Settings

INTERRUPTED = "interrupted"


def run(
    pasts: Mapping[Source, Past],
    players: Sequence[Player],
    span: Span,
    settings: Settings,
    *,
    release_after_seconds: float | None,
    nodes_from: str,
    progress: Callable[[int], object] = lambda _: None,
) -> Result:
    """Read ``span`` and play it; one player, or two to be compared. ``progress`` is told the time reached.

    Raises a LokiError where nothing could be read at all; later on it ends the run, as Ctrl-C does.
    """
    interval_ns = {
        Source.KERNEL: _ns(settings.poll_interval_seconds),
        Source.POD: _ns(settings.pod_poll_interval_seconds),
    }
    grid_ns = min(interval_ns[source] for source in pasts)
    edges = _Edges()
    pages = {
        source: edges.watched(past.pages(span), lambda: progress(min(p.upto_ns for p in pasts.values())))
        for source, past in pasts.items()
    }
    ended_by = ""
    try:
        play(arrivals(pages, interval_ns, grid_ns), players)
    except KeyboardInterrupt:
        ended_by = INTERRUPTED
    except LokiError as error:
        if all(past.upto_ns <= span.start_ns for past in pasts.values()):
            raise
        ended_by = str(error)
    upto_ns = max(span.start_ns, min(past.upto_ns for past in pasts.values()))
    end_ns = round_up(upto_ns, grid_ns)
    verdicts = [player.finish(end_ns) for player in players]
    history = History(
        asked=span,
        read=Span(span.start_ns, upto_ns),
        lines={source: past.lines for source, past in pasts.items()},
        oldest_ns=edges.oldest_ns,
        newest_ns=edges.newest_ns,
        queries=sum(past.queries for past in pasts.values()),
        bytes_processed=sum(past.bytes_processed for past in pasts.values()),
        incomplete=sum(past.incomplete for past in pasts.values()),
        kept_lines=sum(past.kept_lines for past in pasts.values()),
        waited_seconds=sum(past.waited_seconds for past in pasts.values()),
        without_boot=players[0].without_boot,
    )
    compared = verdicts[1] if len(verdicts) > 1 else None
    return Result(
        history,
        verdicts[0],
        release_after_seconds,
        nodes_from,
        shadow=players[0].shadow(),
        compared=compared,
        difference=difference(verdicts[0].outages, compared.outages) if compared else None,
        ended_by=ended_by,
    )


class _Edges:
    """Between which times lines were found at all: what retention left."""

    def __init__(self) -> None:
        self.oldest_ns: int | None = None
        self.newest_ns: int | None = None

    def watched(self, pages: Iterator[Page], each: Callable[[], object]) -> Iterator[Page]:
        for page in pages:
            if page.lines:
                oldest, newest = page.lines[0].timestamp_ns, page.lines[-1].timestamp_ns
                self.oldest_ns = oldest if self.oldest_ns is None else min(self.oldest_ns, oldest)
                self.newest_ns = newest if self.newest_ns is None else max(self.newest_ns, newest)
            each()
            yield page


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
