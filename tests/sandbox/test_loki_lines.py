"""The stand-in Loki's language and labels, and how it stores, refuses, finds, counts and forgets lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.sandbox.loki.engine import (
    EmptyResults,
    Hit,
    Span,
    Work,
    count_lines,
    cut,
    find_lines,
    split,
)
from konductor_like.sandbox.loki.ingest import Pushed, ingest
from konductor_like.sandbox.loki.labels import detected_level, label_set, normalized, with_service_name
from konductor_like.sandbox.loki.limits import SECOND_NS, LokiError, LokiLimits
from konductor_like.sandbox.loki.logql import CountQuery, LogQuery, parse
from konductor_like.sandbox.loki.store import Entry, Store

NOW_NS = 1_795_240_000 * SECOND_NS
HOUR_NS = 3600 * SECOND_NS
LIMITS = LokiLimits()


def pushed(*lines: tuple[int, str], **labels: str) -> Pushed:
    entries = [Entry(NOW_NS + offset_ns, text, ()) for offset_ns, text in lines]
    return Pushed(label_set(labels or {"app": "a"}), entries)


def stored(*pushes: Pushed) -> Store:
    store = Store()
    for one in pushes:
        ingest(store, [one], LIMITS, NOW_NS, "fake")
    return store


def refusal(store: Store, *pushes: Pushed) -> str:
    with pytest.raises(LokiError) as raised:
        ingest(store, pushes, LIMITS, NOW_NS, "fake")
    return raised.value.message


def log_query(text: str = '{app=~".+"}') -> LogQuery:
    query = parse(text)
    assert isinstance(query, LogQuery)
    return query


def found(store: Store, query: str = '{app=~".+"}', since_ns: int = 24 * HOUR_NS) -> list[str]:
    hits = find_lines(store, log_query(query), NOW_NS - since_ns, NOW_NS + HOUR_NS, Work())
    return [hit.line for hit in hits]


# Queries


def test_a_log_query_is_a_selector_with_texts_and_label_filters() -> None:
    query = log_query('{a="b", c !~ `d` } |= "Xid" or `SXid`| node=~"x|y" | node!~"z"')

    assert [(one.name, one.operator, one.value) for one in query.matchers] == [
        ("a", "=", "b"),
        ("c", "!~", "d"),
    ]
    assert query.texts == ("Xid", "SXid")
    assert [(one.operator, one.value) for one in query.label_filters] == [("=~", "x|y"), ("!~", "z")]


def test_a_count_is_a_log_query_over_milliseconds() -> None:
    assert parse('sum(count_over_time({a="b"} |= "c" [90000ms]))') == CountQuery(
        log_query('{a="b"} |= "c"'), 90_000_000_000
    )


@pytest.mark.parametrize(
    ("quoted", "meant"),
    [
        (r"`a\b`", r"a\b"),
        (r'"a\"b"', 'a"b'),
        (r'"a\\b"', r"a\b"),
        (r'"\u0042\n\t"', "B\n\t"),
        ('" or "', " or "),
    ],
)
def test_strings_are_quoted_as_in_go(quoted: str, meant: str) -> None:
    assert log_query('{a="b"} |= ' + quoted).texts == (meant,)


def test_an_empty_text_is_everywhere_alone_and_nowhere_among_others() -> None:
    assert log_query('{a="b"} |= ""').holds_text("x")
    assert not log_query('{a="b"} |= "" or "y"').holds_text("x")


@pytest.mark.parametrize(
    "query",
    [
        '{a="b"} |= "c" |= "d"',
        '{a="b"} |~ "c"',
        '{a="b"} != "c"',
        '{a="b"} | c="d"',
        '{a="b"} | c=~"d" or e=~"f"',
        '{a="b"} | json',
        '{a="b"} | keep a',
        '{a="b"} # why',
        '{a="b",}',
        '{a="b"} [5m]',
        'count_over_time({a="b"} [1000ms])',
        'sum(count_over_time({a="b"} [5m]))',
        'sum by (c) (count_over_time({a="b"} [1000ms]))',
        'sum(rate({a="b"} [1000ms]))',
    ],
)
def test_any_other_shape_is_refused_even_if_loki_knows_it(query: str) -> None:
    with pytest.raises(LokiError, match="the stand-in Loki does not know this shape of query") as refusal:
        parse(query)

    assert refusal.value.status == 400


@pytest.mark.parametrize("pattern", ["", "|gpu-1", "gpu-1|", "gpu-1||gpu-2"])
def test_an_empty_alternative_in_a_label_filter_is_refused(pattern: str) -> None:
    with pytest.raises(LokiError, match="empty alternative"):
        parse(f'{{app="x"}} | node!~"{pattern}"')


@pytest.mark.parametrize(
    ("pattern", "value", "found"),
    [
        ("gpu-(1|2)", "gpu-1", True),
        ("gpu", "gpu-1", False),
        ("a.b", "a\nb", True),
        ("(?i)gpu", "GPU", True),
        ("gpu$", "gpu\n", False),
        ("[[:alpha:]]+", "gpu", True),
    ],
)
def test_expressions_are_re2_and_fit_the_whole_value(pattern: str, value: str, found: bool) -> None:
    query = log_query(f'{{app="x"}} | node=~"{pattern}"')

    assert query.passes((("app", "x"),), Entry(0, "line", (("node", value),))) == found


# Labels


@pytest.mark.parametrize(
    ("attribute", "label"),
    [
        ("k8s.node.name", "k8s_node_name"),
        ("a.b-c/d", "a_b_c_d"),
        ("__y", "_y"),
        ("9z", "key_9z"),
        ("aé", "a_"),
    ],
)
def test_attributes_get_names_that_labels_may_have(attribute: str, label: str) -> None:
    assert normalized(attribute) == label


def test_an_attribute_without_a_letter_has_no_label() -> None:
    with pytest.raises(ValueError, match='label name "é" resulted in invalid name "_"'):
        normalized("é")


def test_an_empty_value_is_no_label() -> None:
    assert label_set({"a": "", "b": "c"}) == (("b", "c"),)
    assert with_service_name({"a": "", "service_name": ""}) == (("service_name", "unknown_service"),)


@pytest.mark.parametrize(
    ("line", "level"),
    [
        ("an error: x", "error"),
        ("Warning: this is only info", "warn"),
        ("terror", "unknown"),
        ("[1.0] NVRM: Xid (PCI:0000:3b:00): 79, pid=1, name=x", "unknown"),
    ],
)
def test_a_level_is_guessed(line: str, level: str) -> None:
    assert detected_level(line) == level


# Storing


@given(st.lists(st.tuples(st.integers(0, 20), st.sampled_from("abc"))))
def test_lines_are_kept_by_time_and_each_once(lines: list[tuple[int, str]]) -> None:
    store = stored(*[pushed(line) for line in lines])

    hits = find_lines(store, log_query(), 0, NOW_NS + HOUR_NS, Work())

    kept = [(hit.timestamp_ns - NOW_NS, hit.line) for hit in hits]
    assert sorted(kept) == sorted(set(lines))
    assert [at for at, _ in kept] == sorted(at for at, _ in kept)


def test_lines_of_one_nanosecond_keep_the_order_of_their_arrival() -> None:
    assert found(stored(pushed((0, "z"), (0, "a"), (-1, "before"), (0, "m")))) == ["before", "z", "a", "m"]


def test_metadata_named_like_an_index_label_is_set_apart() -> None:
    entry = Entry(NOW_NS, "line", label_set({"app": "other", "dot.ted": "1"}))
    store = Store()
    ingest(store, [Pushed(label_set({"app": "a"}), [entry])], LIMITS, NOW_NS, "fake")

    hit = find_lines(store, log_query(), 0, NOW_NS + 1, Work())[0]

    assert dict(hit.metadata) == {"app_extracted": "other", "detected_level": "unknown", "dot_ted": "1"}


def test_followers_hear_of_a_new_line_and_not_of_a_duplicate() -> None:
    store, heard = Store(), list[str]()
    leave = store.subscribe(lambda _labels, entry: heard.append(entry.line))
    for text in ("one", "one", "two"):
        ingest(store, [pushed((0, text))], LIMITS, NOW_NS, "fake")
    leave()
    ingest(store, [pushed((0, "three"))], LIMITS, NOW_NS, "fake")

    assert heard == ["one", "two"]


# Refusing


def test_several_refusals_are_counted_by_what_they_say() -> None:
    day_ns = 24 * HOUR_NS
    ahead = pushed((HOUR_NS, "a"), (HOUR_NS, "b"), (-8 * day_ns, "c"), (0, "good"))
    store = Store()

    said = refusal(store, ahead)

    assert said.startswith("2 errors like: entry for stream '{app=\"a\"}' has timestamp too new: ")
    assert "; 1 errors like: entry for stream '{app=\"a\"}' has timestamp too old: " in said
    assert found(store) == ["good"]


def test_all_lines_too_far_behind_are_named_up_to_ten() -> None:
    store = stored(pushed((0, "newest")))

    said = refusal(store, pushed(*[(-2 * HOUR_NS - i, f"{i}") for i in range(12)]))

    assert said.count("entry too far behind") == 10
    assert said.endswith("user 'fake', total ignored: 12 out of 12 for stream: {app=\"a\"}")


def test_a_push_may_look_fine_although_a_line_of_an_earlier_stream_was_refused() -> None:
    """As on a real Loki, which tells only what became of a push's last stream (pkg/ingester/instance.go)."""
    store = stored(pushed((0, "newest")))

    ingest(store, [pushed((-2 * HOUR_NS, "lost")), pushed((0, "fine"), app="b")], LIMITS, NOW_NS, "fake")

    assert sorted(found(store)) == ["fine", "newest"]


def test_the_rate_of_pushes_goes_by_the_stores_own_clock() -> None:
    store = Store()
    limits = LokiLimits(ingestion_rate_bytes=100, ingestion_burst_size_bytes=150)

    def taken(size_bytes: int, after_seconds: float) -> bool:
        one = pushed((size_bytes, "x" * size_bytes))
        try:
            ingest(store, [one], limits, NOW_NS + int(after_seconds * SECOND_NS), "fake")
        except LokiError as error:
            return error.status != 429
        return True

    assert taken(150, 0)
    assert not taken(1, 0)
    assert not taken(51, 0.5)
    assert taken(50, 0.5), "what was refused used nothing up"
    assert not taken(151, 1000)
    assert taken(150, 1000)


# Finding


@pytest.mark.parametrize("falls_short", [False, True])
@given(count=st.integers(0, 60), limit=st.integers(1, 40), forward=st.booleans())
def test_a_cut_answer_is_never_longer_than_its_limit(
    count: int, limit: int, forward: bool, falls_short: bool
) -> None:
    hits = [Hit(at, str(at), (), ()) for at in range(count)]

    answer = cut(hits, limit, forward, falls_short)

    ordered = hits if forward else hits[::-1]
    if count <= limit or not falls_short:
        assert answer == ordered[:limit]
    else:
        assert len(answer) == limit - limit // 5
        assert set(answer) <= set(ordered[:limit])


def test_the_work_of_a_query_counts_bytes_and_not_characters() -> None:
    work = Work()
    find_lines(stored(pushed((0, "ü"), (1, "ab"))), log_query('{app="a"} |= `a`'), 0, NOW_NS + HOUR_NS, work)

    assert (work.lines, work.bytes, work.metadata_bytes, work.post_filter_lines) == (2, 4 + 16, 16, 1)


# Counting


@given(st.lists(st.integers(0, 100), max_size=30, unique=True), st.integers(1, 50), st.integers(0, 120))
def test_a_count_has_its_end_and_not_its_start(times: list[int], width: int, at: int) -> None:
    store = stored(pushed(*[(each, str(each)) for each in times]))

    counted = count_lines(store, CountQuery(log_query(), width), NOW_NS + at, Work())

    assert counted == sum(at - width < time <= at for time in times)


# Forgetting to look


def test_a_span_is_split_at_multiples_of_the_interval() -> None:
    assert list(split(Span(5, 25), 10)) == [Span(5, 10), Span(10, 20), Span(20, 25)]
    assert list(split(Span(10, 10), 10)) == []


def cached(results: EmptyResults, lines: list[int], start: int, end: int, newest: int = 1000) -> list[int]:
    def find(start_ns: int, end_ns: int) -> list[Hit]:
        return [Hit(at, "", (), ()) for at in lines if start_ns <= at < end_ns]

    return [hit.timestamp_ns for hit in results.find("fake", "{}", Span(start, end), newest, find)]


def test_an_empty_span_is_not_looked_at_again() -> None:
    results = EmptyResults(100)
    assert cached(results, [], 10, 50) == []

    assert cached(results, [20, 60], 10, 50) == []
    assert cached(results, [20, 60], 15, 45) == []
    assert cached(results, [20, 60], 5, 80) == [60]
    assert cached(results, [3, 20], 0, 50) == [3]


def test_a_span_apart_is_looked_at_and_the_longer_one_remembered() -> None:
    results = EmptyResults(100)
    cached(results, [], 10, 20)

    assert cached(results, [], 40, 90) == []
    assert cached(results, [15, 50], 40, 90) == []
    assert cached(results, [15, 50], 10, 20) == [15]


def test_what_ends_too_recently_is_not_remembered() -> None:
    results = EmptyResults(100)
    assert cached(results, [], 10, 250, newest=200) == []
    assert cached(results, [50, 150, 230], 10, 250, newest=200) == [230]
