from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.cluster.lease.checkpoint import (
    decode_checkpoint,
    decode_coverage,
    decode_releases,
    encode_checkpoint,
    encode_coverage,
    encode_releases,
)
from konductor_like.model import Checkpoint, Coverage, Gap, Loss, Misnamed, Source, Unparsed
from tests.cluster.scenes import NOON, NOON_NS, record, release

STAMPS = st.integers(0, 253_402_300_799 * 10**9)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
NAMES = st.frozensets(st.from_regex(r"[a-z]{1,8}", fullmatch=True), max_size=6)
MOMENTS = st.datetimes(datetime(1970, 1, 2), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 -- hypothesis wants bare bounds

GAPS = st.builds(Gap, STAMPS, st.none() | STAMPS, st.none() | NAMES.filter(bool))
LOSSES = st.dictionaries(
    st.from_regex(r"[a-z]{1,8}", fullmatch=True), st.builds(Loss, st.integers(0, 10**9), STAMPS), max_size=4
)
READ = st.dictionaries(st.sampled_from(Source), STAMPS)
COVERAGES = st.builds(
    Coverage,
    *(MOMENTS, NAMES, NAMES, st.booleans(), st.lists(GAPS, max_size=4).map(tuple), NAMES, LOSSES),
    read_ns=READ,
    misnamed=st.dictionaries(TEXTS, st.builds(Misnamed, st.integers(0, 10**9), STAMPS), max_size=4),
)


@given(st.builds(Checkpoint, READ, STAMPS))
def test_the_cursor_survives_the_lease(checkpoint: Checkpoint) -> None:
    assert decode_checkpoint(encode_checkpoint(checkpoint)) == (checkpoint, None)


@given(COVERAGES)
def test_the_coverage_survives_the_lease(coverage: Coverage) -> None:
    assert decode_coverage(encode_coverage(coverage)) == (coverage, None)


def test_the_releases_survive_the_lease() -> None:
    first, second = replace(record(), releases=(release(),)), replace(record(), releases=(release(),))

    text = encode_releases([first, second])

    assert text is not None
    assert decode_releases(text) == ((first, second), None)
    assert encode_releases([]) is None


def test_releases_that_do_not_fit_are_left_out() -> None:
    """All annotations of an object together may take 256 KiB."""
    long = replace(release(), reason="x" * 4000)
    many = [replace(record(), releases=(long,)) for _ in range(50)]

    text = encode_releases(many)

    assert text is not None
    assert len(text.encode()) < 50 * 1024
    assert len(decode_releases(text)[0]) >= 5


def test_a_mangled_releases_annotation_is_reported_and_its_rest_is_kept() -> None:
    text = encode_releases([replace(record(), releases=(release(),))])
    assert text is not None

    kept, problem = decode_releases(text.replace('"nodes":[', '"nodes":[7,{"v":1},'))

    assert len(kept) == 1
    assert (problem or "").startswith("nodes[0]: is not an object; nodes[1]: the record has version 1,")


def test_the_cursor_reads_like_this() -> None:
    text = encode_checkpoint(Checkpoint({Source.KERNEL: NOON_NS + 5, Source.POD: NOON_NS}, NOON_NS))

    assert json.loads(text) == {
        "v": 1,
        "read": {"kernel": "2026-05-06T12:00:00.000000005Z", "pod": "2026-05-06T12:00:00Z"},
        "act_from": "2026-05-06T12:00:00Z",
    }


@given(st.text(max_size=60))
def test_whatever_a_person_typed_raises_nothing(text: str) -> None:
    assert decode_checkpoint(text)[1] is not None
    assert decode_coverage(text)[1] is not None
    assert decode_releases(text)[1] is not None


def test_a_source_that_cannot_be_read_is_left_out_and_named() -> None:
    text = '{"v":1,"read":{"kernel":"soon","pod":"2026-05-06T12:00:00Z"},"act_from":"2026-05-06T12:00:00Z"}'

    assert decode_checkpoint(text) == (
        Checkpoint({Source.POD: NOON_NS}, NOON_NS),
        "read.kernel is not a time",
    )


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{}", "act_from is missing"),
        ('{"act_from":[]}', "act_from is not a time"),
        ("null", "it is not a JSON object"),
    ],
)
def test_without_the_first_start_there_is_no_cursor(text: str, problem: str) -> None:
    assert decode_checkpoint(text) == (None, problem)


def test_without_a_time_there_is_no_coverage() -> None:
    assert decode_coverage('{"unknown":["gpu-1"]}') == (None, "at is missing")


def test_of_many_names_two_thousand_are_kept_and_the_unknown_ones_first() -> None:
    unknown = frozenset(f"gone-{n:04}" for n in range(1500))
    listed = frozenset(f"gpu-{n:04}" for n in range(1500))

    found, _ = decode_coverage(encode_coverage(Coverage(NOON, unknown, listed)))

    assert found is not None
    assert found.unknown == unknown
    assert len(found.listed) == 500


def test_the_longest_names_still_leave_room_for_other_annotations() -> None:
    listed = frozenset(f"{n:04}".ljust(253, "x") for n in range(2000))

    assert len(encode_coverage(Coverage(NOON, listed=listed))) < 130 * 1024


def test_the_missing_parts_of_a_coverage_read_like_this() -> None:
    coverage = Coverage(
        NOON,
        gaps=(Gap(NOON_NS, None, frozenset({"gpu-1"})), Gap(NOON_NS, NOON_NS + 5, None)),
        ambiguous=frozenset({"gpu-2"}),
        lost={"gpu-3": Loss(41, NOON_NS), "gpu-5": Loss(2, NOON_NS, "boot-a")},
        unparsed={"gpu-4": Unparsed(7, NOON_NS)},
        backfill_ns=NOON_NS,
    )

    found = json.loads(encode_coverage(coverage))

    assert found["gaps"] == [
        {"from": "2026-05-06T12:00:00Z", "to": None, "nodes": ["gpu-1"]},
        {
            "from": "2026-05-06T12:00:00Z",
            "to": "2026-05-06T12:00:00.000000005Z",
            "nodes": None,
        },
    ]
    assert found["ambiguous"] == ["gpu-2"]
    assert found["lost"] == [
        {"node": "gpu-3", "records": 41, "at": "2026-05-06T12:00:00Z"},
        {"node": "gpu-5", "records": 2, "at": "2026-05-06T12:00:00Z", "boot": "boot-a"},
    ]
    assert found["backfill"] == "2026-05-06T12:00:00Z"
    assert found["unparsed"] == [{"node": "gpu-4", "lines": 7, "at": "2026-05-06T12:00:00Z"}]
    assert decode_coverage(json.dumps(found)) == (coverage, None)


def test_of_many_nodes_whose_lines_are_not_understood_the_latest_are_kept() -> None:
    unparsed = {f"gpu-{number:04}": Unparsed(1, NOON_NS + number) for number in range(5000)}

    text = encode_coverage(Coverage(NOON, unparsed=unparsed))
    found, _ = decode_coverage(text)

    assert found is not None
    assert set(found.unparsed) == {f"gpu-{number:04}" for number in range(4800, 5000)}
    assert len(text) < 16 * 1024


def test_a_gap_whose_nodes_do_not_fit_becomes_a_gap_of_all_nodes() -> None:
    many = frozenset(f"{n:04}".ljust(253, "x") for n in range(1000))
    coverage = Coverage(NOON, gaps=tuple(Gap(NOON_NS + n, None, many) for n in range(50)))

    text = encode_coverage(coverage)
    found, _ = decode_coverage(text)

    assert len(text) < 64 * 1024
    assert found is not None
    assert len(found.gaps) == 50
    assert all(gap.concerns(name) for gap in found.gaps for name in many)


def test_a_gap_without_a_beginning_is_left_out_and_named() -> None:
    text = (
        '{"at":"2026-05-06T12:00:00Z","gaps":[{"nodes":["gpu-1"]}],"lost":[{"node":"gpu-1"}],'
        '"unparsed":[{"lines":1}]}'
    )

    coverage, problem = decode_coverage(text)

    assert coverage is not None
    assert (coverage.gaps, coverage.lost, coverage.unparsed) == ((), {}, {})
    assert problem == (
        "gaps[0]: from is missing; lost[0]: node, records or at is missing; "
        "unparsed[0]: node, lines or at is missing"
    )
