"""`doctor` finds the kernel's lines and the names of Nodes under any labels of Loki."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from konductor_like.cli.doctor.cluster_links import readers
from konductor_like.cli.doctor.facts import Facts
from konductor_like.cli.doctor.foreign import ENTRIES, HEARTBEATS, Foreign, Sample, look
from konductor_like.cli.doctor.foreign_links import elsewhere, node_label, node_label_of_pods, without_beats
from konductor_like.cli.doctor.link import Link, State, Unseen
from konductor_like.cli.doctor.report import checkup, exit_of
from konductor_like.exits import Exit
from konductor_like.loki.query.client import LokiClient
from konductor_like.selectors import Matcher, parse_matchers
from konductor_like.settings import Settings
from konductor_like_sandbox.loki import LokiServer
from tests.cli.doctor_site import GPU_NODES, Site
from tests.cli.test_doctor import by_name

NODE = "gpu-04"
XID = "NVRM: Xid (PCI:0000:4e:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
BEAT = (
    "kmsg/1 heartbeat boot=0b1c2d3e-0000-4000-8000-000000000001 seq=4711 uptime=1000.000001"
    " wall=2026-03-03T10:00:00.000000Z"
)
ENTRY = json.dumps(
    {
        "MESSAGE": "cni0: port 3(veth1a2b) entered forwarding state",
        "_BOOT_ID": "0b1c2d3e000040008000000000000001",
        "_HOSTNAME": "ip-10-0-0-4",
        "_SOURCE_MONOTONIC_TIMESTAMP": "812000001",
        "_TRANSPORT": "kernel",
        "SYSLOG_IDENTIFIER": "kernel",
    },
    separators=(",", ":"),
)
OF_A_PROGRAM = json.dumps({"MESSAGE": XID, "_TRANSPORT": "stdout", "_PID": "7"}, separators=(",", ":"))
OF_POD = {"namespace": "team-a", "pod": "train-0", "container": "main"}
POD = {**OF_POD, "node_name": NODE}
OF_READER = {"namespace": "dmesg-logging", "pod": "dmesg-x", "container": "dmesg", "node_name": NODE}
OF_PODS: dict[str, Any] = {"namespace_label": "namespace", "pod_label": "pod", "container_label": "container"}
NOTHING, LINES, WHOLE = (False, False), (False, True), (True, True)
"""Whether the settings find heartbeats, and any kernel line."""
Stream = tuple[Mapping[str, str], str, Mapping[str, str]]


@pytest.fixture(scope="module")
def loki() -> Iterator[LokiServer]:
    """One Loki, in which each test has a tenant of its own."""
    with LokiServer(auth_enabled=True) as server:
        yield server


_TENANTS = count()


def seen_in(
    loki: LokiServer,
    streams: list[Stream],
    found: tuple[bool, bool] = NOTHING,
    without: str = "",
    **settings: Any,
) -> tuple[Foreign, Settings]:
    tenant = f"tenant-{next(_TENANTS)}"
    for labels, line, metadata in streams:
        loki.push(labels, [(time.time_ns() - 10**9, line)], metadata, tenant=tenant)
    ours = Settings(log_endpoint=loki.url, loki_tenant=tenant, watched_namespaces="team-a", **settings)
    client, (beats, has_lines) = LokiClient(ours), found
    index = client.label_names(client.now_ns() - 600 * 10**9, client.now_ns())
    index = tuple(name for name in index if name != without)
    looked = look(client, ours, index, lambda: {NODE}, beats=beats, lines=has_lines)
    client.close()
    return looked, ours


def link_of(found: Foreign, settings: Settings) -> Link:
    """Return the link `kernel stream` if the settings find no line."""
    return elsewhere(settings.kernel_selector, found, settings, ("job",))


COLLECTORS: dict[str, tuple[Stream, str, str]] = {
    "Promtail, journal as JSON": (
        ({"job": "systemd-journal", "nodename": NODE}, ENTRY, {}),
        '{job="systemd-journal"}',
        "nodename",
    ),
    "a journal as JSON with blanks": (
        ({"job": "systemd-journal", "nodename": NODE}, json.dumps(json.loads(ENTRY)), {}),
        '{job="systemd-journal"}',
        "nodename",
    ),
    "Promtail, transport as a label": (
        ({"job": "systemd-journal", "transport": "kernel", "host": NODE}, XID, {}),
        '{job="systemd-journal", transport="kernel"}',
        "host",
    ),
    "Alloy, loki.source.journal": (
        ({"job": "loki.source.journal.read", "component": "loki.source.journal", "node": NODE}, ENTRY, {}),
        '{component="loki.source.journal", job="loki.source.journal.read"}',
        "node",
    ),
    "the reader's pods through Promtail or Alloy": (
        (OF_READER, BEAT, {}),
        '{container="dmesg", namespace="dmesg-logging", pod="dmesg-x"}',
        "node_name",
    ),
    "a container with dmesg -w": (
        (OF_READER, f"[  812.000001] {XID}", {}),
        '{container="dmesg", namespace="dmesg-logging", pod="dmesg-x"}',
        "node_name",
    ),
    "names that nobody has seen": (
        ({"colour": "blue", "planet": "mars", "machine": NODE}, ENTRY, {}),
        '{colour="blue", planet="mars"}',
        "machine",
    ),
    "the node's name as structured metadata": (
        ({"colour": "blue"}, BEAT, {"machine": NODE}),
        '{colour="blue"}',
        "machine",
    ),
}


@pytest.mark.parametrize(("stream", "selector", "label"), COLLECTORS.values(), ids=COLLECTORS)
def test_the_kernel_lines_and_the_names_of_nodes_are_found_under_any_labels(
    loki: LokiServer, stream: Stream, selector: str, label: str
) -> None:
    loki.clear_journal()

    found, settings = seen_in(loki, [stream, ({"k8s_namespace_name": "team-a"}, "step 1", {})])

    link = link_of(found, settings)
    assert link.state is State.BROKEN
    assert found.kernel is not None
    assert f"your kernel lines are under {found.kernel.selector}" in link.seen
    assert without_service(found.kernel.selector) == {
        *parse_matchers(selector),
        Matcher("k8s_namespace_name", "=", ""),
    }
    assert link.do.startswith("set KONDUCTOR_KERNEL_SELECTOR to those of these labels")
    assert f"KONDUCTOR_NODE_LABEL={label} (docs/start/collectors.md" in link.do
    assert found.named == (() if stream[2] else (label,))
    Settings.model_validate({"kernel_selector": selector})
    assert len([each for each in loki.journal if "/push" not in each.request.path]) <= 41


def without_service(selector: str) -> set[Matcher]:
    """Return the matchers without the label that Loki itself derives from others."""
    return {each for each in parse_matchers(selector) if each.name != "service_name"}


def test_the_labels_of_one_node_alone_are_left_out(loki: LokiServer) -> None:
    beats: list[Stream] = [({"job": "kmsg", "pod": f"dmesg-{i}", "node": NODE}, BEAT, {}) for i in range(2)]

    found, _ = seen_in(loki, beats)

    assert found.kernel is not None
    assert without_service(found.kernel.selector) == {Matcher("job", "=", "kmsg")}
    assert found.kernel.what == HEARTBEATS


def test_streams_that_have_only_the_nodes_name_are_found(loki: LokiServer) -> None:
    streams: list[Stream] = [({"machine": NODE}, BEAT, {}), ({"machine": "cpu-1"}, BEAT, {})]

    found, _ = seen_in(loki, streams, without="service_name")  # which Loki need not derive

    assert found.kernel is not None
    assert (found.kernel.selector, found.kernel.what) == ('{machine=~".+"}', HEARTBEATS)


def test_streams_with_names_of_nodes_are_looked_at_first(loki: LokiServer) -> None:
    pod: Stream = (dict.fromkeys("abcdefgh", "x"), "step 1", {})

    found, _ = seen_in(loki, [pod, ({"z": NODE}, BEAT, {})], without="service_name")

    assert found.kernel is not None
    assert found.kernel.what == HEARTBEATS


def test_a_program_that_quotes_the_driver_does_not_hide_the_kernels_stream(loki: LokiServer) -> None:
    journal: Stream = ({"job": "systemd-journal", "nodename": NODE}, ENTRY, {})
    pod: Stream = ({"namespace": "team-b", "a_node": NODE}, XID, {})

    found, _ = seen_in(loki, [pod, journal])

    assert found.kernel is not None
    assert found.named == ("a_node", "nodename")
    assert (Matcher("job", "=", "systemd-journal") in parse_matchers(found.kernel.selector)) is True
    assert found.kernel.what == ENTRIES


def test_the_names_of_nodes_are_told_although_no_kernel_line_is_there(loki: LokiServer) -> None:
    found, settings = seen_in(loki, [(POD, "step 1", {})])

    assert (found.named, found.kernel) == (("node_name",), None)
    assert link_of(found, settings).details == ("labels in Loki: job", "names of Nodes are in: node_name")


NO_KERNEL_LOG: dict[str, list[Stream]] = {
    "an empty Loki": [],
    "only pods": [(POD, XID, {}), ({**POD, "job": "team-a/train"}, "step 1", {})],
    "a pod that is called so": [({**POD, "container": "kernel-tuner"}, XID, {})],
    "a pod that prints a stamp between other lines": [
        ({**POD, "container": "kernel-tuner"}, f"[  812.000001] {XID}", {}),
        ({**POD, "container": "kernel-tuner"}, "step 1", {}),
    ],
    "a journal without the kernel": [({"job": "systemd-journal"}, OF_A_PROGRAM.replace("NVRM", "x"), {})],
    "hundreds of streams": [({**POD, "job": f"team-a/kernel-{i}"}, "step 1", {}) for i in range(300)],
}


@pytest.mark.parametrize("streams", NO_KERNEL_LOG.values(), ids=NO_KERNEL_LOG)
def test_no_stream_is_called_the_kernels_that_was_not_seen_to_be(
    loki: LokiServer, streams: list[Stream]
) -> None:
    loki.clear_journal()

    found, settings = seen_in(loki, streams)

    assert not (found.kernel and found.kernel.what)
    assert "your kernel lines are under" not in link_of(found, settings).seen
    assert len([each for each in loki.journal if "/push" not in each.request.path]) <= 41


MIXED: dict[str, tuple[dict[str, str], list[str]]] = {
    "Promtail, journal as text": ({"job": "systemd-journal", "nodename": NODE}, [XID]),
    "k8s-monitoring as it comes": ({"source": "journal", "instance": NODE}, [XID]),
    "entries in JSON beside plain lines": ({"job": "systemd-journal", "nodename": NODE}, [ENTRY, XID]),
    "heartbeats beside lines of programs": ({"job": "everything"}, [BEAT, "step 1"]),
}


@pytest.mark.parametrize(("labels", "lines"), MIXED.values(), ids=MIXED)
def test_a_stream_that_mixes_the_kernel_with_programs_is_not_to_be_selected(
    loki: LokiServer, labels: dict[str, str], lines: list[str]
) -> None:
    found, settings = seen_in(loki, [(labels, line, {}) for line in lines])

    link = link_of(found, settings)

    assert found.kernel is not None
    [(name, value)] = list(labels.items())[:1]
    assert Matcher(name, "=", value) in parse_matchers(found.kernel.selector)
    assert "} has lines of the kernel or its drivers, and any program may write there" in link.seen
    assert link.do.startswith("let the collector send the journal as JSON")
    assert "KONDUCTOR_KERNEL_SELECTOR" not in link.do


KERNEL = {"source": "kernel", "node": NODE}


@pytest.mark.parametrize(
    ("line", "state", "says"),
    [
        (ENTRY, State.WARN, "journal entries, and no heartbeat: nodes are `not measured`"),
        ("cni0: port 3", State.WARN, "lines, and no heartbeat in the last minutes"),
        ("[78,86,82,77,58,32,88,105,100]", State.BROKEN, "only a list of numbers: an Xid in them is lost"),
    ],
)
def test_a_journal_in_place_of_the_reader_is_told_from_a_plain_log(
    loki: LokiServer, line: str, state: State, says: str
) -> None:
    found, settings = seen_in(loki, [(KERNEL, line, {})], LINES, kernel_selector='{source="kernel"}')

    assert found.own is not None
    link = without_beats(found.own, settings)
    assert (link.state, says in link.seen) == (state, True), link
    assert ("for a journal, let the collector send the journal as JSON" in link.do) == (
        line == "cni0: port 3"
    )


def test_a_journal_as_plain_text_that_is_selected_by_its_transport_is_a_journal(loki: LokiServer) -> None:
    ours = {"kernel_selector": '{source="kernel", transport="kernel"}'}

    found, _ = seen_in(loki, [({**KERNEL, "transport": "kernel"}, "cni0: port 3", {})], LINES, **ours)

    assert found.own is not None
    assert found.own.is_journal


@pytest.mark.parametrize(
    ("configured", "names", "state", "says"),
    [
        ("node", [NODE, "gpu-deleted"], State.OK, "node is on the latest kernel lines"),
        ("node", [f"{NODE}.example.com"], State.BROKEN, f"names no Node: {NODE}.example.com"),
        ("k8s_node_name", [NODE], State.BROKEN, "set KONDUCTOR_NODE_LABEL=node"),
    ],
)
def test_the_node_label_is_checked_without_heartbeats(
    loki: LokiServer, configured: str, names: list[str], state: State, says: str
) -> None:
    ours = {"kernel_selector": '{source="kernel"}', "node_label": configured}
    streams: list[Stream] = [({**KERNEL, "node": name}, ENTRY, {}) for name in names]
    found, settings = seen_in(loki, streams, LINES, **ours)

    assert found.own is not None
    link = node_label(found.own, found, settings)
    assert (link.state, says in f"{link.seen} {link.do}") == (state, True), link


def test_a_whole_set_up_costs_loki_one_further_question(loki: LokiServer) -> None:
    loki.clear_journal()

    found, _ = seen_in(loki, [(POD, "step 1", {})], WHOLE, **OF_PODS)

    assert found == Foreign(on_pods=("node_name",))
    assert len([each for each in loki.journal if each.request.path.endswith("/query_range")]) == 1


@pytest.mark.parametrize(
    ("pods", "of_kernel", "says"),
    [
        ([POD], {"node", "node_name"}, "set KONDUCTOR_NODE_LABEL=node_name (docs"),
        ([POD], {"node"}, "in node on kernel lines, and in node_name on pod lines; let the collector give"),
        ([OF_POD], {"node"}, "let the collector set node on pod lines, too"),
        ([OF_POD, {**OF_POD, "node": NODE}], {"node"}, None),
        ([{**OF_POD, "node": "a-deleted-node"}], {"node"}, None),
        ([{"namespace": "team-a", "job": "integrations/kubernetes/eventhandler"}], {"node"}, None),
    ],
    ids=["another on both", "another", "none", "on some", "of a deleted Node", "Events only"],
)
def test_pod_lines_without_the_node_label_of_the_kernel_lines_are_named(
    loki: LokiServer, pods: list[dict[str, str]], of_kernel: set[str], says: str | None
) -> None:
    streams: list[Stream] = [(labels, "step 1", {}) for labels in pods]
    found, settings = seen_in(loki, streams, WHOLE, node_label="node", **OF_PODS)

    link = node_label_of_pods(found, of_kernel, settings)

    assert (link is not None) == bool(says), link
    assert not link or (says or "") in " ".join((link.do, *link.details))


def test_no_node_label_is_proposed_that_the_pod_lines_lack(loki: LokiServer) -> None:
    journal: Stream = ({"job": "systemd-journal", "nodename": NODE}, ENTRY, {})

    found, settings = seen_in(loki, [journal, (POD, "step 1", {})], **OF_PODS)

    link = link_of(found, settings)
    assert "KONDUCTOR_NODE_LABEL" not in link.do
    assert "in nodename on kernel lines, and in node_name on pod lines" in link.details[0]
    assert found.kernel is not None
    own = node_label(found.kernel, found, settings)
    assert "=nodename" not in own.do
    assert "in nodename on kernel lines, and in node_name on pod lines" in own.details[1]


@pytest.mark.parametrize(
    ("own", "has_daemonset", "state"),
    [
        (Sample('{source="kernel"}', ENTRIES), False, State.OK),
        (Sample('{source="kernel"}'), False, State.BROKEN),
        (Sample('{source="kernel"}', HEARTBEATS), False, State.BROKEN),
        (Sample('{source="kernel"}', ENTRIES), True, State.BROKEN),
        (None, False, State.BROKEN),
    ],
    ids=["a journal", "lines of an unknown writer", "heartbeats", "a reader without pods", "no line"],
)
def test_no_reader_is_missed_where_the_kernel_lines_come_from_a_journal(
    facts: Callable[[Site], Facts], own: Sample | None, has_daemonset: bool, state: State
) -> None:
    whole = facts(Site())
    assert not isinstance(whole.daemonsets, Unseen)
    daemonsets = whole.daemonsets if has_daemonset else ()

    found = replace(whole, readers={}, daemonsets=daemonsets, foreign=Foreign(own=own), oldest_beat=None)

    link = readers(found)

    assert (link.state, "journal entries of the kernel" in link.seen) == (state, state is State.OK), link
    assert readers(replace(found, oldest_beat=whole.oldest_beat)).state is State.BROKEN, "a reader ran before"


def of_a_journal(**parts: Any) -> Site:
    """Return a site whose kernel lines come from the journal of each node, without the reader."""
    site = Site(line=ENTRY, pods=[], heard=0, unheard=frozenset(GPU_NODES), **parts)
    site.objects.pop("daemonsets/dmesg")
    return site


def test_a_journal_leaves_only_the_heartbeats_unmeasured(facts: Callable[[Site], Facts]) -> None:
    links = checkup(facts(of_a_journal()))

    found = by_name(links)
    assert found["kernel stream"].state is State.WARN
    assert found["heartbeats"].seen == "not measured: a journal has no heartbeats"
    assert found["node names"].seen == "all 3 names on the latest kernel lines are names of Nodes"
    strange = {link.name: link.state for link in links if link.state is not State.OK}
    assert strange == {"kernel stream": State.WARN, "heartbeats": State.UNKNOWN}
    assert exit_of(links) is Exit.UNKNOWN


def test_one_wrong_name_among_right_ones_in_a_journal_is_named(facts: Callable[[Site], Facts]) -> None:
    first, *_ = GPU_NODES

    found = by_name(checkup(facts(of_a_journal(names={**dict.fromkeys(GPU_NODES, ""), first: "gpu-1"}))))

    assert found["node label"].state is State.OK
    link = found["node names"]
    assert (link.state, link.seen) == (State.BROKEN, f"the lines say gpu-1, the Node is {first}")


def test_the_names_in_a_journal_need_the_node_label(facts: Callable[[Site], Facts]) -> None:
    found = by_name(checkup(facts(of_a_journal(settings={"node_label": "node"}))))

    assert found["node label"].do == "set KONDUCTOR_NODE_LABEL=k8s_node_name (docs/start/collectors.md)"
    assert found["node names"].seen.endswith("the link `node label` must be whole first")


def test_the_names_of_quiet_nodes_of_a_journal_come_from_the_index(loki: LokiServer) -> None:
    journal: list[Stream] = [({**KERNEL, "node": name}, ENTRY, {}) for name in (NODE, "gpu-4")]
    beyond: list[Stream] = [({**KERNEL, "node": "gpu-5", "pid": str(i)}, ENTRY, {}) for i in range(60)]
    ours = {"kernel_selector": '{source="kernel"}', "node_label": "node"}

    found, _ = seen_in(loki, [*beyond, *journal], LINES, **ours)

    assert found.own is not None
    assert found.own.names == {NODE, "gpu-4", "gpu-5"}
    assert found.own.strangers == ("gpu-4", "gpu-5")
