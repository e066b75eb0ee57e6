"""The links that the controller itself must show: it runs, may write Nodes, reads Loki, hears nodes. Pure.

A doctor on a laptop can try none of this in the controller's place. The Lease says how the controller's own
attempts went; what it does not say yet is not known yet.
"""

from __future__ import annotations

from datetime import datetime

from konductor_like.catalog.user_rules import removed_names
from konductor_like.cli.columns import age_of, count
from konductor_like.cli.doctor.facts import Facts
from konductor_like.cli.doctor.link import (
    APPLY,
    APPLY_VALIDATION,
    Link,
    Unseen,
    after,
    broken,
    few,
    known,
    not_yet,
    ok,
    seen,
    warn,
)
from konductor_like.cli.session import ControllerReport
from konductor_like.cli.status.attempts import failing_alerts, failing_reads, unwritten_words
from konductor_like.cluster.preflight import account_of
from konductor_like.cluster.published import LOKI_NAMES
from konductor_like.model import CoverageState, Source
from konductor_like.model.attempts import Doing
from konductor_like.model.time import moment_of, stamp
from konductor_like.policy.recovery.guards import BY_FILE
from konductor_like.policy.wording import pause_words
from konductor_like.settings_report import removed

LATE_SECONDS = 40.0
"""Seconds by which Loki's last answer may be older than a poll interval: retries, a renewal of the Lease."""
RIGHTS_SECONDS = 900.0
"""Seconds for which the controller's own check of its rights counts; it checks them every few minutes."""
DEAF_SECONDS = 150.0
"""Seconds after which a new controller has heard every node: a beat, its way to Loki, and to the Lease."""


def gpu_nodes_of(facts: Facts) -> frozenset[str]:
    """Return the names of the GPU nodes; empty if the Nodes were not seen."""
    return frozenset(name for name, node in known(facts.nodes, {}).items() if node.is_gpu_node)


def configuration(facts: Facts) -> Link:
    """Check the settings and the rules of this shell, and the controller's for what this version removed."""
    found, theirs = seen(facts.configuration), removed(known(facts.configured, {}))
    for file, text in known(facts.rules_files, {}).items():
        theirs += removed_names(text, file)
    if problems := list(dict.fromkeys((*found.problems, *found.warnings, *theirs))):
        do = "konductor-like check-config shows all settings; the controller's are in its ConfigMap"
        return warn(problems[0], do, *problems[1:])
    return ok(f"good here, and so are the rules: {found.rules}")


def controller(facts: Facts) -> Link:
    """Check that a controller holds the Lease and may taint nodes."""
    lease = seen(facts.controller)
    namespace, pause = lease.namespace, lease.controls.pause
    if not lease.alive(facts.now):
        return _not_running(facts, lease, namespace)
    words = f"{lease.holder} holds the Lease {lease.lease}"
    if pause and pause.holds(facts.now):
        return warn(f"{pause_words(pause)}: no node is tainted", "konductor-like resume", words)
    if lease.policy.brake_max_nodes == 0:
        return warn(
            "KONDUCTOR_BRAKE_MAX_NODES is 0: the brake holds back every taint", _settings(lease), words
        )
    if lease.policy.recovery_by_file:
        do = f"kubectl -n {namespace} delete configmap konductor-like-recovery"
        return warn(f"KONDUCTOR_RECOVERY_FILE: {BY_FILE}", do, words)
    if lease.problem:
        return warn(f"a part of the Lease cannot be read: {lease.problem}", "konductor-like status")
    return ok(f"{words}, version {lease.program}" if lease.program else words)


def _not_running(facts: Facts, lease: ControllerReport, namespace: str) -> Link:
    details, do = tuple[str, ...](), _log(lease)
    if not isinstance(facts.deployments, Unseen):
        mine = (each for each in facts.deployments if each.namespace == namespace)
        deployment = next((each for each in mine if each.name == "konductor-like"), None)
        if deployment is None:
            why = "no controller is installed, or it runs outside the cluster"
            why = f"{_renewed(lease, facts.now)}; {why}" if lease.renewed else why
            return broken(why, APPLY, f"no Deployment konductor-like in namespace {namespace}")
        if "--dry-run" in deployment.arguments and deployment.ready:
            why = "the Deployment runs with --dry-run: it takes no Lease and taints no node"
            return warn(why, f"kubectl -n {namespace} edit deployment konductor-like")
        if not deployment.desired:
            do = f"kubectl -n {namespace} scale deployment/konductor-like --replicas=1"
            return broken("the Deployment konductor-like has 0 replicas", do)
        details = (f"Deployment: {deployment.ready} of {count(deployment.desired, 'pod')} ready",)
        if not deployment.ready:
            do = f"kubectl -n {namespace} describe deployment,pods"
    why = f"{_renewed(lease, facts.now)}: it is dead or stuck"
    if not lease.exists or lease.holder is None:
        nobody = f"nobody holds the Lease {lease.lease}"
        why = nobody if lease.exists else f"there is no Lease {lease.lease}: no controller ever ran"
    return broken(why, do, *details)


def is_outside(facts: Facts) -> bool:
    """Whether the controller that holds the Lease runs outside the cluster: there is no Deployment of it.

    Then it has the rights of the person who started it, and not the account of the manifests.
    """
    lease = known(facts.controller, None)
    if lease is None or not lease.alive(facts.now) or isinstance(facts.deployments, Unseen):
        return False
    places = {(each.namespace, each.name) for each in facts.deployments}
    return (lease.namespace, "konductor-like") not in places


def _renewed(lease: ControllerReport, now: datetime) -> str:
    when = f"{age_of(lease.renewed, now)} ago" if lease.renewed else "never"
    return f"{lease.holder} renewed the Lease {when}"


def _log(lease: ControllerReport) -> str:
    return f"kubectl -n {lease.namespace} logs deploy/konductor-like --tail=20"


def _settings(lease: ControllerReport) -> str:
    return f"kubectl -n {lease.namespace} get configmap konductor-like -o yaml"


def _running(facts: Facts) -> ControllerReport:
    """Return the Lease of a controller that runs. Raises Unseen."""
    lease = seen(facts.controller)
    if not lease.alive(facts.now):
        raise after("controller")
    return lease


def account(facts: Facts) -> Link:
    """Check that the controller can write Nodes, follows them, and has its rights."""
    lease = _running(facts)
    tried, acting, now = lease.attempts, facts.acting, facts.now
    may = f"{APPLY}; to look: kubectl auth can-i --list --as={account_of(lease.namespace)}"
    if failing := list(unwritten_words(tried, now)):
        return broken(failing[0], may, *failing[1:])
    nodes, rights = tried.of(Doing.NODES), tried.of(Doing.RIGHTS)
    if nodes.since is not None:
        return broken(f"it cannot follow the Nodes for {age_of(nodes.since, now)}: {nodes.error}", may)
    by_us = None if isinstance(acting, Unseen) or is_outside(facts) else acting
    missing = by_us.missing if by_us else rights.error
    if by_us and by_us.lacks:
        return broken(f"validations cannot run: {by_us.lacks}", APPLY_VALIDATION)
    if missing:
        who = "the controller" if is_outside(facts) else account_of(lease.namespace)
        tests = f" in namespace {lease.settings.validation_namespace}" if lease.settings else "?"
        lacking = missing.split(", ")
        if all(each.endswith(tests) for each in lacking):
            may = APPLY_VALIDATION
        return broken(f"{who} may not: {missing}", may)
    checked = rights.ok or rights.since
    if nodes.ok is None or checked is None or (now - checked).total_seconds() > RIGHTS_SECONDS:
        raise not_yet("the controller has not published whether it follows the Nodes and has its rights")
    how = "you tried its rights" if by_us else f"it checked its rights {age_of(checked, now)} ago"
    wrote = tried.of(Doing.WRITE).ok
    last = f"; its last write was {age_of(wrote, now)} ago" if wrote else "; it had nothing to write yet"
    return ok(f"it follows the Nodes; {how}{last}")


def reading(facts: Facts) -> Link:
    """Check that the controller's own queries of Loki go well, and have reached the present."""
    lease, now = _running(facts), facts.now
    if failing := list(failing_reads(lease.attempts, now)):
        do = f"check LOG_ENDPOINT, tenant and login: {_settings(lease)}; {_log(lease)}"
        return broken(failing[0], do, *failing[1:])
    if since := lease.unread_since(now):
        return broken(f"blind: kernel logs were read up to {stamp(since)} only", _log(lease))
    answered = lease.attempts.of(Doing.KERNEL).ok
    if Source.KERNEL not in lease.reached_ns or lease.coverage is None or answered is None:
        raise not_yet("the controller has not published how its queries of Loki went", _log(lease))
    interval_seconds = lease.settings.poll_interval_seconds if lease.settings else 5.0
    if (now - answered).total_seconds() > interval_seconds + LATE_SECONDS:
        raise not_yet(f"Loki last answered the controller {age_of(answered, now)} ago", _log(lease))
    if since := lease.unread_since(now, Source.POD):
        return warn(f"pod logs were read up to {stamp(since)} only", _log(lease))
    if words := failing_alerts(lease.attempts, now):
        return warn(f"alerts are {words}", _settings(lease), "page: docs/use/other-tools-alerts.md")
    if strange := lease.coverage.unparsed:
        lines, nodes = sum(each.lines for each in strange.values()), count(len(strange), "node")
        words = f"{count(lines, 'kernel line')} of {nodes} may report a fault and are not understood: "
        page = "page: docs/runbooks/KonductorLikeLinesNotUnderstood.md"
        return warn(words + few(strange), _log(lease), page)
    reached = age_of(moment_of(lease.reached_ns[Source.KERNEL]), now)
    told = f"kernel logs are read up to {reached} ago; Loki answered {age_of(answered, now)} ago"
    alerts = lease.attempts.of(Doing.ALERTS).ok
    return ok(f"{told}; Prometheus answered {age_of(alerts, now)} ago" if alerts else told)


def is_reading(facts: Facts) -> bool:
    """Whether the controller says that it reads the kernel logs up to the present."""
    try:
        return reading(facts).state != "broken"
    except Unseen:
        return False


def hearing(facts: Facts) -> frozenset[str]:
    """Return the GPU nodes that the controller hears. Raises Unseen while it is too young to tell."""
    if not is_reading(facts):
        raise after("reading")
    lease = seen(facts.controller)
    coverage, every = lease.coverage, gpu_nodes_of(facts)
    found = frozenset(name for name in every if coverage and coverage.of(name) is CoverageState.MEASURED)
    seconds, number = _leading_seconds(facts, lease), lease.attempts.heard
    still_new = len(found) < len(every) and seconds < DEAF_SECONDS
    if still_new or (number < len(found) and seconds < lease.stale_seconds):
        heard = f"{number} of {count(len(every), 'GPU node')}"
        raise not_yet(f"the controller leads for {seconds:.0f} s, and has heard {heard}")
    return found


def other_settings(facts: Facts) -> tuple[str, ...]:
    """Return a sentence for each setting of this shell with which the controller would ask Loki otherwise."""
    lease = known(facts.controller, None)
    theirs = lease.settings if lease else None
    if theirs is None or not theirs.kernel_selector:
        return ()
    pairs = {name: (getattr(facts.settings, name), getattr(theirs, name)) for name in LOKI_NAMES}
    return tuple(
        f"KONDUCTOR_{name.upper()} is {here or 'empty'} here, and {there or 'empty'} in the controller"
        for name, (here, there) in pairs.items()
        if here != there
    )


def is_deaf(facts: Facts) -> bool:
    """Whether the controller reads, has led for long enough, and hears no node at all."""
    lease = known(facts.controller, None)
    if lease is None or lease.attempts.heard or not is_reading(facts):
        return False
    return _leading_seconds(facts, lease) > DEAF_SECONDS


def _leading_seconds(facts: Facts, lease: ControllerReport) -> float:
    return (facts.now - lease.acquired).total_seconds() if lease.acquired else 0.0
