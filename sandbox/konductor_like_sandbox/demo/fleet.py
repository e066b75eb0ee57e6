"""The story of a large fleet: a job dies on all its nodes, single nodes fail, a row of nodes fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import cycle

from konductor_like_sandbox.demo.jobs import NAMESPACE, Job
from konductor_like_sandbox.demo.stage import RunningController, Stage
from konductor_like_sandbox.demo.story import XID_79, Step
from konductor_like_sandbox.demo.xids import xid_message

_FATAL_XIDS = (119, 95, 64, 48)
_SUSPECT_XIDS = (63, 94)
_OUT_MOST = 24
"""The brake's limit of a large fleet: a status of it fits a screen."""


def settings_of(gpu_nodes: int) -> dict[str, str]:
    """Return the controller's settings for a fleet of this size."""
    return {"KONDUCTOR_BRAKE_MAX_NODES": str(_out_most(gpu_nodes)), "WATCHED_NAMESPACES": NAMESPACE}


def steps(controller: RunningController, stage: Stage) -> Iterator[Step]:
    """Return the steps in order."""
    nodes, limit = stage.gpu_nodes, _out_most(len(stage.gpu_nodes))
    row = nodes[-limit:]
    job = stage.jobs[0] if stage.jobs else Job("", ())
    busy = sum(len(job.nodes) for job in stage.jobs)
    others = [name for name in nodes[: busy or None] if name not in (*job.nodes, *row)]
    spread = others[:: len(others) // (2 * (limit // 3))]
    fatal, suspect = spread[: limit // 3], spread[limit // 3 : 2 * (limit // 3)]
    alone = {job.nodes[len(job.nodes) // 3]} if job.nodes else set()
    singles = alone | set(fatal)
    yield Step(
        f"The controller starts; {len(nodes)} GPU nodes are healthy"
        + (f", and {len(stage.jobs)} jobs run on {busy} of them." if stage.jobs else "."),
        lambda _stage: None,
        lambda stage: any("Reading Loki" in line for line in controller.log) and stage.heard() == set(nodes),
        lambda _stage, seconds: f"it hears every kernel log, {seconds:.1f} s after its start",
        never=lambda stage: bool(_out(stage)),
    )
    if job.nodes:
        [root] = alone
        yield Step(
            f"{root}: a GPU falls off the bus (Xid 79), and {job.name} dies on its {len(job.nodes)} nodes.",
            lambda stage: _kill(stage, job, root),
            lambda stage: _out(stage) == {root} and _collateral(stage) == set(job.nodes) - {root},
            lambda stage, seconds: (
                f"{root} is tainted as the root cause; {len(_collateral(stage))} nodes are collateral and "
                f"stay in service, {seconds:.1f} s after the line reached Loki"
            ),
            never=lambda stage: bool(_out(stage) - alone),
        )
    yield Step(
        f"Faults of single nodes: {len(fatal)} fatal (Xid 48, 64, 95, 119), {len(suspect)} not (Xid 63, 94).",
        lambda stage: _single(stage, fatal, suspect),
        lambda stage: _out(stage) == singles and _in_state(stage, "suspect") >= set(suspect),
        lambda _stage, _seconds: f"tainted: {len(fatal)} more; suspect and in service: {len(suspect)}",
        never=lambda stage: bool(_out(stage) - singles),
    )
    yield Step(
        f"{row[0]} to {row[-1]}: a power failure takes the GPUs of {len(row)} nodes.",
        lambda stage: _write(stage, row, (79,)),
        lambda stage: _out(stage) | _in_state(stage, "held") == singles | set(row),
        lambda stage, _seconds: (
            f"out of service: {len(_out(stage))}; held back by the brake and listed: "
            f"{len(_in_state(stage, 'held'))}"
        ),
        never=lambda stage: bool(_out(stage) - singles - set(row)),
    )


def _out_most(gpu_nodes: int) -> int:
    return min(max(4, gpu_nodes // 25), _OUT_MOST)


def _out(stage: Stage) -> set[str]:
    return {node.name for node in stage.nodes() if node.tainted}


def _in_state(stage: Stage, health: str) -> set[str]:
    return {node.name for node in stage.nodes() if node.health == health}


def _collateral(stage: Stage) -> set[str]:
    return {node.name for node in stage.nodes() if node.collateral and not node.tainted}


def _kill(stage: Stage, job: Job, root: str) -> None:
    stage.kernel(root, XID_79)
    stage.fail_job(job)


def _single(stage: Stage, fatal: Sequence[str], suspect: Sequence[str]) -> None:
    _write(stage, fatal, _FATAL_XIDS)
    _write(stage, suspect, _SUSPECT_XIDS)


def _write(stage: Stage, names: Sequence[str], codes: Sequence[int]) -> None:
    """Write an Xid to the kernel log of each node, with these codes in turn."""
    for name, code in zip(names, cycle(codes), strict=False):
        stage.kernel(name, xid_message(code, "0000:1b:00"))
