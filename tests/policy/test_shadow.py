"""What a rule on trial would have done is told on the node, once in each boot."""

from __future__ import annotations

from dataclasses import replace

import pytest

from konductor_like.cluster.events import about
from konductor_like.model import EventReason, Fault, FaultKind, NodeState, Severity, Source
from konductor_like.policy.shadow import shadow_event, would_taint
from tests.policy.scenes import fault, node


@pytest.mark.parametrize(
    ("state", "found", "expected"),
    [
        pytest.param(node(), fault(), True, id="a fatal kernel line"),
        pytest.param(node(gpu=False), fault(), True, id="a kernel line that proves a GPU"),
        pytest.param(node(gpu=False), fault(kind=FaultKind.AER), False, id="a node without a GPU"),
        pytest.param(node(opted_out=True), fault(), False, id="a node that is opted out"),
        pytest.param(replace(node(), selected=False), fault(), False, id="a node outside the selector"),
        pytest.param(node(), fault(severity=Severity.SUSPECT), False, id="a rule that only suspects"),
        pytest.param(node(), fault(source=Source.POD), False, id="text out of a pod"),
        pytest.param(node(), fault(before_install=True), False, id="a line from before the install"),
    ],
)
def test_it_would_have_tainted_where_the_same_rule_in_force_would(
    state: NodeState, found: Fault, expected: bool
) -> None:
    assert would_taint(state, found) is expected


def test_the_event_writes_nothing_and_says_which_rule_and_which_line() -> None:
    change = shadow_event(node(), fault())

    assert (change.record, change.event, change.act_id) == (None, EventReason.SHADOW, "")
    assert change.message.startswith("Would have tainted this node: xid.79 on GPU 0000:4e:00")
    assert change.message.endswith(f'Line: "{fault().finding.text}"')


def test_it_is_one_event_for_each_boot_however_often_its_line_comes() -> None:
    first, again = (about(shadow_event(node(), fault(seconds=n, stamp=n))) for n in (1, 2))
    next_boot = about(shadow_event(node(boot="boot-b"), fault(seconds=3)))
    other_gpu = about(shadow_event(node(), fault(gpu="0000:9a:00")))

    assert first == again
    assert len({first, next_boot, other_gpu}) == 3
