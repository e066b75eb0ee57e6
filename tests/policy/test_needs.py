"""What a node needs: the label's value, the words for people, and the advice that follows from it."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from konductor_like.catalog import load_catalog
from konductor_like.model import (
    EventReason,
    Fault,
    Incident,
    IncidentState,
    KernelPosition,
    Life,
    MetBy,
    Needs,
    NodeRecord,
    NodeState,
    Severity,
    Verb,
)
from konductor_like.policy.config import PolicyConfig
from konductor_like.policy.node.needs import (
    need_in_words,
    need_of,
    need_sentence,
    needed_since,
    unrepaired,
    with_repeats,
    worsening,
)
from konductor_like.policy.node.release import purge
from konductor_like.policy.operator import operator_taint
from konductor_like.policy.recovery.verdict import action_on
from tests.policy.scenes import GPU, Cluster, at, fault, fleet, node, ns, reset_node
from tests.policy.shared import gpu_fleet, xid

HOUR = 3600.0


def needing(needs: str, severity: Severity = Severity.FATAL, gpu: str = GPU) -> Fault:
    """A fault with this need."""
    return fault(rule=f"custom.{needs or 'unknown'}", needs=needs, severity=severity, gpu=gpu)


def decided(*faults: Fault, rules: PolicyConfig | None = None) -> Cluster:
    """Five nodes after a decision on the faults of ``gpu-1``."""
    cluster = Cluster(fleet(5), rules)
    cluster.tick(*faults)
    return cluster


def label(cluster: Cluster) -> str | None:
    """The label of ``gpu-1``."""
    return cluster.nodes["gpu-1"].as_read.needs


def met(state: NodeState, by: MetBy = MetBy.REBOOT) -> NodeState:
    """The node after the needs of all its incidents were met an hour after noon."""
    incidents = tuple(replace(each, met_by=by, met_ns=ns(HOUR)) for each in state.record.incidents)
    return replace(state, record=replace(state.record, incidents=incidents))


def words(state: NodeState) -> str:
    return need_in_words(state.record, tainted=state.tainted)


def test_a_healthy_node_has_no_label() -> None:
    assert need_of(NodeRecord(), tainted=False) is None
    assert words(node()) == ""


@pytest.mark.parametrize(
    ("needs", "wanted"),
    [
        (["reboot"], "reboot"),
        (["application-restart", "gpu-reset", "none"], "gpu-reset"),
        (["reboot", "support"], "support"),
        (["support", "inspection", "reboot"], "inspection"),
        (["replacement", "inspection"], "replacement"),
        (["none"], "none"),
        (["teleport"], "inspection"),
        ([""], "inspection"),
        (["gpu reset"], "gpu-reset"),
        (["nothing"], "none"),
    ],
    ids=str,
)
def test_the_label_is_the_gravest_need_of_the_faults_that_taint(needs: list[str], wanted: str) -> None:
    assert label(decided(*map(needing, needs))) == wanted


def test_on_a_tainted_node_suspicions_do_not_count_and_on_a_suspect_node_they_do() -> None:
    suspicion = needing("replacement", Severity.SUSPECT)

    assert label(decided(needing("reboot"), suspicion)) == "reboot"
    assert label(decided(suspicion)) == "replacement"
    assert label(decided(needing("reboot", Severity.APPLICATION))) is None


def test_a_held_node_has_the_need_of_its_held_fault() -> None:
    cluster = decided(needing("reboot"), rules=PolicyConfig(brake_max_nodes=0))

    assert (cluster.tainted, label(cluster)) == (set(), "reboot")


def test_the_words_name_the_fault_that_asks() -> None:
    state = decided(fault(), needing("application-restart")).nodes["gpu-1"]

    assert words(state) == f"reboot (xid 79 on GPU {GPU})"


def test_the_event_says_the_need() -> None:
    [tainted] = decided(fault()).writes

    assert tainted.event is EventReason.TAINTED
    assert tainted.message.endswith(" Needs: reboot.")


def test_an_event_about_another_fault_says_that_the_need_is_the_nodes_and_by_which_fault() -> None:
    cluster = decided(fault())

    cluster.tick(fault(rule="xid.63", stamp=105, severity=Severity.SUSPECT, needs="gpu-reset"), seconds=5)

    told = cluster.writes[-1]
    assert told.message.startswith("xid 63 ")
    assert told.message.endswith(f" The node needs: reboot (xid 79 on GPU {GPU}).")


def test_the_same_fault_of_another_boot_does_not_stand_for_the_one_that_asks() -> None:
    [change] = decided(fault()).writes
    assert change.record is not None
    [asks] = change.record.incidents
    other = replace(asks, last=replace(asks.last, boot_id="boot-0"))

    def sentence(told: Incident | None, record: NodeRecord = change.record) -> str:
        return need_sentence(record, told, tainted=True)

    assert sentence(asks) == "Needs: reboot."
    assert sentence(other) == sentence(None) == f"The node needs: reboot (xid 79 on GPU {GPU})."
    marked = replace(change.record, life=replace(change.record.life, replace_since=at(0)))
    assert sentence(asks, marked) == "The node needs: replacement (the node failed too often)."
    assert sentence(None, NodeRecord()) == (
        "The node needs: inspection (no recorded fault explains the taint)."
    )
    healed = met(decided(fault()).nodes["gpu-1"]).record
    assert sentence(healed.incidents[0], healed) == "Needs: none."
    assert sentence(None, healed) == "The node needs: none."
    [test] = decided(fault(rule="xid.14", needs="none", severity=Severity.TEST)).writes
    assert test.record is not None
    assert sentence(None, test.record) == "The node needs: none."
    assert need_sentence(NodeRecord(), None, tainted=False) == ""


def test_a_met_need_leaves_none_and_the_words_say_by_what_and_when() -> None:
    state = met(decided(fault()).nodes["gpu-1"])

    assert need_of(state.record, tainted=True) is Needs.NONE
    assert words(state) == "none: met by the reboot seen at 2026-03-04T13:00:00Z"
    [incident] = state.record.incidents
    assert action_on(incident, state)[1] == (
        "Its need was met by the reboot seen at 2026-03-04T13:00:00Z. "
        "Run diagnostics (`dcgmi diag -r 3`), then release the node: `konductor-like reset gpu-1`."
    )


def test_a_need_beside_a_met_one_counts() -> None:
    state = met(decided(fault()).nodes["gpu-1"])
    [first] = state.record.incidents
    second = replace(first, met_by=None, met_ns=None, key=first.key._replace(gpu="0000:9a:00"))
    record = replace(state.record, incidents=(first, second))

    assert need_of(record, tainted=True) is Needs.REBOOT
    assert need_in_words(record, tainted=True) == (
        f"reboot (xid 79 on GPU 0000:9a:00); reboot (xid 79 on GPU {GPU}) "
        "was met by the reboot seen at 2026-03-04T13:00:00Z"
    )


@pytest.mark.parametrize(
    ("severity", "wanted"), [(Severity.FATAL, "inspection"), (Severity.TEST, "reboot")], ids=str
)
def test_a_fault_that_comes_back_after_a_reboot_needs_inspection(severity: Severity, wanted: str) -> None:
    state = met(decided(fault(severity=severity)).nodes["gpu-1"])
    [before] = state.record.incidents
    after = replace(before, met_by=None, met_ns=None, last=KernelPosition("boot-b"))
    record = with_repeats(replace(state.record, incidents=(before, after)))

    assert need_of(record, tainted=True) == wanted
    if severity is Severity.FATAL:
        assert record.incidents[1].advice.startswith("A reboot did not help.")
        elsewhere = replace(after, key=after.key._replace(gpu="0000:9a:00"))
        other = with_repeats(replace(record, incidents=(before, elsewhere)))
        assert need_of(other, tainted=True) is Needs.REBOOT


def test_a_taint_without_a_recorded_fault_needs_inspection() -> None:
    assert need_of(NodeRecord(), tainted=True) is Needs.INSPECTION


# Since when.


def test_a_need_is_as_old_as_the_fault_that_asks_for_it() -> None:
    cluster, found = decided(needing("gpu-reset")), list[datetime | None]()
    for seconds, needs in ((60, "reboot"), (120, "gpu-reset"), (180, "replacement")):
        found.append(needed_since(cluster.nodes["gpu-1"].record, tainted=True))
        cluster.tick(fault(rule=f"custom.{seconds}", needs=needs, seconds=seconds), seconds=seconds)
    found.append(needed_since(cluster.nodes["gpu-1"].record, tainted=True))

    assert found == [at(0), at(60), at(60), at(180)]


def test_a_node_that_needs_nothing_more_waits_since_its_last_need_was_met() -> None:
    state = met(decided(fault()).nodes["gpu-1"])

    assert needed_since(state.record, tainted=True) == at(HOUR)


def test_a_replacement_for_too_many_failures_is_needed_since_the_mark() -> None:
    record = decided(fault()).nodes["gpu-1"].record
    marked = replace(record, life=replace(record.life, replace_since=at(300)))

    assert needed_since(marked, tainted=True) == at(300)


def test_a_taint_that_no_fault_explains_is_as_old_as_the_claim_if_there_is_one() -> None:
    claimed = NodeRecord(life=Life(tainted_at=at(60)))

    assert needed_since(claimed, tainted=True) == at(60)
    assert needed_since(NodeRecord(), tainted=True) is None
    assert needed_since(NodeRecord(), tainted=False) is None


# A tainted node that fails again.


def rebooted(*faults: Fault) -> Cluster:
    """``gpu-1`` after these faults and a reboot that met their needs."""
    cluster = decided(*faults)
    cluster.reboot("gpu-1", "boot-b")
    cluster.tick(seconds=HOUR)
    return cluster


def later(seconds: float, boot: str = "boot-b", **facts: Any) -> Fault:
    """A fault of a later boot."""
    return fault(boot=boot, seconds=seconds, stamp=seconds, **facts)


def worsenings(cluster: Cluster) -> list[str]:
    """The texts of the Events that the node is worse than before."""
    return [each.message for each in cluster.writes if each.event is EventReason.WORSENED]


def test_a_fault_that_comes_back_after_the_reboot_is_told_once_and_not_for_each_line() -> None:
    cluster = rebooted(fault())

    for number in range(50):
        cluster.tick(later(HOUR + number), seconds=HOUR + number)

    [message] = worsenings(cluster)
    assert message.startswith(
        "The fault came back after its need was met by the reboot seen at 2026-03-04T13:00:00Z. "
        f"xid 79 on GPU {GPU}: GPU lost. A reboot did not help."
    )
    assert message.endswith(" Needs: inspection.")
    [change] = [each for each in cluster.writes if each.event is EventReason.WORSENED]
    assert change.incident is not None
    assert change.evidence is not None
    assert (change.incident.key, change.evidence.key) == (later(0).key, later(0).key)


def test_a_node_that_fails_after_each_of_many_reboots_is_told_of_once() -> None:
    cluster = rebooted(fault())

    for number in range(10):
        boot, seconds = f"boot-{number}", (2 + number) * HOUR
        cluster.reboot("gpu-1", boot)
        cluster.tick(later(seconds, boot), seconds=seconds)

    assert len(worsenings(cluster)) == 1


def test_a_reboot_and_the_repeat_in_one_decision_are_told_without_the_advice_to_reset() -> None:
    cluster = decided(fault())
    cluster.reboot("gpu-1", "boot-b")

    [change] = cluster.tick(later(HOUR), seconds=HOUR).changes

    assert change.event is EventReason.WORSENED
    [(reason, message)] = change.also
    assert reason is EventReason.REBOOTED
    assert message.endswith(f"It has failed again since: xid 79 on GPU {GPU}.")
    assert "reset" not in message


@pytest.mark.parametrize(
    ("first", "second", "is_told"),
    [
        (needing("gpu-reset"), needing("reboot", gpu="0000:9a:00"), True),
        (needing("reboot"), needing("gpu-reset", gpu="0000:9a:00"), False),
        (needing("reboot"), needing("reboot", gpu="0000:9a:00"), False),
        (needing("gpu-reset"), needing("reboot", Severity.SUSPECT), False),
        (needing("none", Severity.TEST), needing("gpu-reset"), True),
        (needing("gpu-reset"), needing("reboot", Severity.TEST), False),
        (needing("gpu-reset"), needing("none", gpu="0000:9a:00"), False),
    ],
    ids=["graver", "milder", "equal", "a suspicion", "after a test", "a test", "no need"],
)
def test_a_tainted_node_is_told_of_again_when_it_needs_more(
    first: Fault, second: Fault, is_told: bool
) -> None:
    cluster = decided(first)

    cluster.tick(second, seconds=60)

    assert bool(worsenings(cluster)) is is_told
    if is_told:
        assert worsenings(cluster)[0].startswith("The tainted node needs more than before. custom ")
    elif second.finding.severity is Severity.FATAL:
        assert cluster.writes[-1].event is EventReason.RECORDED


def test_a_graver_fault_that_a_reboot_has_met_already_is_not_told_as_worse() -> None:
    before = decided(needing("gpu-reset")).nodes["gpu-1"].record
    [graver] = met(decided(fault()).nodes["gpu-1"]).record.incidents

    record = replace(before, incidents=(*before.incidents, graver))

    assert worsening(before, record) is None
    assert worsening(before, replace(record, incidents=(replace(graver, met_by=None),))) is not None


def test_the_first_fault_of_a_machine_that_a_person_tainted_is_told() -> None:
    cluster = Cluster(fleet(5))
    cluster.apply(operator_taint(cluster.nodes["gpu-1"], at=at(0), by="kim", reason="riser swap"))

    cluster.tick(fault(seconds=60), seconds=60)

    [told] = worsenings(cluster)
    assert told.startswith("The node that a person had tainted has a fault of its own. xid 79 ")


@given(
    st.lists(
        st.tuples(st.sampled_from(["79", "48", "95"]), st.sampled_from("abc"), st.booleans()), max_size=30
    )
)
def test_a_worse_node_is_told_of_at_most_once_for_each_fault_and_boot(
    history: list[tuple[str, str, bool]],
) -> None:
    cluster, boots = decided(fault()), 0
    for number, (code, gpu, reboots) in enumerate(history, 1):
        boots += reboots
        cluster.reboot("gpu-1", f"boot-{boots}")
        needs = {"79": "reboot", "48": "gpu-reset", "95": "fabric-reset"}[code]
        cluster.tick(
            later(60.0 * number, f"boot-{boots}", rule=f"xid.{code}", gpu=gpu, needs=needs),
            seconds=60.0 * number,
        )

    told = [each.incident for each in cluster.writes if each.event is EventReason.WORSENED]
    assert len({(each.key, each.last.boot_id) for each in told if each}) == len(told)


def test_unrepaired_is_an_unmet_fault_of_the_present_boot() -> None:
    cluster = decided(needing("gpu-reset"), fault(gpu="0000:9a:00"))
    state = cluster.nodes["gpu-1"]
    elsewhere = replace(state, machine=replace(state.machine, boot_id="boot-b"))
    test = decided(needing("reboot", Severity.TEST)).nodes["gpu-1"]
    person = operator_taint(node(), at=at(0), by="kim", reason="riser swap")
    assert person is not None
    assert person.record is not None

    assert [each.needs for each in unrepaired(state)] == ["reboot", "gpu-reset"], "the gravest first"
    assert unrepaired(elsewhere) == [], "the machine has rebooted, although nothing is recorded yet"
    assert unrepaired(met(state)) == []
    assert unrepaired(test) == []
    assert unrepaired(replace(node(), record=person.record)) == []
    assert unrepaired(decided(needing("none")).nodes["gpu-1"]) == []
    held = decided(fault(), rules=PolicyConfig(brake_max_nodes=0)).nodes["gpu-1"]
    assert len(unrepaired(held)) == 1


# Writes.


def test_a_release_removes_the_label() -> None:
    cluster = decided(fault())
    reset_node(cluster, "gpu-1", 60)
    assert label(cluster) is None

    cluster = decided(fault())
    cluster.untaint_by_hand("gpu-1")
    cluster.tick(seconds=60)
    assert label(cluster) is None


def test_a_persons_taint_sets_the_label() -> None:
    taint = operator_taint(node(), at=at(0), by="kim", reason="riser swap")

    assert taint is not None
    assert taint.needs is Needs.INSPECTION, "only that person knows what the node waits for"


def test_a_purge_removes_a_label_that_stands_alone() -> None:
    stray = replace(node(), as_read=replace(node().as_read, needs="reboot"))

    assert purge(node()) is None
    change = purge(stray)
    assert change is not None
    assert (change.verb, change.needs) == (Verb.PURGE, None)


def unlabelled(cluster: Cluster, needs: str | None = None) -> Cluster:
    """The cluster with another label on ``gpu-1``, as an earlier version or a person leaves it."""
    state = cluster.nodes["gpu-1"]
    cluster.nodes["gpu-1"] = replace(state, as_read=replace(state.as_read, needs=needs))
    return cluster


@pytest.mark.parametrize("before", [None, "gpu-reset"], ids=["after an upgrade", "changed by somebody"])
def test_a_wrong_label_is_written_again_without_haste(before: str | None) -> None:
    cluster = unlabelled(decided(fault()), before)

    [change] = cluster.tick(seconds=60).changes

    assert (change.verb, change.needs, change.upkeep, change.event) == (Verb.RECORD, "reboot", True, None)
    assert change.record == cluster.writes[0].record
    assert cluster.tick(seconds=61).changes == ()


def test_a_label_that_nothing_asks_for_is_removed() -> None:
    cluster = decided(fault())
    reset_node(cluster, "gpu-1", 60)

    [change] = unlabelled(cluster, "reboot").tick(seconds=120).changes

    assert (change.needs, change.upkeep) == (None, True)


def test_a_taint_is_no_upkeep() -> None:
    [tainted] = decided(fault()).writes

    assert not tainted.upkeep


def test_where_the_label_is_refused_no_write_is_made_for_it_and_others_leave_it_alone() -> None:
    cluster = unlabelled(decided(fault()), "gpu-reset")
    cluster.snapshot = replace(cluster.snapshot, labels_needs=False)

    assert cluster.tick(seconds=60).changes == ()
    [change] = cluster.tick(fault(gpu="0000:9a:00", seconds=70), seconds=70).changes
    assert change.needs == "gpu-reset"


# The advice follows the grounds.


def test_three_contained_errors_need_a_reset_of_the_gpu_and_no_restart_of_the_job() -> None:
    cluster = gpu_fleet(10)
    for number in range(3):
        cluster.tick(xid("gpu-1", 94, seconds=number * HOUR), seconds=number * HOUR + 1)

    [incident] = cluster.nodes["gpu-1"].record.incidents
    assert (label(cluster), incident.needs) == ("gpu-reset", "gpu-reset")
    for text in (incident.advice, cluster.writes[-1].message):
        assert "Restart the job" not in text


def test_no_built_in_escalation_leaves_the_node_with_the_need_of_a_job() -> None:
    catalog = load_catalog()
    escalations = {rule: each for rule, each in catalog.escalations.items() if each.longest_seconds}

    assert escalations
    for rule, escalation in escalations.items():
        assert Needs(escalation.needs) not in (Needs.NONE, Needs.APPLICATION_RESTART), rule


def replaced() -> Cluster:
    """A cluster whose ``gpu-1`` is marked for replacement."""
    cluster = Cluster(fleet(5))
    for number in range(3):
        seconds = number * 2 * HOUR
        cluster.tick(fault(stamp=1000 + seconds, seconds=seconds), seconds=seconds)
        if number < 2:
            reset_node(cluster, "gpu-1", seconds + HOUR)
    assert cluster.nodes["gpu-1"].record.life.replace_since is not None
    return cluster


def test_a_node_marked_for_replacement_is_never_told_to_reboot() -> None:
    cluster = replaced()
    marked = cluster.writes[-1]
    later = 5 * HOUR
    cluster.tick(fault(stamp=1000 + later, seconds=later, gpu="0000:9a:00"), seconds=later)
    state, second = cluster.nodes["gpu-1"], cluster.writes[-1]

    assert label(cluster) == "replacement"
    assert words(state) == "replacement (the node failed too often)"
    told = [marked.message, second.message, reset_node(cluster, "gpu-1", 6 * HOUR).message]
    for incident in state.record.incidents:
        if incident.state is IncidentState.ACTIVE:
            assert incident.needs == "replacement"
            told += [incident.advice, action_on(incident, state)[1]]
    assert len(told) == 7
    for text in told:
        assert "reboot" not in text.lower(), text


def test_a_record_of_an_earlier_version_does_not_tell_a_marked_node_to_reboot_either() -> None:
    state = replaced().nodes["gpu-1"]
    before = replace(state.record.incidents[-1], advice="Reboot the node.", needs="reboot")

    assert "reboot" not in action_on(before, state)[1].lower()


def test_a_reset_does_not_ask_for_a_reboot_that_met_the_need() -> None:
    cluster = decided(fault())
    cluster.nodes["gpu-1"] = met(cluster.nodes["gpu-1"])

    assert "reboot" not in reset_node(cluster, "gpu-1", 2 * HOUR).message.lower()
