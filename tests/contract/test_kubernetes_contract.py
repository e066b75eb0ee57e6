"""The behaviour that our writes of Nodes rely on: preconditions, conflicts, patches, dry run, ownership."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.kubernetes_target import (
    AGENT,
    JSON_PATCH,
    MERGE_PATCH,
    OTHERS,
    OURS,
    STRATEGIC_MERGE_PATCH,
    Answer,
    Target,
    node_path,
    path_of,
    put,
    refused,
    same,
)

UNSAID = "the server rejected our request due to an error in our request"


# Preconditions: the `test` operation


@pytest.mark.parametrize(
    "precondition",
    [
        pytest.param(same("/spec/taints", []), id="an empty list where there is none"),
        pytest.param(same("/spec/taints", [OURS]), id="a list where there is none"),
        pytest.param(same("/metadata/annotations/x", "1"), id="a member under an absent parent"),
        pytest.param(same("/metadata/annotations/x", None), id="null under an absent parent"),
        pytest.param(same("/metadata/labels/kept", "2"), id="another value"),
        pytest.param(same("/metadata/labels/kept", None), id="null where there is a value"),
        pytest.param(same("/metadata/resourceVersion", "1"), id="a stale resourceVersion"),
        pytest.param(same("/metadata/uid", "another"), id="another uid"),
    ],
)
def test_a_patch_whose_test_fails_is_refused_and_changes_nothing(
    target: Target, precondition: dict[str, Any]
) -> None:
    node = target.create_node(metadata={"labels": {"kept": "1"}})
    answer = target.patch(path_of(node), [precondition, put("/spec/taints", [OURS])])

    assert refused(answer, 422, "Invalid")
    assert (answer.body["message"], answer.body["details"]) == (UNSAID, {})
    assert target.get(path_of(node)).body == node.body


@pytest.mark.parametrize(
    "precondition",
    [
        pytest.param(same("/spec/taints", None), id="null of an absent member"),
        pytest.param(same("/metadata/labels/nobody~1has", None), id="null of an absent label"),
        pytest.param(same("/metadata/labels/kept", "1"), id="a value that is there"),
    ],
)
def test_a_patch_whose_test_passes_is_applied(target: Target, precondition: dict[str, Any]) -> None:
    node = target.create_node(metadata={"labels": {"kept": "1"}})
    answer = target.patch(path_of(node), [precondition, put("/spec/taints", [OURS])])

    assert answer.status == 200
    assert answer.body["spec"]["taints"] == [OURS]
    assert int(answer.meta["resourceVersion"]) > int(node.meta["resourceVersion"])


@pytest.mark.parametrize("odd", ["<", ">", "&", "é", "…"], ids=["less", "greater", "and", "accent", "dots"])
def test_strings_are_compared_as_they_are_written(target: Target, odd: str) -> None:
    """So a text with two written forms in JSON cannot be tested.

    Python leaves the first three and escapes the others; the server does the opposite.
    """
    node = target.create_node(metadata={"annotations": {"said": f"a{odd}b"}})
    precondition = same("/metadata/annotations/said", f"a{odd}b")

    answer = target.patch(path_of(node), [precondition, put("/metadata/annotations/more", "1")])

    assert refused(answer, 422, "Invalid")


def test_a_text_with_only_one_written_form_can_be_tested(target: Target) -> None:
    text = '{"line":"NVRM: Xid (PCI:0000:4e:00): 79, pid=\'\\u003cunknown\\u003e\', \\t/ ~"}'
    node = target.create_node(metadata={"annotations": {"said": text}})
    precondition = same("/metadata/annotations/said", text)

    answer = target.patch(path_of(node), [precondition, put("/metadata/annotations/more", "1")])

    assert answer.status == 200


@pytest.mark.parametrize(("tested", "status"), [("boot-1", 200), ("boot-0", 422)])
def test_a_patch_of_the_node_may_test_what_its_kubelet_posted(
    target: Target, node: Answer, tested: str, status: int
) -> None:
    posted = target.patch(
        f"{path_of(node)}/status",
        {"status": {"nodeInfo": {"bootID": "boot-1"}}},
        STRATEGIC_MERGE_PATCH,
    )
    assert posted.status == 200

    guard = same("/status/nodeInfo/bootID", tested)
    answer = target.patch(path_of(node), [guard, put("/spec/taints", [OURS])])

    assert answer.status == status


def test_one_patch_guarded_by_uid_and_version_sets_taint_label_and_record(target: Target) -> None:
    node = target.create_node(metadata={"labels": {"kept": "1"}})
    guards = [same(f"/metadata/{field}", node.meta[field]) for field in ("uid", "resourceVersion")]
    changes = [
        put("/spec/taints", [OURS]),
        put("/metadata/annotations", {"contract.example/record": "{}"}),
        put("/metadata/labels/contract.example~1health", "faulty"),
    ]

    assert target.patch(path_of(node), guards + changes).status == 200
    stored = target.get(path_of(node))
    assert stored.body["spec"]["taints"] == [OURS]
    assert stored.meta["annotations"] == {"contract.example/record": "{}"}
    assert stored.meta["labels"] == {"kept": "1", "contract.example/health": "faulty"}


def test_the_taint_list_as_read_is_a_precondition_that_foreign_heartbeats_do_not_break(
    target: Target,
) -> None:
    node = target.create_node(spec={"taints": [OTHERS]})
    status = {"status": {"conditions": [{"type": "Ready", "status": "True"}]}}
    assert target.patch(f"{path_of(node)}/status", status, STRATEGIC_MERGE_PATCH).status == 200

    answer = target.patch(path_of(node), [same("/spec/taints", [OTHERS]), put("/spec/taints/-", OURS)])

    assert answer.body["spec"]["taints"] == [OTHERS, OURS]


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param({"op": "remove", "path": "/spec/taints"}, id="remove of an absent member"),
        pytest.param({"op": "remove", "path": "/metadata/labels/gone"}, id="remove of an absent label"),
        pytest.param(put("/metadata/annotations/x", "1"), id="add under an absent parent"),
        pytest.param(put("/spec/taints/0", OURS), id="add to an absent list"),
        pytest.param({"op": "frobnicate", "path": "/spec"}, id="an operation that does not exist"),
    ],
)
def test_an_operation_that_does_not_apply_is_refused(target: Target, operation: dict[str, Any]) -> None:
    node = target.create_node(metadata={"labels": {"kept": "1"}})

    assert refused(target.patch(path_of(node), [operation]), 422, "Invalid")


# Conflicts


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        pytest.param(
            [put("/metadata/resourceVersion", "1"), put("/metadata/labels", {"a": "b"})],
            JSON_PATCH,
            id="JSON",
        ),
        pytest.param({"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}}, MERGE_PATCH, id="merge"),
    ],
)
def test_a_patch_that_sets_an_old_version_is_a_conflict(
    target: Target, node: Answer, body: Any, content_type: str
) -> None:
    answer = target.patch(path_of(node), body, content_type)

    assert refused(answer, 409, "Conflict")
    name = node.meta["name"]
    assert answer.body["message"] == (
        f'Operation cannot be fulfilled on nodes "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    assert answer.body["details"] == {"name": name, "kind": "nodes"}


def test_a_node_made_again_under_its_name_has_another_uid(target: Target, node: Answer) -> None:
    gone = target.send("DELETE", path_of(node))
    again = target.create_node(metadata={"name": node.meta["name"]})

    assert (gone.status, gone.body["status"], gone.body["details"]["uid"]) == (
        200,
        "Success",
        node.meta["uid"],
    )
    assert again.meta["uid"] != node.meta["uid"]


# Refusals, whose messages we show to people


@pytest.mark.parametrize(
    ("taints", "cause"),
    [
        pytest.param([{"key": "a"}], "FieldValueRequired", id="no effect"),
        pytest.param([OURS, {**OURS, "value": "x"}], "FieldValueDuplicate", id="key and effect twice"),
        pytest.param([{**OURS, "value": "a b"}], "FieldValueInvalid", id="a value that is none"),
    ],
)
def test_a_bad_taint_is_refused_by_name(
    target: Target, node: Answer, taints: list[dict[str, str]], cause: str
) -> None:
    answer = target.patch(path_of(node), [put("/spec/taints", taints)])

    assert refused(answer, 422, "Invalid")
    assert answer.body["message"].startswith(f'Node "{node.meta["name"]}" is invalid: metadata.taints[')
    assert {c["reason"] for c in answer.body["details"]["causes"]} == {cause}


def test_a_patch_of_a_node_that_is_not_there_is_not_found(target: Target) -> None:
    name = target.name()
    answer = target.patch(node_path(name), [same("/metadata/uid", "x")])

    assert refused(answer, 404, "NotFound")
    assert answer.body["message"] == f'nodes "{name}" not found'


# What patches do to an object


@pytest.mark.parametrize(
    ("body", "content_type"),
    [
        pytest.param([{"op": "replace", "path": "/spec/taints", "value": []}], JSON_PATCH, id="JSON"),
        pytest.param({"spec": {"taints": []}}, MERGE_PATCH, id="merge"),
        pytest.param({"spec": {"taints": []}}, STRATEGIC_MERGE_PATCH, id="strategic"),
        pytest.param({"spec": {"taints": None}}, MERGE_PATCH, id="null"),
    ],
)
def test_an_empty_taint_list_is_the_same_as_none(target: Target, body: Any, content_type: str) -> None:
    node = target.create_node(spec={"taints": [OURS]})

    assert "taints" not in target.patch(path_of(node), body, content_type).body["spec"]
    assert "taints" not in target.get(path_of(node)).body["spec"]


def test_the_last_label_and_annotation_take_their_map_along(target: Target) -> None:
    node = target.create_node(metadata={"labels": {"a": "b"}, "annotations": {"a": "b"}})
    removals = [{"op": "remove", "path": f"/metadata/{kind}/a"} for kind in ("labels", "annotations")]

    answer = target.patch(path_of(node), removals)

    assert not {"labels", "annotations"} & answer.meta.keys()


def test_a_patch_that_changes_nothing_is_not_a_write(target: Target) -> None:
    node = target.create_node(metadata={"labels": {"a": "b"}})

    answer = target.patch(
        path_of(node), {"metadata": {"labels": {"a": "b"}}}, MERGE_PATCH, fieldManager="other"
    )

    assert answer.body == node.body


@pytest.mark.parametrize(
    ("method", "body", "content_type"),
    [
        pytest.param("PATCH", [put("/metadata/labels", {"dry": "1"})], JSON_PATCH, id="patch"),
        pytest.param("DELETE", None, "application/json", id="delete"),
    ],
)
def test_a_dry_run_stores_nothing(
    target: Target, node: Answer, method: str, body: Any, content_type: str
) -> None:
    answer = target.send(method, path_of(node), body, content_type, params={"dryRun": "All"})

    assert answer.status == 200
    assert target.get(path_of(node)).body == node.body


# Who wrote what: managedFields


def managers_of(answer: Answer, field: str) -> list[str]:
    """Return the owners of a field of ``spec`` (``f:taints``), by the managedFields."""
    return [
        entry["manager"]
        for entry in answer.meta.get("managedFields", [])
        if field in entry["fieldsV1"].get("f:spec", {})
    ]


def test_the_field_manager_owns_the_fields_that_it_sets_with_a_time(target: Target) -> None:
    node = target.create_node(spec={"taints": [OTHERS]})
    answer = target.patch(path_of(node), [put("/spec/taints/-", OURS)], fieldManager="contract-test")

    assert managers_of(node, "f:taints") == [AGENT]
    assert managers_of(answer, "f:taints") == ["contract-test"]
    entry = next(e for e in answer.meta["managedFields"] if e["manager"] == "contract-test")
    assert (entry["operation"], entry["apiVersion"], entry["fieldsType"]) == ("Update", "v1", "FieldsV1")
    assert entry["fieldsV1"] == {"f:spec": {"f:taints": {}}}
    assert entry["time"].endswith("Z")


def test_taking_one_taint_of_two_shows_who_did_it(target: Target) -> None:
    node = target.create_node(spec={"taints": [OTHERS, OURS]})
    answer = target.patch(path_of(node), {"spec": {"taints": [OTHERS]}}, MERGE_PATCH, fieldManager="a-person")

    assert managers_of(answer, "f:taints") == ["a-person"]


def test_taking_the_last_taint_leaves_no_trace_of_who_did_it(target: Target) -> None:
    node = target.create_node(spec={"taints": [OURS]}, metadata={"labels": {"a": "b"}})
    answer = target.patch(path_of(node), {"spec": {"taints": None}}, MERGE_PATCH, fieldManager="a-person")

    assert [entry["manager"] for entry in answer.meta["managedFields"]] == [AGENT]
    assert managers_of(answer, "f:taints") == []


# Annotations without room (rule 21)

ANNOTATIONS_BYTES = 262_144
FILLER = "contract.example/filler"
NOTE = "/metadata/annotations/contract.example~1record"


def full_node(target: Target, left: int) -> Answer:
    """A Node whose annotations leave only so many bytes for others."""
    return target.create_node(
        metadata={"annotations": {FILLER: "x" * (ANNOTATIONS_BYTES - len(FILLER) - left)}}
    )


@pytest.mark.parametrize("dry_run", [{}, {"dryRun": "All"}], ids=["stored", "dry run"])
def test_an_annotation_without_room_is_refused_by_name_and_the_taint_beside_it_is_not_written(
    target: Target, dry_run: dict[str, str]
) -> None:
    node = full_node(target, 60)

    answer = target.patch(
        path_of(node), [put(NOTE, "y" * 60), put("/spec/taints", [OURS])], JSON_PATCH, **dry_run
    )

    assert refused(answer, 422, "Invalid")
    assert "metadata.annotations: Too long: may not be more than 262144 bytes" in answer.body["message"]
    assert target.get(path_of(node)).body["spec"].get("taints") is None


def test_a_full_node_takes_the_taint_alone_and_as_much_annotation_as_there_is_room(target: Target) -> None:
    node = full_node(target, len("contract.example/record") + 60)

    assert target.patch(path_of(node), [put(NOTE, "y" * 61)]).status == 422
    answer = target.patch(path_of(node), [put(NOTE, "y" * 60), put("/spec/taints", [OURS])])

    assert answer.status == 200
    assert answer.body["spec"]["taints"] == [OURS]
    assert target.patch(path_of(node), [put(NOTE, "y" * 61)]).status == 422
    assert target.patch(path_of(node), [put(NOTE, "y" * 9)]).status == 200, "a shorter one always has room"
