"""Loki's JSON becomes lines, and nothing is dropped silently."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.loki.query.response import (
    TEXT_CHARS,
    Entry,
    NotLokisAnswerError,
    log_line,
    log_lines,
    parse,
)
from konductor_like.model import Source
from tests.loki.support import NOW, answer, answer_bytes, kernel_labels, settings

SETTINGS = settings()


def test_stream_labels_and_entries_are_read() -> None:
    labels = kernel_labels(observed_timestamp=str(NOW + 5), detected_level="unknown")
    body = answer_bytes([(labels, [[str(NOW), "NVRM: one"], [str(NOW + 1), "NVRM: two"]])])

    result = parse(body, 5000)

    assert result.entries == (Entry(NOW, "NVRM: one", labels), Entry(NOW + 1, "NVRM: two", labels))
    assert (result.post_filter_lines, result.bytes_processed, result.limit) == (2, 291, 5000)


@pytest.mark.parametrize(
    "third",
    [
        pytest.param({"boot_id": "b1", "k8s_pod_name": "liar"}, id="flat"),
        pytest.param(
            {"structuredMetadata": {"boot_id": "b1"}, "parsed": {"k8s_pod_name": "liar"}}, id="in groups"
        ),
        pytest.param({"structuredMetadata": {"boot_id": "b1"}}, id="metadata alone"),
    ],
)
def test_structured_metadata_joins_the_labels_and_never_overrides_them(third: dict[str, Any]) -> None:
    body = answer_bytes([(kernel_labels(), [[str(NOW), "NVRM: one", third]])])

    (only,) = parse(body, 10).entries

    assert only.labels == kernel_labels() | {"boot_id": "b1"}


@pytest.mark.parametrize(
    ("summary", "counted"),
    [
        pytest.param({"totalPostFilterLines": 7}, 7, id="counted"),
        pytest.param({"totalPostFilterLines": 0}, None, id="fewer than returned: not counted"),
        pytest.param({}, None, id="no count"),
        pytest.param(
            {"totalPostFilterLines": "7", "totalBytesProcessed": "many"}, None, id="counts in words"
        ),
        pytest.param(None, None, id="no statistics"),
    ],
)
def test_a_missing_count_differs_from_a_count_of_zero(
    summary: dict[str, Any] | None, counted: int | None
) -> None:
    raw = answer([(kernel_labels(), [[str(NOW), "NVRM"]])])
    raw["data"]["stats"] = None if summary is None else {"summary": summary}

    result = parse(json.dumps(raw).encode(), 10)

    assert result.post_filter_lines == counted
    assert result.bytes_processed == 0


def test_invalid_utf8_and_nul_bytes_become_text() -> None:
    body = answer_bytes([(kernel_labels(), [[str(NOW), "NVRM: RAW end"]])])

    (only,) = parse(body.replace(b"RAW", b"\xff\xfe\x00\x1b"), 10).entries

    assert only.text == "NVRM: ��\x00\x1b end"


def test_half_a_surrogate_pair_becomes_a_replacement_character() -> None:
    body = answer_bytes([(kernel_labels(), [[str(NOW), "NVRM: RAW end"]])])

    texts = [
        parse(body.replace(b"RAW", raw), 10).entries[0].text
        for raw in (rb"\ud83d", rb"\ud83d\udd25", rb"\udd25")
    ]

    assert texts == ["NVRM: � end", "NVRM: 🔥 end", "NVRM: � end"]
    assert all(text.encode() for text in texts)


def test_a_very_long_line_keeps_its_beginning_and_its_end() -> None:
    kept = "NVRM: " + "x" * (TEXT_CHARS - 6)
    long = f"first {'x' * 256 * 1024} last"

    texts = [
        parse(answer_bytes([(kernel_labels(), [[str(NOW), text]])]), 10).entries[0].text
        for text in (kept, long)
    ]

    assert texts[0] == kept
    assert texts[1].startswith("first xxx")
    assert texts[1].endswith("xxx last")
    assert len(texts[1]) == TEXT_CHARS + 3


@pytest.mark.parametrize(
    ("body", "says"),
    [
        pytest.param(b"<!DOCTYPE html><html>Grafana</html>", "HTML", id="a login page"),
        pytest.param(b"  \n<html>", "HTML", id="HTML after white space"),
        pytest.param(b"", "an empty body", id="nothing"),
        pytest.param(
            answer_bytes([(kernel_labels(), [[str(NOW), "NVRM"]])])[:-40], "truncated JSON", id="truncated"
        ),
        pytest.param(b"OK", "not JSON", id="plain text"),
        pytest.param(b"[" * 100_000, "truncated JSON", id="nested too deeply"),
        pytest.param(
            b'{"message":"Not found"}',
            "JSON that is not the answer to a log query",
            id="another program's JSON",
        ),
        pytest.param(b'"text"', "JSON that is not the answer to a log query", id="a JSON string"),
        pytest.param(b"null", "JSON that is not the answer to a log query", id="null"),
        pytest.param(b'{"status":"error","data":{"resultType":"streams"}}', "'error'", id="status error"),
        pytest.param(
            b'{"status":"success","data":{"resultType":"matrix","result":[]}}',
            "not a list of streams",
            id="matrix",
        ),
        pytest.param(
            b'{"status":"success","data":{"resultType":"streams","result":null}}',
            "JSON that is not the answer to a log query",
            id="no result",
        ),
        pytest.param(answer_bytes([({}, [["soon", "x"]])]), "timestamp 'soon'", id="a timestamp in words"),
        pytest.param(answer_bytes([({}, [[17, "x"]])]), "timestamp '17'", id="a timestamp that is a number"),
        pytest.param(answer_bytes([({}, [["9" * 5000, "x"]])]), "timestamp", id="a timestamp without end"),
        pytest.param(
            answer_bytes([({}, [["17", None]])]), "NoneType instead of text", id="a line that is no text"
        ),
        pytest.param(
            answer_bytes([({}, [["17"]])]),
            "JSON that is not the answer to a log query",
            id="an entry without a line",
        ),
        pytest.param(
            answer_bytes([({}, [["17", "x", "y"]])]),
            "JSON that is not the answer to a log query",
            id="metadata that is text",
        ),
        pytest.param(
            answer_bytes([({"a": 1}, [["17", "x"]])]), "int instead of text", id="a label that is a number"
        ),
    ],
)
def test_an_answer_that_is_not_lokis_is_refused_whole(body: bytes, says: str) -> None:
    with pytest.raises(NotLokisAnswerError, match=says):
        parse(body, 10)


@given(st.binary(max_size=200))
def test_the_parser_survives_any_bytes(body: bytes) -> None:
    with pytest.raises(NotLokisAnswerError):
        parse(body, 10)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["status", "data", "resultType", "result", "stream", "values", "stats", "summary"]
                ),
                inner,
                max_size=4,
            )
        ),
    )
)
def test_the_parser_survives_any_json(value: Any) -> None:
    wrapped = {"status": "success", "data": {"resultType": "streams", "result": value, "stats": value}}
    try:
        result = parse(json.dumps(wrapped).encode(), 10)
    except NotLokisAnswerError:
        return
    assert result.post_filter_lines is None or result.post_filter_lines >= len(result.entries)


def test_the_settings_give_the_names_of_the_labels() -> None:
    names = settings(
        kernel_selector='{job="kmsg"}',
        node_label="host",
        namespace_label="ns",
        pod_label="p",
        container_label="c",
    )
    labels = {"job": "kmsg", "host": "gpu-a", "ns": "n", "p": "pod", "c": "container"}

    line = log_line(Entry(NOW, "NVRM", labels), Source.KERNEL, names)

    assert line is not None
    assert (line.source, line.timestamp_ns, line.text) == (Source.KERNEL, NOW, "NVRM")
    assert (line.node, line.namespace, line.pod, line.container) == ("gpu-a", "n", "pod", "container")


def test_a_line_without_a_node_is_a_line_with_no_node() -> None:
    for labels in (kernel_labels(node=None), kernel_labels(k8s_node_name="")):
        line = log_line(Entry(NOW, "NVRM", labels), Source.KERNEL, SETTINGS)
        assert line is not None
        assert line.node is None


POD = {"k8s_namespace_name": "default", "k8s_container_name": "dmesg", "k8s_node_name": "gpu-a"}


@pytest.mark.parametrize(
    ("labels", "source", "taken"),
    [
        pytest.param(kernel_labels(), Source.KERNEL, True, id="kernel stream, kernel query"),
        pytest.param(POD, Source.KERNEL, False, id="a pod's stream never counts as kernel"),
        pytest.param(POD, Source.POD, True, id="a container of the same name elsewhere is a pod"),
        pytest.param(kernel_labels(), Source.POD, False, id="the kernel-log reader is no pod"),
    ],
)
def test_the_labels_decide_whether_a_line_is_of_its_source(
    labels: dict[str, str], source: Source, taken: bool
) -> None:
    assert (log_line(Entry(NOW, "NVRM: Xid", labels), source, SETTINGS) is not None) is taken


def test_an_entry_of_several_records_is_as_many_lines_and_a_pods_entry_is_one() -> None:
    text = "[    1.5] NVRM: one\n[    1.6] NVRM: two\n               and its rest"
    kernel, pod = (Entry(NOW, text, labels) for labels in (kernel_labels("gpu-7"), {}))

    found = log_lines([kernel, pod], Source.KERNEL, settings())
    assert [line.text for line in found] == [text.splitlines()[0], "\n".join(text.splitlines()[1:])]
    assert [line.text for line in log_lines([kernel, pod], Source.POD, settings())] == [text]
