"""``konductor-like test`` with the real controller: each stage comes, or the command names it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from konductor_like.cli.chain_test import chain
from konductor_like.cli.chain_test.chain import EndOfTest
from konductor_like.cli.chain_test.forecast import GPU as TEST_GPU
from konductor_like.cluster.api.errors import KubeUnavailable
from konductor_like.cluster.reader_pods import DEVICE, WRITE
from konductor_like.loki.query.client import LokiClient
from konductor_like.model import NodeState
from konductor_like_sandbox.kmsg import written_by
from konductor_like_sandbox.kubernetes import matching, refusal
from konductor_like_sandbox.kubernetes.exec import Command, Outcome
from konductor_like_sandbox.kubernetes.fleet import make_fleet, make_reader_pod, reader_pod_name
from tests.scenarios.conftest import Opens
from tests.scenarios.site import Printed, Site
from tests.scenarios.words import GPU, LOST, gpu

NODE, OTHER = gpu(2), gpu(3)
Runs = Callable[[Command], Outcome]


@dataclass
class Stand:
    """A site whose nodes have a reader's pod; ``sleep`` is what the command does between two looks."""

    site: Site
    monkeypatch: pytest.MonkeyPatch

    def test(self, *options: str, runs: Runs | None = None) -> Printed:
        """Run ``konductor-like test``."""
        self.site.kube.exec.run = runs or self.write
        return self.site.cli("test", NODE, "--timeout", "60", *options)

    def write(self, asked: Command, shipped_as: str = NODE) -> Outcome:
        """Run the command in the node's pod: what it writes goes into the node's kernel log."""
        assert (asked.pod, tuple(asked.words[:-1])) == (reader_pod_name(NODE), WRITE)
        self.site.write(NODE, written_by(asked.words, DEVICE), shipped_as=shipped_as)
        return Outcome()

    def while_waiting(self, do: Callable[[float], object]) -> None:
        self.monkeypatch.setattr(chain, "sleep", do)


@pytest.fixture
def stand(site_of: Opens, monkeypatch: pytest.MonkeyPatch) -> Stand:
    site = site_of(make_fleet(6))
    for name in site.names:
        site.kube.put_pod(make_reader_pod(name))
    site.hearts()
    site.run(120, step_seconds=20)
    monkeypatch.setattr(chain, "monotonic", lambda: site.clock.true_ns / 1e9)
    monkeypatch.setattr(chain, "LOOK_SECONDS", 5.0)
    stand = Stand(site, monkeypatch)
    stand.while_waiting(site.run)
    return stand


@pytest.fixture
def loki(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loki is reachable for the command."""
    stand.site._exits.enter_context(stand.site.loki)
    monkeypatch.setenv("LOG_ENDPOINT", stand.site.loki.url)
    monkeypatch.setattr(LokiClient, "now_ns", lambda _: stand.site.clock.true_ns)


@pytest.mark.usefixtures("loki")
def test_the_line_passes_every_stage_and_the_test_is_released(stand: Stand) -> None:
    done = stand.test()

    assert done.code == 0, done.err
    assert done.lines == [
        f"node/{NODE} Xid 14 written to its kernel log by pod {reader_pod_name(NODE)}",
        f"node/{NODE} in Loki after 5.0 s",
        f"node/{NODE} tainted after 5.0 s",
        f"node/{NODE} Event GPUFaultTainted after 5.0 s",
        f"node/{NODE} untainted: the test has ended",
    ]
    assert done.err == ""
    stand.site.run(120, step_seconds=20)
    assert stand.site.tainted == set()
    assert stand.site.record(NODE).releases[0].reason == "test of the alarm chain"
    assert stand.test("--yes", "--reason", "new pager").code == 0  # a second test of the same node
    assert stand.site.record(NODE).releases[0].reason == "new pager"


def test_a_kept_taint_stays_until_a_reset(stand: Stand) -> None:
    done = stand.test("--keep")

    assert (done.code, stand.site.tainted) == (0, {NODE})
    hint = f"`konductor-like reset {NODE}` releases the node; the test ends by itself after 1h"
    assert hint in done.err
    assert f"node/{NODE} in Loki: not looked at: LOG_ENDPOINT is not set here" in done.lines
    stand.site.run(180, step_seconds=20)
    assert stand.site.tainted == {NODE}
    assert stand.site.cli("reset", NODE).code == 0
    assert stand.site.tainted == set()


def test_a_real_fault_meanwhile_keeps_its_taint(stand: Stand) -> None:
    stand.site.kernel(NODE, LOST, at=1)

    done = stand.test()

    assert done.code == 0
    assert f"the test has ended; the taint stays, for xid 79 on GPU {GPU}" in done.out
    assert stand.site.tainted == {NODE}


def nowhere(_: Stand) -> Runs:
    return lambda _: Outcome()


def to_a_dead_controller(stand: Stand) -> Runs:
    stand.site.kill()
    stand.while_waiting(stand.site.advance)
    return stand.write


def without_events(stand: Stand) -> Runs:
    stand.site.kube.access.deny("create", "events")
    return stand.write


def without_an_answer(_: Stand) -> Runs:
    return lambda _: Outcome(hangs_up=True)


@pytest.mark.usefixtures("loki")
@pytest.mark.parametrize(
    ("breaks", "missing", "says"),
    [
        (nowhere, ["in Loki", "tainted", "Event GPUFaultTainted"], "Loki has no such line"),
        (to_a_dead_controller, ["tainted", "Event GPUFaultTainted"], "the controller has read kernel"),
        (without_events, ["Event GPUFaultTainted"], "there is no Event about the test's taint"),
        (without_an_answer, ["in Loki", "tainted", "Event GPUFaultTainted"], "may never have been written"),
    ],
)  # fmt: skip
def test_a_stage_that_does_not_come_is_named_and_nothing_stays(
    breaks: Callable[[Stand], Runs], missing: list[str], says: str, stand: Stand
) -> None:
    done = stand.test(runs=breaks(stand))

    assert done.code == 3
    assert [line.split(": ")[0] for line in done.err.splitlines() if "not within 60 s" in line] == [
        f"node/{NODE} {stage}" for stage in missing
    ]
    assert says in done.err
    assert "docs/use/test-a-node.md" in done.err
    assert stand.site.tainted == set()


@pytest.mark.usefixtures("loki")
def test_a_line_under_another_node_name_is_said(stand: Stand) -> None:
    done = stand.test(runs=lambda asked: stand.write(asked, shipped_as="gpu-else"))

    assert done.code == 3
    assert "Loki has the line under the node name 'gpu-else' (k8s_node_name)" in done.err


def test_an_answer_that_is_lost_does_not_end_the_test(stand: Stand) -> None:
    def written_and_lost(asked: Command) -> Outcome:
        stand.write(asked)
        return Outcome(hangs_up=True)

    done = stand.test(runs=written_and_lost)

    assert done.code == 0
    assert "whether the line was written is not known, so the test goes on" in done.err
    assert stand.site.tainted == set()


def interrupt(_: Stand) -> None:
    raise KeyboardInterrupt


def close_the_output(stand: Stand, *streams: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    closed = stand.site._exits.enter_context(os.fdopen(writing, "w", buffering=1))
    for stream in streams or ("stdout", "stderr"):
        stand.monkeypatch.setattr(sys, stream, closed)


def close_the_terminal(stand: Stand) -> None:
    close_the_output(stand)
    signal.raise_signal(signal.SIGHUP)


ENDS = pytest.mark.parametrize(
    ("does", "code", "says"),
    [
        (interrupt, 130, "interrupted"),
        (lambda _: signal.raise_signal(signal.SIGTERM), 128 + signal.SIGTERM, "interrupted"),
        (close_the_terminal, 128 + signal.SIGHUP, ""),
        (close_the_output, 3, ""),
        (lambda stand: close_the_output(stand, "stdout"), 3, "interrupted"),
    ],
    ids=["Ctrl-C", "SIGTERM", "closed terminal", "|& head -1", "| head -1"],
)


@ENDS
def test_an_end_before_the_last_stage_releases_what_was_tainted(
    stand: Stand, does: Callable[[Stand], None], code: int, says: str
) -> None:
    def wait_and_end(_: float) -> None:
        stand.site.run(10)
        assert stand.site.tainted == {NODE}
        does(stand)

    before = signal.getsignal(signal.SIGTERM)
    stand.while_waiting(wait_and_end)

    done = stand.test()

    assert done.code == code
    assert says in done.err
    assert stand.site.tainted == set()
    assert "GPUNodeReturned" in {event["reason"] for event in stand.site.kube.objects("events")}
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.usefixtures("loki")
@ENDS
def test_an_end_before_the_record_waits_for_the_record_and_releases_the_test(
    stand: Stand, does: Callable[[Stand], None], code: int, says: str
) -> None:
    def wait(span_seconds: float) -> None:
        stand.while_waiting(wait_for_the_record)
        stand.site.advance(span_seconds)  # the line is in Loki, and nobody has read it
        does(stand)

    def wait_for_the_record(span_seconds: float) -> None:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGHUP)
        stand.site.run(span_seconds)

    stand.while_waiting(wait)

    done = stand.test()

    assert done.code == code
    assert says in done.err
    assert "GPUFaultTainted" in {event["reason"] for event in stand.site.kube.objects("events")}
    assert stand.site.tainted == set()
    stand.site.run(60)
    assert stand.site.tainted == set()


def test_ctrl_c_again_while_the_record_is_awaited_ends_the_command_at_once(stand: Stand) -> None:
    waits: list[float] = []

    def interrupt_each(span_seconds: float) -> None:
        waits.append(span_seconds)
        raise KeyboardInterrupt

    stand.while_waiting(interrupt_each)

    done = stand.test(runs=lambda _: Outcome())

    assert (done.code, len(waits)) == (130, 2)
    assert "interrupted: waits up to 10 s for the test's record, to release it; Ctrl-C ends this" in done.err
    assert done.err.endswith("releases the node; the test ends by itself after 2m\n")


@pytest.mark.parametrize("before", [lambda _: None, interrupt], ids=["whole", "interrupted"])
def test_no_signal_stops_the_release(stand: Stand, before: Callable[[Stand], None]) -> None:
    carry_out = EndOfTest.carry_out

    def signalled(reset: EndOfTest, states: list[NodeState]) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.raise_signal(number)
        carry_out(reset, states)

    def wait(_: float) -> None:
        stand.site.run(10)
        before(stand)

    stand.monkeypatch.setattr(EndOfTest, "carry_out", signalled)
    stand.while_waiting(wait)
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]

    stand.test()

    assert stand.site.tainted == set()
    assert "GPUNodeReturned" in {event["reason"] for event in stand.site.kube.objects("events")}
    assert handlers == [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]


def test_a_test_that_somebody_released_is_not_taken_for_the_reason_of_the_taint(stand: Stand) -> None:
    def fail_and_release(_: float) -> None:
        stand.site.run(10)
        assert stand.site.cli("reset", NODE).code == 0
        stand.site.kernel(NODE, LOST)
        stand.site.run(10)

    stand.while_waiting(fail_and_release)

    done = stand.test()

    assert done.code == 3
    assert f"node/{NODE} tainted: the test ended before its taint was seen: it was released" in done.err
    assert stand.site.tainted == {NODE}


def test_a_line_that_was_read_too_late_is_said(stand: Stand) -> None:
    def wait(span_seconds: float) -> None:
        stand.site.advance(125)
        stand.site.run(span_seconds)

    stand.while_waiting(wait)

    done = stand.test("--timeout", "600")

    assert done.code == 3
    assert "its line was more than two minutes old when it was read" in done.err
    assert stand.site.tainted == set()


ANOTHER = f"NVRM: Xid (PCI:{TEST_GPU}): 14, konductor-like test 0ther1\n"


def test_two_tests_of_one_node_at_once_do_not_end_each_other(stand: Stand) -> None:
    def after_another(asked: Command) -> Outcome:
        stand.site.write(NODE, ANOTHER)
        return stand.write(asked)

    done = stand.test(runs=after_another)

    assert done.code == 3
    assert f"node/{NODE} tainted: another test of the node ran at the same time, begun at 2026" in done.err
    assert "not within" not in done.err
    assert "hint: no fault of the test is recorded. If the line comes late, it taints the node; `" in done.err
    assert stand.site.tainted == {NODE}  # the other command releases it, or the controller
    [incident] = stand.site.record(NODE).incidents
    assert "0ther1" in incident.evidence

    done = stand.test()

    assert done.code == 1
    assert "not tested: another test of it is running, begun at 2026" in done.err


def test_a_test_that_another_ones_release_covers_says_so(stand: Stand) -> None:
    def after_another(asked: Command) -> Outcome:
        stand.site.write(NODE, ANOTHER)
        return stand.write(asked)

    def release(span_seconds: float) -> None:
        stand.while_waiting(stand.site.run)
        stand.site.run(span_seconds)
        stand.site.cli("reset", NODE)

    stand.while_waiting(release)

    done = stand.test(runs=after_another)

    assert (done.code, stand.site.tainted) == (3, set())
    assert "another test of the node ran at the same time" in done.err


def test_a_test_whose_release_is_refused_says_how_to_release_it(stand: Stand) -> None:
    def wait_and_deny(span_seconds: float) -> None:
        stand.site.run(span_seconds)
        if stand.site.tainted:
            stand.site.kube.access.deny("patch", "nodes")

    stand.while_waiting(wait_and_deny)

    done = stand.test()

    assert done.code == 3
    assert f"`konductor-like reset {NODE}` releases the node" in done.err


def test_a_test_that_cannot_be_released_because_the_api_server_fails_says_how_to_release_it(
    stand: Stand,
) -> None:
    def wait_and_fail(span_seconds: float) -> None:
        stand.site.run(span_seconds)
        stand.monkeypatch.setattr(EndOfTest, "named", unavailable)

    stand.while_waiting(wait_and_fail)

    done = stand.test()

    assert done.code == 3
    assert f"node/{NODE} was not released: etcd has no leader" in done.err
    assert f"`konductor-like reset {NODE}` releases the node" in done.err


def unavailable(*_: object) -> None:
    raise KubeUnavailable("etcd has no leader")


COMMANDED = f"NVRM: Xid (PCI:{TEST_GPU}): 14, konductor-like test a1b2c3"


def test_a_test_whose_command_was_killed_ends_after_two_minutes(stand: Stand) -> None:
    stand.site.write(NODE, f"{COMMANDED}\n")
    stand.site.run(110)
    assert stand.site.tainted == {NODE}

    stand.site.run(20)

    assert stand.site.tainted == set()
    [event] = stand.site.told("GPUFaultEnded")
    assert event["message"].startswith(f"xid 14 on GPU {TEST_GPU} ended: a test ends by itself.")


def test_a_test_that_was_left_while_no_controller_ran_ends_with_the_next_controller(stand: Stand) -> None:
    stand.site.write(NODE, f"{COMMANDED}\n")
    stand.site.run(30)
    assert stand.site.tainted == {NODE}
    stand.site.kill()
    stand.site.write(OTHER, f"{COMMANDED}\n")
    stand.site.advance(600)

    stand.site.start()
    stand.site.run(10)

    assert stand.site.tainted == set()
    assert [event["involvedObject"]["name"] for event in stand.site.told("GPUFaultTainted")] == [NODE]


def test_a_line_that_the_kernel_shows_late_taints_for_two_minutes_at_most(stand: Stand) -> None:
    stand.site.write(NODE, COMMANDED)  # as old versions of the command did
    stand.site.run(600, step_seconds=20)
    assert stand.site.tainted == set()
    stand.site.kernel(NODE, "usb 1-1: new high-speed USB device number 2")
    stand.site.run(60)
    assert stand.site.tainted == {NODE}

    stand.site.run(70)

    assert stand.site.tainted == set()


def test_a_pod_that_is_deleted_meanwhile_writes_nothing(stand: Stand) -> None:
    stand.site.kube.mishaps.add(refusal(404), when=matching(path="/exec$"))

    done = stand.test()

    assert (done.code, stand.site.tainted) == (1, set())
    assert "could not find the requested resource" in done.err


def test_the_output_of_a_pod_that_cannot_write_is_made_harmless(stand: Stand) -> None:
    done = stand.test(runs=lambda _: Outcome(1, stderr=b"\x1b]0;owned\x07Permission denied\n" * 200))

    assert done.code == 1
    assert "cannot write to /dev/kmsg: " in done.err
    assert "\x1b" not in done.err
    assert len(done.err) < 1000
