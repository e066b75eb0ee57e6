"""Whatever happens in whatever order: no line is lost, none is delivered twice in one life of the reader."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from hypothesis import example, given, settings
from hypothesis import strategies as st

from konductor_like.loki.errors import LokiError, LokiTimeout, LokiUnavailable
from konductor_like.loki.read_state import ReaderConfig
from konductor_like.loki.reader import SourceReader
from konductor_like.model import Source
from tests.loki import support
from tests.loki.support import NOW, QUERY, SECOND, MemoryLoki, entry

SPANS = ReaderConfig(
    overlap_ns=30 * SECOND,
    lateness_ns=60 * SECOND,
    skew_ns=20 * SECOND,
    widest_ns=100 * SECOND,
    sweep_every_ns=40 * SECOND,
)
LIMIT = 8


@dataclass(frozen=True)
class Step:
    """Some seconds pass, lines arrive with these delays (negative: a clock ahead), and then a poll."""

    seconds: int
    delays: list[int]
    failure: LokiError | None
    acted_upon: bool
    """False: the process fails between reading and acting, so the batch is not committed."""
    restarted: bool


_steps = st.builds(
    Step,
    seconds=st.integers(0, 40),
    delays=st.lists(st.integers(-15, 50), max_size=12),
    failure=st.sampled_from([None, None, None, LokiUnavailable("down"), LokiTimeout("slow")]),
    acted_upon=st.sampled_from([True, True, False]),
    restarted=st.sampled_from([False, False, False, True]),
)


_FLOOD_AND_ABSENCE = [
    Step(0, [0, 0, 0, 0, 0, 1, 1, 11], None, acted_upon=True, restarted=False),
    Step(13, [], LokiUnavailable("down"), acted_upon=True, restarted=False),
    Step(34, [], None, acted_upon=False, restarted=False),
    Step(23, [], None, acted_upon=True, restarted=False),
]


@settings(deadline=None)
@example(steps=_FLOOD_AND_ABSENCE, counts=False)
@given(steps=st.lists(_steps, min_size=1, max_size=15), counts=st.booleans())
def test_every_line_is_delivered_whatever_happens(steps: list[Step], counts: bool) -> None:
    loki = MemoryLoki(allowed_limit=LIMIT, counts=counts)
    now_ns = NOW
    reader = _started(loki, now_ns)
    committed: list[list[str]] = [[]]
    written = 0
    crowded: set[int] = set()

    for step in [*steps, Step(0, [], None, acted_upon=True, restarted=False)]:
        now_ns += step.seconds * SECOND
        for delay in step.delays:
            loki.entries.append(entry(now_ns - delay * SECOND + written, f"line {written}"))
            written += 1
        if step.restarted:
            reader = _started(loki, support.cursor_of(reader))
            committed.append([])
        if step.failure is not None:
            loki.failures = [step.failure]
        more = True
        while more:
            try:
                batch = reader.poll(now_ns)
            except LokiError:
                break
            crowded |= {window.start_ns for window in batch.incomplete_windows}
            assert batch.upto_ns <= now_ns
            if not step.acted_upon:
                break
            reader.commit(batch)
            committed[-1] += [line.text for line in batch.lines]
            more = batch.more
        loki.failures = []
    now_ns += SPANS.lateness_ns  # by then a sweep has been due
    more = True
    while more:
        batch = reader.poll(now_ns)
        reader.commit(batch)
        committed[-1] += [line.text for line in batch.lines]
        more = batch.more

    assert not crowded
    for life in committed:
        assert not [text for text, times in Counter(life).items() if times > 1]
    assert {text for life in committed for text in life} == {f"line {number}" for number in range(written)}


def _started(loki: MemoryLoki, cursor_ns: int) -> SourceReader:
    settings = support.settings(loki_limit=LIMIT)
    return SourceReader(Source.KERNEL, loki, QUERY, settings, cursor_ns, config=SPANS)
