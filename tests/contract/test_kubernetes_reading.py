"""The behaviour that our reads rely on: lists in pages, selectors, tables."""

from __future__ import annotations

import pytest

from tests.contract.kubernetes_target import (
    MERGE_PATCH,
    Answer,
    Target,
    names,
    node_path,
)

NODES = "/api/v1/nodes"


def numbers(answer: Answer) -> list[str]:
    return [item["metadata"]["labels"]["number"] for item in answer.body["items"]]


def test_a_list_has_its_version_and_its_items_have_no_kind(target: Target, group: str) -> None:
    answer = target.get(NODES, labelSelector=f"group={group}")

    assert (answer.body["kind"], answer.body["apiVersion"]) == ("NodeList", "v1")
    assert int(answer.meta["resourceVersion"]) >= max(
        int(item["metadata"]["resourceVersion"]) for item in answer.body["items"]
    )
    assert not any({"kind", "apiVersion"} & item.keys() for item in answer.body["items"])
    assert names(answer) == sorted(names(answer))


def test_pages_together_are_the_list(target: Target, group: str) -> None:
    pages = [target.get(NODES, limit="2")]
    while token := pages[-1].meta.get("continue", ""):
        pages.append(target.get(NODES, **{"limit": "2", "continue": token}))
    whole = [name for page in pages for name in names(page)]

    assert whole == sorted(set(whole))
    assert set(names(target.get(NODES, labelSelector=f"group={group}"))) <= set(whole)
    assert len({page.meta["resourceVersion"] for page in pages}) == 1
    assert [page.meta.get("remainingItemCount", 0) for page in pages] == [
        max(len(whole) - 2 * number, 0) for number in range(1, len(pages) + 1)
    ]


def test_later_pages_show_the_moment_of_the_first(target: Target, group: str) -> None:
    selector = f"group={group}"
    first = target.get(NODES, labelSelector=selector, limit="1")
    last = names(target.get(NODES, labelSelector=selector))[-1]
    target.patch(node_path(last), {"metadata": {"labels": {"group": "left"}}}, MERGE_PATCH)
    rest = target.get(NODES, **{"labelSelector": selector, "continue": first.meta["continue"]})

    assert numbers(first) + numbers(rest) == ["0", "1", "2", "3"]


def test_an_expired_continue_token_is_answered_with_410_and_a_new_token(target: Target, group: str) -> None:
    if target.server is None:
        pytest.skip("nothing lets a real server forget its history on request")
    first = target.get(NODES, labelSelector=f"group={group}", limit="1")
    target.server.forget_history()
    answer = target.get(NODES, **{"labelSelector": f"group={group}", "continue": first.meta["continue"]})
    rest = target.get(NODES, **{"labelSelector": f"group={group}", "continue": answer.meta["continue"]})

    assert (answer.status, answer.body["reason"]) == (410, "Expired")
    assert numbers(rest) == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        pytest.param("number=1", "1", id="equal"),
        pytest.param("number==1", "1", id="doubly equal"),
        pytest.param("number!=1", "023", id="unequal"),
        pytest.param("number in (0, 3)", "03", id="in"),
        pytest.param("number notin (0,3)", "12", id="notin"),
        pytest.param("number>1", "23", id="greater"),
        pytest.param("number,!absent", "0123", id="exists and does not"),
        pytest.param("absent", "", id="nobody has it"),
        pytest.param("absent!=x", "0123", id="unequal where there is none"),
    ],
)
def test_label_selectors_select(target: Target, group: str, selector: str, expected: str) -> None:
    assert "".join(numbers(target.get(NODES, labelSelector=f"group={group},{selector}"))) == expected


@pytest.mark.parametrize(
    "selector",
    ["a in", "a in (", "a in (b", "a b", "=a", "a,,b", "a b/c=d", "a!b", "a in b", "!", "a/b/c=d", "a=b c"],
)
def test_a_label_selector_that_cannot_be_read_is_a_bad_request(target: Target, selector: str) -> None:
    answer = target.get(NODES, labelSelector=selector)

    assert (answer.status, answer.body["reason"]) == (400, "BadRequest")


@pytest.mark.parametrize("phase", ["=Running", "!=Running"])
def test_pods_are_listed_by_their_node_and_phase_out_of_the_cache(target: Target, phase: str) -> None:
    selector = f"spec.nodeName={target.prefix}-nowhere,status.phase{phase}"

    answer = target.get("/api/v1/pods", fieldSelector=selector, resourceVersion="0")
    assert (answer.status, answer.body["kind"], answer.body["items"]) == (200, "PodList", [])

    answer = target.get("/api/v1/pods", fieldSelector="spec.hostname=x")
    assert (answer.status, answer.body["message"]) == (400, "field label not supported: spec.hostname")


def test_a_table_shows_the_node_and_the_readiness_of_a_pod_and_its_annotations_if_asked(
    target: Target,
) -> None:
    name, node = target.name(), target.name()
    pod = {
        "metadata": {"name": name, "namespace": "default", "annotations": {"script": "abc"}},
        "spec": {"nodeName": node, "containers": [{"name": "a", "image": "a"}, {"name": "b", "image": "b"}]},
        "status": {"phase": "Pending"},
    }
    if target.server is None:
        target.create("/api/v1/namespaces/default/pods", {"kind": "Pod", "apiVersion": "v1", **pod})
    else:
        target.server.put_pod(pod)  # clients cannot create pods there

    table = target.send(
        "GET",
        "/api/v1/namespaces/default/pods",
        headers={"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"},
        params={"includeObject": "None"},
    ).body
    columns = [each["name"] for each in table["columnDefinitions"]]
    rows = [dict(zip(columns, row["cells"], strict=True)) for row in table["rows"]]

    row = next(row for row in rows if row["Name"] == name)
    assert (row["Node"], row["Ready"], row["Status"]) == (node, "0/2", "Pending")

    table = target.send(
        "GET",
        "/api/v1/namespaces/default/pods",
        headers={"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"},
        params={"includeObject": "Metadata"},
    ).body
    found = [row["object"]["metadata"] for row in table["rows"]]
    assert [each["annotations"] for each in found if each["name"] == name] == [{"script": "abc"}]


def test_an_admission_policy_that_is_missing_is_named(target: Target) -> None:
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/contract-none"

    assert target.get(path).body["message"].endswith('"contract-none" not found')


@pytest.mark.parametrize(
    "path",
    [
        pytest.param("/api/v1/nodes/contract-nobody", id="a node"),
        pytest.param("/api/v1/gadgets", id="a resource that is not served"),
        pytest.param("/apis/coordination.k8s.io/v1/namespaces/default/leases/contract-none", id="a lease"),
    ],
)
def test_an_object_that_does_not_exist_is_not_found(target: Target, path: str) -> None:
    answer = target.get(path)

    assert (answer.status, answer.body["reason"], answer.body["kind"]) == (404, "NotFound", "Status")
    assert target.get("/apis/gadgets.example/v1/gadgets").body == "404 page not found\n"
