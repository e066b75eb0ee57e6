"""What people do to nodes is in the audit trail, although their commands write the Nodes directly."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from konductor_like.controller import logs
from konductor_like.controller.reporting.audit import Audit
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.reporting.persons_writes import PersonsWrites
from konductor_like.model import (
    Change,
    Control,
    ControlAct,
    Controls,
    Hardware,
    NodeRecord,
    NodeState,
    Release,
    ReleaseHow,
    Severity,
    Source,
    TaintedNode,
    Verb,
)
from konductor_like.policy.node.lifecycle import Facts, Happening, become, failure_of
from konductor_like.policy.node.release import CONTROLLER, purge, released_record
from konductor_like.policy.operator import operator_taint
from konductor_like.policy.wording import act_of
from tests.policy.scenes import OURS, Cluster, at, fault, fleet, ns, reset_node


class Trail:
    """The audit trail of one process after another, over one cluster."""

    def __init__(self, *tainted: str) -> None:
        self._log = io.StringIO()
        logs.set_up("json", "info", stream=self._log)
        self.cluster = Cluster({name: labelled(state) for name, state in fleet(3).items()})
        self.metrics = Metrics()
        self.audit = Audit(self.metrics)
        self.persons = PersonsWrites(self.audit)
        for name in tainted:
            for change in self.cluster.tick(fault(name)).changes:
                self.audit.written(change, "applied")

    def look(self, seconds: float, controls: Controls | None = None) -> None:
        self.persons.see(dict(self.cluster.nodes), controls or Controls(), at(seconds))

    def restart(self, looked_at: float) -> None:
        """Another process begins to lead; the last one looked at the Nodes at ``looked_at``."""
        self.metrics = Metrics()
        self.audit = Audit(self.metrics)
        self.persons = PersonsWrites(self.audit)
        self.persons.begin(at(looked_at))

    def lines(self, *fields: str) -> list[dict[str, Any]]:
        """The lines about acts of people and deletions, with these fields."""
        found = [json.loads(line) for line in self._log.getvalue().splitlines()]
        acts = [line for line in found if line["by"] or line["verb"] in ("purge", "delete")]
        return [{name: line[name] for name in fields} for line in acts]

    def measured(self, how: str) -> float | None:
        return self.metrics.registry.get_sample_value(
            "konductor_like_out_of_service_seconds_sum", {"how": how}
        )


def labelled(state: NodeState) -> NodeState:
    return replace(state, hardware=Hardware("NVIDIA-H100-80GB-HBM3", "570.172.08", "r7"))


def test_a_reset_is_in_the_trail_with_the_person_the_reason_and_the_time_out_that_it_ended() -> None:
    trail = Trail("gpu-1")
    trail.look(1)
    change = reset_node(trail.cluster, "gpu-1", 600)
    trail.look(601)

    fields = ("act", "node", "by", "verb", "outcome", "why", "reason", "how", "at", "out_since", "rule")
    [line] = trail.lines(*fields, "gpu", "model", "driver", "rack")
    assert line == {
        "act": change.act_id,
        "node": "gpu-1",
        "by": "ann",
        "verb": "untaint",
        "outcome": "applied",
        "why": "GPUFaultReleased",
        "reason": "new riser",
        "how": "reset",
        "at": "2026-03-04T12:10:00Z",
        "out_since": "2026-03-04T12:00:00Z",
        "rule": "xid.79",
        "gpu": "0000:4e:00",
        "model": "NVIDIA-H100-80GB-HBM3",
        "driver": "570.172.08",
        "rack": "r7",
    }
    assert trail.measured("reset") == 600


def test_an_act_is_logged_once_by_one_process_and_again_by_the_next() -> None:
    trail = Trail("gpu-1")
    trail.look(1)
    reset_node(trail.cluster, "gpu-1", 600)
    for seconds in (601, 602, 900):
        trail.look(seconds)
    assert len(trail.lines()) == 1

    trail.restart(looked_at=900)
    trail.look(950)

    first, again = trail.lines("act", "node", "by", "verb", "at", "out_since", "how")
    assert first == again
    assert trail.measured("reset") == 0  # the first process has measured it


def test_what_was_done_while_no_controller_ran_is_logged_by_the_next_one() -> None:
    trail = Trail("gpu-1")
    trail.look(1)
    hours = 3600 * 40
    reset_node(trail.cluster, "gpu-1", hours)
    trail.restart(looked_at=60)
    trail.look(hours + 3600 * 5)

    assert trail.lines("node", "by", "out_since") == [
        {"node": "gpu-1", "by": "ann", "out_since": "2026-03-04T12:00:00Z"}
    ]


def test_an_act_that_is_told_again_is_not_one_of_the_time_out_that_has_begun_since() -> None:
    trail = Trail()
    trail.look(1)
    state = trail.cluster.nodes["gpu-2"]
    trail.cluster.apply(operator_taint(state, at=at(10), by="kim", reason="fan is loud"))
    trail.look(11)
    reset_node(trail.cluster, "gpu-2", 600)
    trail.look(601)
    trail.cluster.tick(fault("gpu-2", seconds=900), seconds=900)
    trail.restart(looked_at=901)
    trail.look(902)

    again = trail.lines("by", "verb", "out_since", "how")[2:]
    assert again == [
        {"by": "kim", "verb": "taint", "out_since": None, "how": None},
        {"by": "ann", "verb": "record", "out_since": None, "how": None},
    ]


def test_acts_from_long_before_the_last_look_are_not_logged_again() -> None:
    trail = Trail("gpu-1")
    reset_node(trail.cluster, "gpu-1", 600)
    trail.restart(looked_at=600 + 86_401)
    trail.look(600 + 86_500)

    assert trail.lines() == []


@pytest.mark.parametrize("ahead", [-7200, 7200])
def test_the_clock_of_a_persons_machine_may_be_wrong(ahead: float) -> None:
    trail = Trail("gpu-1")
    trail.look(1)
    reset_node(trail.cluster, "gpu-1", 600 + ahead)
    trail.look(601)
    trail.restart(looked_at=700)
    trail.look(701)

    assert len(trail.lines()) == 2


def test_two_acts_between_two_looks_are_both_in_the_trail() -> None:
    trail = Trail()
    trail.look(1)
    state = trail.cluster.nodes["gpu-2"]
    trail.cluster.apply(operator_taint(state, at=at(10), by="kim", reason="fan is loud"))
    reset_node(trail.cluster, "gpu-2", 12)
    trail.look(15)

    assert trail.lines("by", "verb", "reason", "how") == [
        {"by": "kim", "verb": "taint", "reason": "fan is loud", "how": None},
        {"by": "ann", "verb": "record", "reason": "new riser", "how": None},
    ]


def test_a_persons_taint_and_its_end_name_the_same_time_out() -> None:
    trail = Trail()
    trail.look(1)
    state = trail.cluster.nodes["gpu-2"]
    trail.cluster.apply(operator_taint(state, at=at(10), by="kim", reason="fan is loud"))
    trail.look(11)
    reset_node(trail.cluster, "gpu-2", 3610)
    trail.look(3611)

    begun, ended = trail.lines("by", "verb", "rule", "out_since", "model")
    assert begun == {
        "by": "kim",
        "verb": "taint",
        "rule": "operator",
        "out_since": "2026-03-04T12:00:10Z",
    } | {"model": "NVIDIA-H100-80GB-HBM3"}
    assert ended == begun | {"by": "ann", "verb": "untaint"}


def purged(trail: Trail, name: str) -> None:
    change = purge(replace(trail.cluster.nodes[name]))
    trail.cluster.apply(change)


def test_a_purge_is_in_the_trail_with_the_person_that_the_lease_names() -> None:
    trail = Trail("gpu-1")
    trail.look(1)
    purged(trail, "gpu-1")
    noted = ControlAct(Control.PURGE, at(60), "kim", "sold", nodes=1, names=("gpu-1",))
    trail.look(61, Controls(acts=(noted,)))

    [line] = trail.lines("node", "by", "reason", "verb", "how", "at", "out_since", "rule")
    assert line == {
        "node": "gpu-1",
        "by": "kim",
        "reason": "sold",
        "verb": "purge",
        "how": "purged",
        "at": "2026-03-04T12:01:00Z",
        "out_since": "2026-03-04T12:00:00Z",
        "rule": "xid.79",
    }
    assert trail.measured("purged") == 60


def test_the_lease_is_read_once_for_the_person_of_several_purges() -> None:
    trail, asked = Trail("gpu-1", "gpu-2"), []

    def latest() -> Controls:
        asked.append(1)
        return Controls(acts=(ControlAct(Control.PURGE, at(60), "kim", nodes=2, names=("gpu-1", "gpu-2")),))

    trail.persons.see(dict(trail.cluster.nodes), Controls(), at(1), latest)
    assert not asked
    purged(trail, "gpu-1")
    purged(trail, "gpu-2")
    trail.persons.see(dict(trail.cluster.nodes), Controls(), at(61), latest)

    assert [line["by"] for line in trail.lines("by")] == ["kim", "kim"]
    assert len(asked) == 1


def test_an_old_purge_on_the_lease_names_nobody() -> None:
    trail = Trail("gpu-1")
    trail.look(1)
    purged(trail, "gpu-1")
    trail.look(2000, Controls(acts=(ControlAct(Control.PURGE, at(60), "kim", names=("gpu-1",)),)))

    assert trail.lines("by", "at") == [{"by": None, "at": "2026-03-04T12:33:20Z"}]


def test_a_purge_of_another_node_names_nobody_here() -> None:
    trail = Trail("gpu-1")
    trail.look(1)
    purged(trail, "gpu-1")
    trail.look(61, Controls(acts=(ControlAct(Control.PURGE, at(60), "kim", nodes=1, names=("gpu-2",)),)))

    assert trail.lines("by", "at") == [{"by": None, "at": "2026-03-04T12:01:01Z"}]


def test_a_record_that_somebody_removed_while_the_taint_stays_is_no_purge() -> None:
    trail = Trail("gpu-1")
    trail.look(1)
    state = trail.cluster.nodes["gpu-1"]
    without = replace(state, record=NodeRecord(), as_read=replace(state.as_read, record=None))
    trail.cluster.nodes["gpu-1"] = without
    trail.look(2)
    assert trail.lines() == []

    reset_node(trail.cluster, "gpu-1", 60)
    trail.look(61)

    assert trail.lines("by", "verb", "how", "out_since") == [
        {"by": "ann", "verb": "untaint", "how": "reset", "out_since": None}
    ]


def test_a_node_that_was_purged_while_no_controller_ran_is_known_from_the_lease() -> None:
    trail = Trail("gpu-1", "gpu-2")
    was = [
        TaintedNode(each.name, each.machine, at(0), why="xid 79 on GPU 0000:4e:00")
        for each in trail.cluster.nodes.values()
        if each.tainted
    ]
    purged(trail, "gpu-1")
    trail.restart(looked_at=30)
    trail.look(90, Controls(tainted=tuple(was)))
    trail.look(95, Controls(tainted=tuple(was)))

    assert trail.lines("node", "verb", "out_since", "reason") == [
        {"node": "gpu-1", "verb": "purge", "out_since": "2026-03-04T12:00:00Z"}
        | {"reason": "xid 79 on GPU 0000:4e:00"}
    ]


def test_only_a_node_that_lost_taint_and_record_was_purged_while_no_controller_ran() -> None:
    trail = Trail("gpu-1", "gpu-2", "gpu-3")
    was = [TaintedNode(each.name, each.machine, at(0), why="xid 79") for each in trail.cluster.nodes.values()]
    first, second = trail.cluster.nodes["gpu-1"], trail.cluster.nodes["gpu-2"]
    seen = replace(first.as_read, record=None)
    trail.cluster.nodes["gpu-1"] = replace(first, as_read=seen, record=NodeRecord())  # it has the taint
    seen = replace(second.as_read, uid="another", record=None)
    trail.cluster.nodes["gpu-2"] = replace(second, as_read=seen, taints=(), record=NodeRecord())
    third = trail.cluster.nodes["gpu-3"]
    trail.cluster.nodes["gpu-3"] = replace(third, taints=(), record=NodeRecord())  # it has the annotation
    trail.cluster.nodes["gpu-4"] = replace(first, name="gpu-4", as_read=seen, taints=(), record=NodeRecord())
    was.append(TaintedNode("gpu-4", replace(first.machine, node_uid="another"), at(0)))  # on the way only
    on_lease = replace(second, name="gpu-5", as_read=seen, taints=(), record=NodeRecord(), record_kept=True)
    trail.cluster.nodes["gpu-5"] = on_lease  # the Lease has its record
    was.append(TaintedNode("gpu-5", replace(second.machine, node_uid="another"), at(0), why="xid 79"))
    trail.restart(looked_at=30)
    trail.look(90, Controls(tainted=tuple(was)))

    assert trail.lines() == []


def test_a_reset_while_no_controller_ran_ends_the_time_out_of_a_persons_taint() -> None:
    trail = Trail()
    state = trail.cluster.nodes["gpu-2"]
    trail.cluster.apply(operator_taint(state, at=at(10), by="kim", reason="fan is loud"))
    tainted = trail.cluster.nodes["gpu-2"]
    reset_node(trail.cluster, "gpu-2", 600)
    trail.restart(looked_at=30)
    trail.look(700, Controls(tainted=(TaintedNode("gpu-2", tainted.machine, at(10)),)))

    assert trail.lines("by", "verb", "out_since", "how")[1:] == [
        {"by": "ann", "verb": "untaint", "out_since": "2026-03-04T12:00:10Z", "how": "reset"}
    ]


def test_the_first_release_of_the_whole_node_ended_the_time_out_of_a_persons_taint() -> None:
    trail = Trail()
    trail.cluster.apply(
        operator_taint(trail.cluster.nodes["gpu-1"], at=at(10), by="kim", reason="fan is loud")
    )
    trail.look(11)
    reset_node(trail.cluster, "gpu-1", 30)
    trail.cluster.tick(fault(rule="xid.63", severity=Severity.SUSPECT, stamp=200.0, seconds=40), seconds=40)
    reset_node(trail.cluster, "gpu-1", 50, "eve")
    trail.look(60)

    ends = [line for line in trail.lines("by", "how", "at") if line["how"]]
    assert ends == [{"by": "ann", "how": "reset", "at": "2026-03-04T12:00:30Z"}]


def removed_by_hand(trail: Trail, *, seen: bool) -> None:
    trail.look(1)
    trail.cluster.untaint_by_hand("gpu-1")
    trail.cluster.tick(seconds=60)
    if seen:
        trail.persons.wrote(dict(trail.cluster.nodes))


def test_a_release_that_this_process_wrote_is_not_told_again() -> None:
    trail = Trail("gpu-1")
    removed_by_hand(trail, seen=True)
    state = trail.cluster.nodes["gpu-2"]
    trail.cluster.nodes["gpu-2"] = replace(state, taints=(OURS,))
    trail.cluster.tick(fault("gpu-2", seconds=61), seconds=61)  # the controller found a taint
    trail.look(62)

    assert trail.lines() == []


def test_a_release_whose_write_got_no_answer_or_whose_writer_was_killed_is_told_when_it_is_seen() -> None:
    trail = Trail("gpu-1")
    removed_by_hand(trail, seen=False)
    trail.look(61)

    assert trail.lines("verb", "by", "how", "at", "out_since") == [
        {"verb": "untaint", "by": "kubectl-taint", "how": "taint removed", "at": "2026-03-04T12:01:00Z"}
        | {"out_since": "2026-03-04T12:00:00Z"}
    ]
    assert trail.measured("taint removed") == 60


def test_a_taint_by_a_person_on_a_node_that_is_out_begins_nothing() -> None:
    trail = Trail("gpu-1")
    trail.look(1)
    state = trail.cluster.nodes["gpu-1"]
    trail.cluster.apply(operator_taint(state, at=at(10), by="kim", reason="fan is loud"))
    trail.look(11)

    assert trail.lines("verb", "by", "out_since") == [
        {"verb": "record", "by": "kim", "out_since": "2026-03-04T12:00:00Z"}
    ]


def test_the_record_of_another_machine_is_left_without_an_end() -> None:
    trail = Trail("gpu-1")
    state = trail.cluster.nodes["gpu-1"]
    machine = replace(state.machine, node_uid="other", system_id="other")
    trail.cluster.nodes["gpu-1"] = replace(state, machine=machine)
    changes = trail.cluster.tick(fault(seconds=60, stamp=160.0), seconds=60).changes

    written(trail, changes)

    assert changes
    assert trail.measured("purged") == 0


def test_the_loss_of_an_empty_record_is_no_purge() -> None:
    trail = Trail()
    state = trail.cluster.nodes["gpu-1"]
    trail.cluster.nodes["gpu-1"] = replace(state, as_read=replace(state.as_read, record="{}"))
    trail.look(1)
    trail.cluster.nodes["gpu-1"] = state
    trail.look(2)

    assert trail.lines() == []


def test_a_node_that_registers_again_without_its_record_was_not_purged() -> None:
    trail = Trail("gpu-1")
    trail.look(1)
    state = trail.cluster.nodes["gpu-1"]
    seen = replace(state.as_read, uid="another", record=None)
    trail.cluster.nodes["gpu-1"] = replace(state, as_read=seen, taints=(), record=NodeRecord())
    trail.look(2)

    assert trail.lines() == []


def test_a_node_that_was_deleted_with_the_taint_is_in_the_trail() -> None:
    trail = Trail("gpu-1")
    state = trail.cluster.nodes["gpu-1"]
    trail.audit.deleted(TaintedNode("gpu-1", state.machine, at(0), why="xid 79", needs="reboot"), at(300))

    assert trail.lines("node", "verb", "outcome", "out_since", "at", "how", "reason", "needs") == [
        {"node": "gpu-1", "verb": "delete", "outcome": "applied", "out_since": "2026-03-04T12:00:00Z"}
        | {"at": "2026-03-04T12:05:00Z", "how": "deleted", "reason": "xid 79", "needs": "reboot"}
    ]
    assert trail.measured("deleted") == 300


def written(trail: Trail, changes: Sequence[Any]) -> None:
    for change in changes:
        trail.audit.written(change, "applied")


def test_a_taint_that_was_removed_by_hand_names_the_field_manager() -> None:
    trail = Trail("gpu-1")
    trail.cluster.untaint_by_hand("gpu-1")
    written(trail, trail.cluster.tick(seconds=60).changes)

    assert trail.lines("verb", "by", "how", "out_since", "at", "rule") == [
        {"verb": "record", "by": "kubectl-taint", "how": "taint removed", "rule": "xid.79"}
        | {"out_since": "2026-03-04T12:00:00Z", "at": "2026-03-04T12:01:00Z"}
    ]


def test_a_removal_by_hand_that_is_followed_by_a_taint_at_once_has_a_line_of_its_own() -> None:
    trail = Trail("gpu-1")
    trail.cluster.untaint_by_hand("gpu-1")
    written(trail, trail.cluster.tick(fault(seconds=60, stamp=160.0), seconds=60).changes)

    assert trail.lines("verb", "how", "out_since") == [
        {"verb": "record", "how": "taint removed", "out_since": "2026-03-04T12:00:00Z"}
    ]
    *_, last = [json.loads(line) for line in trail._log.getvalue().splitlines()]
    assert (last["verb"], last["how"], last["by"]) == ("taint", None, None)
    assert last["out_since"] == "2026-03-04T12:01:00Z"
    assert trail.measured("taint removed") == 60


def test_a_taint_that_somebody_put_on_the_node_by_other_means_names_the_field_manager() -> None:
    trail = Trail()
    trail.cluster.apply(operator_taint(trail.cluster.nodes["gpu-1"], at=at(0), by="kim", reason="x"))
    state = trail.cluster.nodes["gpu-1"]
    trail.cluster.nodes["gpu-1"] = replace(state, record=NodeRecord(), last_writer="kubectl-edit")
    written(trail, trail.cluster.tick(fault(), seconds=1).changes)

    [line] = trail.lines("verb", "by", "out_since")
    assert line == {"verb": "record", "by": "kubectl-edit", "out_since": "2026-03-04T12:00:01Z"}


def test_a_taint_by_the_controller_names_nobody_whoever_wrote_the_node_last() -> None:
    trail = Trail()
    state = trail.cluster.nodes["gpu-1"]
    trail.cluster.nodes["gpu-1"] = replace(state, last_writer="kubectl-label")
    written(trail, trail.cluster.tick(fault()).changes)

    [line] = [json.loads(text) for text in trail._log.getvalue().splitlines()]
    assert (line["verb"], line["by"]) == ("taint", None)


def test_the_return_by_the_controller_ends_the_time_out_without_a_person() -> None:
    trail = Trail("gpu-1")
    state = trail.cluster.nodes["gpu-1"]
    mark = Release(at(900), CONTROLLER, "a reboot met all needs of the node", ReleaseHow.REBOOT)
    facts = Facts(at(900), how=mark.how, failed=failure_of(state.record))
    became = become(state.record.life, state.stage, Happening.REBOOTED, facts)
    record = released_record(state, became.life, mark, read_ns={Source.KERNEL: ns(900)})
    record = replace(record, act=act_of(state, Verb.UNTAINT, at(900)))
    trail.audit.written(Change("gpu-1", Verb.UNTAINT, record, None, read=state), "applied")

    *_, line = [json.loads(text) for text in trail._log.getvalue().splitlines()]
    assert (line["verb"], line["how"], line["by"]) == ("untaint", "reboot", None)
    assert line["out_since"] == "2026-03-04T12:00:00Z"
    assert trail.measured("reboot") == 900
