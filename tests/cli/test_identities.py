"""Which GPU failed, as status and explain show it, and which one is in its place now (rule 43)."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from dataclasses import replace

import pytest

from konductor_like.cli.explain.node import NodeExplanation, document, explain_node, paragraphs
from konductor_like.cli.status.document import status_document
from konductor_like.cli.status.report import status_report
from konductor_like.cli.status.text import View, status_lines
from konductor_like.cluster.node.decoder import decode_node
from konductor_like.model import Gpu, GpuSource, NodeState, SeenGpu
from konductor_like_sandbox.loki import LokiServer
from tests.cli.conftest import Cluster, Run
from tests.cli.past import Past
from tests.cli.scenes import GPU, RULES, SERIAL, UUID, ago_ns, every_state
from tests.cli.test_returns import fleet

OTHER = "GPU-b6c3b2be-c55b-d076-fa0e-d464e4c7e08b"


def faulty(*, noted: bool = True, now: str = "") -> NodeState:
    """Return a faulty node: whether the GPU was noted, and which one is in its place by its slices."""
    state = decode_node(every_state()[0])
    slices = (SeenGpu(Gpu(GPU, now), GpuSource.SLICE, ago_ns(60)),) if now else ()
    if not noted:
        [incident] = state.record.incidents
        incidents = (replace(incident, uuid="", serial=""),)
        state = replace(state, record=replace(state.record, incidents=incidents))
    return replace(state, seen_gpus=slices)


def explained(state: NodeState) -> NodeExplanation:
    return explain_node("gpu-1", fleet(state), RULES)


def text(state: NodeState) -> dict[str, str]:
    found = ((label, body) for label, body in paragraphs(explained(state)) if label in ("Fault", "GPU now"))
    return {label: body if isinstance(body, str) else "\n".join(body) for label, body in found}


def test_explain_names_the_gpu_that_failed() -> None:
    assert f"which GPU: {UUID}, serial {SERIAL}" in text(faulty())["Fault"].splitlines()
    assert "which GPU" not in text(faulty(noted=False))["Fault"]


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (faulty(), ""),
        (faulty(now=UUID), ""),
        (faulty(now=OTHER), f"{GPU} {OTHER} (ResourceSlice, 2026-05-06T11:59:00Z): not the GPU that failed"),
        (
            faulty(now=OTHER, noted=False),
            f"{GPU} {OTHER} (ResourceSlice, 2026-05-06T11:59:00Z): which GPU failed was not noted",
        ),
    ],
    ids=["no source", "the same", "swapped", "not noted"],
)
def test_explain_names_the_gpu_in_the_place_now_if_it_is_no_repetition(state: NodeState, words: str) -> None:
    assert text(state)["GPU now"] == words


def test_the_documents_name_both() -> None:
    found = document(explained(faulty(now=OTHER)))

    assert [(each["uuid"], each["serial"]) for each in found["node"]["faults"]] == [(UUID, SERIAL)]
    told = {"toldBy": "ResourceSlice", "at": "2026-05-06T11:59:00Z"}
    assert found["gpus"] == [{"bus": GPU, "uuid": OTHER, "serial": None, **told}]
    status = status_document(status_report(fleet(faulty(noted=False))))
    assert status["nodes"][0]["fault"].items() >= {"uuid": None, "serial": None}.items()


def test_a_wide_row_has_the_begin_of_the_uuid_and_another_row_has_not() -> None:
    report = status_report(fleet(faulty()))
    wide, narrow = ("\n".join(status_lines(report, View(wide=wide))) for wide in (True, False))

    assert f"{GPU} (GPU-509665ad)" in wide
    assert "GPU-509665ad" not in narrow


@pytest.fixture
def past(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> Iterator[Past]:
    with LokiServer(now_ns=lambda: ago_ns(0)) as loki:
        monkeypatch.setenv("LOG_ENDPOINT", loki.url)
        monkeypatch.chdir(str(tmp_path))
        yield Past(cluster("one faulty"), loki)


def test_a_case_has_the_gpu_that_was_noted_though_the_kernel_log_is_gone(past: Past, run: Run) -> None:
    past.edit_record(
        lambda record: replace(
            record, incidents=tuple(replace(each, uuid=UUID, serial=SERIAL) for each in record.incidents)
        )
    )

    run("case", "gpu-1", "-o", "case.zip")

    with zipfile.ZipFile("case.zip") as archive:
        [gpu] = json.loads(archive.read("case.json"))["gpus"]
    told = {"toldBy": "noted with the fault", "doubtful": False}
    assert gpu == {"bus": GPU, "uuid": UUID, "serial": SERIAL, **told}
