"""The links that Loki shows: login, limits, the kernel's stream, names, heartbeats, clocks. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from konductor_like.doctor.cluster_links import (
    NODES,
    clock_words,
    gpu_nodes_of,
    is_reading,
    without_reader,
)
from konductor_like.doctor.facts import Cause, Facts, Heard, Unseen
from konductor_like.doctor.link import Link, Named, ago, few, number, some_of, span
from konductor_like.model import CoverageState
from konductor_like.model.time import CLOCK_TRUSTED_SECONDS, CLOCKS_AGREE_SECONDS, stamp

LOKI, LOGIN, LIMITS = Named("Loki"), Named("tenant and login"), Named("limits")
STREAM, LABEL, NAMES = Named("kernel stream"), Named("node label"), Named("node names")
BEATS, WATCHED, CLOCKS = Named("heartbeats"), Named("namespaces"), Named("clocks")
RETENTION = Named("retention")
FORWARD = "kubectl -n loki port-forward svc/loki 3100, then LOG_ENDPOINT=http://localhost:3100"
_DAY_SECONDS = 86_400.0
_MESSAGE_BYTES = 4 << 20
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}


def _away(facts: Facts) -> Unseen | None:
    """Return why Loki cannot be asked from here; None if it answers."""
    return facts.labels if isinstance(facts.labels, Unseen) else None


def _by_proxy(facts: Facts) -> str:
    """Return the words for a fact that only the controller can see from where it runs."""
    return "not asked from here; the controller reads Loki" if is_reading(facts) else ""


def loki(facts: Facts) -> Link:
    """Check that Loki answers, from here or at least to the controller."""
    away = _away(facts)
    if away is None or away.cause is Cause.LOGIN:
        return LOKI.ok(f"{facts.expected.endpoint} answers")
    if not facts.expected.endpoint_given:
        also = "; the controller reads it" if is_reading(facts) else ""
        return LOKI.unknown(f"LOG_ENDPOINT is not set, and the default works only in a pod{also}", FORWARD)
    if is_reading(facts):
        words = f"{facts.expected.endpoint} does not answer here; the controller reads Loki"
        return LOKI.warn(words, away.do, [away.why])
    return LOKI.unseen(away)


def login(facts: Facts) -> Link:
    """Check that Loki accepts the tenant and the credentials."""
    away = _away(facts)
    if away is None:
        return LOGIN.ok("Loki accepts them")
    if away.cause is Cause.LOGIN:
        if "no org id" in away.why:
            do = "set KONDUCTOR_LOKI_TENANT here, and in the controller's settings"
            return LOGIN.broken("Loki has tenants, and no tenant is set (no org id)", do)
        return LOGIN.broken(away.why, away.do)
    return LOGIN.ok(words) if (words := _by_proxy(facts)) else LOGIN.after(LOKI)


def _not_asked(named: Named, facts: Facts, fact: object) -> Link | None:
    """Return the link if Loki was not asked, or did not answer; None if the fact was seen."""
    away = _away(facts)
    if away is not None and away.cause is Cause.LOGIN:
        return named.after(LOGIN)
    if away is not None:
        return named.unknown("Loki does not answer here")
    return named.unseen(fact) if isinstance(fact, Unseen) else None


def limits(facts: Facts) -> Link:
    """Check the limits that the controller's queries meet."""
    seen = facts.limits
    if (missing := _not_asked(LIMITS, facts, seen)) or isinstance(seen, Unseen):
        return missing or LIMITS.after(LOKI)
    problems = _low_limits(seen.config, facts.expected.timeout_seconds)
    if seen.refused_span:
        problems.append(("max_query_length", f"a query over one hour is refused: {seen.refused_span}"))
    if seen.entries is not None and seen.entries < 1000:
        problems.append(("max_entries_limit_per_query", f"a query returns {seen.entries} lines at most"))
    if problems:
        do = "change it in Loki's configuration (manifests/loki-values.yaml has the reasons)"
        name, why = problems[0]
        return LIMITS.warn(f"{name}: {why}", do, [f"{name}: {why}" for name, why in problems[1:]])
    most = seen.entries or facts.expected.entries
    details = [] if seen.config else ["Loki does not show its configuration; queries met no other limit"]
    return LIMITS.ok(f"{most} lines a query, one hour a query", details)


def _low_limits(config: Mapping[str, Any], timeout_seconds: float) -> list[tuple[str, str]]:
    """Return each limit of Loki's configuration that is too low, and why."""
    tenant, server = _table(config, "limits_config"), _table(config, "server")
    names = ("max_query_lookback", "reject_old_samples_max_age", "query_timeout")
    lookback, oldest, timeout = (seconds_of(tenant.get(name)) for name in names)
    sizes = [server.get(f"grpc_server_max_{way}_msg_size") for way in ("recv", "send")]
    problems = [
        (0 < lookback < _DAY_SECONDS, f"lines older than {span(lookback)} cannot be read after an outage"),
        (0 < oldest < _DAY_SECONDS, f"lines that arrive {span(oldest)} late are refused"),
        (timeout >= timeout_seconds, f"{span(timeout)} is not below KONDUCTOR_LOKI_TIMEOUT_SECONDS"),
    ]
    found = [(name, why) for name, (low, why) in zip(names, problems, strict=True) if low]
    if any(isinstance(size, int) and size < _MESSAGE_BYTES for size in sizes):
        found.append(("grpc_server_max_recv_msg_size and _send_", "less than 4 MiB: large answers fail"))
    return found


def stream(facts: Facts) -> Link:
    """Check that the kernel selector finds lines."""
    if _away(facts) is not None and (controller := is_reading(facts)) and controller.coverage is not None:
        heard = _measured(facts)
        if heard:
            every = number(len(gpu_nodes_of(facts)), "GPU node")
            return STREAM.ok(f"the controller hears {len(heard)} of {every}")
    if missing := _not_asked(STREAM, facts, facts.heard):
        return missing
    if isinstance(facts.heard, Heard) and (facts.heard.beats or facts.heard.nameless):
        return STREAM.ok(f"{facts.expected.kernel_selector} has heartbeats")
    selector = facts.expected.kernel_selector
    if _measured(facts):
        do = "set KONDUCTOR_KERNEL_SELECTOR and KONDUCTOR_EXTRA_MATCHERS as the controller has them"
        return STREAM.unknown(f"the controller hears nodes, and {selector} has no heartbeat", do)
    if facts.kernel_lines is True:
        do = "use the reader of manifests/dmesg_daemonset.yaml (docs/start/own-loki.md)"
        return STREAM.warn(f"{selector} has lines, and no heartbeat in the last minutes", do)
    do = "check KONDUCTOR_KERNEL_SELECTOR and KONDUCTOR_EXTRA_MATCHERS, then the collector's log"
    labels = [] if isinstance(facts.labels, Unseen) else [f"labels in Loki: {few(facts.labels) or 'none'}"]
    return STREAM.broken(f"{selector} has no line in the last hour", do, labels)


def _measured(facts: Facts) -> list[str]:
    """Return the GPU nodes that the controller hears."""
    controller = is_reading(facts)
    coverage = controller.coverage if controller else None
    if coverage is None:
        return []
    return sorted(name for name in gpu_nodes_of(facts) if coverage.of(name) is CoverageState.MEASURED)


def _heard(named: Named, facts: Facts) -> Link | Heard:
    """Return the heartbeats, or the link without them."""
    if missing := _not_asked(named, facts, facts.heard):
        return missing
    if isinstance(facts.heard, Unseen) or not (facts.heard.beats or facts.heard.nameless):
        return named.after(STREAM)
    return facts.heard


def label(facts: Facts) -> Link:
    """Check that heartbeats carry the node's name, as a label or as structured metadata."""
    heard, name = _heard(LABEL, facts), facts.expected.node_label
    if isinstance(heard, Link):
        return heard
    if not heard.beats:
        do = "set KONDUCTOR_NODE_LABEL to the label that has the node's name; the collector must set it"
        return LABEL.broken(f"no heartbeat has {name}", do, [f"they have: {few(heard.labels)}"])
    if heard.nameless:
        do = "let the collector on the node set it (docs/start/own-loki.md)"
        return LABEL.warn(f"{number(heard.nameless, 'heartbeat')} without {name}", do)
    kind = "a label" if _is_label(facts, name) else "structured metadata"
    return LABEL.ok(f"{name} is {kind}")


def _is_label(facts: Facts, name: str) -> bool:
    return not isinstance(facts.labels, Unseen) and name in facts.labels


def _strangers(facts: Facts, heard: Heard) -> dict[str, str]:
    """Return, by each name on heartbeats that no Node has, the GPU node that is most likely meant."""
    if isinstance(facts.nodes, Unseen):
        return {}
    silent = gpu_nodes_of(facts) - set(heard.beats)
    return {name: _meant(name, silent) for name in sorted(heard.beats) if name not in facts.nodes}


def _meant(name: str, silent: Iterable[str]) -> str:
    low = name.lower()
    for node in sorted(silent, key=len, reverse=True):
        short = node.partition(".")[0]
        if low in (node, short) or low.partition(".")[0] == short or low.endswith((f"/{node}", f"-{node}")):
            return node
    return ""


def names(facts: Facts) -> Link:
    """Check that the names on heartbeats are names of Nodes."""
    heard = _heard(NAMES, facts)
    if isinstance(heard, Link):
        return heard
    if isinstance(facts.nodes, Unseen):
        return NAMES.unseen(facts.nodes)
    strangers = _strangers(facts, heard)
    meant = {name: node for name, node in strangers.items() if node}
    if meant:
        name, node = next(iter(meant.items()))
        do = "let the collector set the name that `kubectl get nodes` prints"
        details = [f"{other} is on lines, {its} is the Node" for other, its in list(meant.items())[1:5]]
        return NAMES.broken(f"the lines say {name}, the Node is {node}", do, details)
    if strangers:
        do = "nothing, if these nodes were just deleted, or set KONDUCTOR_EXTRA_MATCHERS for a shared Loki"
        return NAMES.warn(f"no Node has the name on heartbeats of {few(strangers)}", do)
    return NAMES.ok(f"all {len(heard.beats)} names on heartbeats are names of Nodes")


def beats(facts: Facts) -> Link:
    """Check that every GPU node with a reader is heard; a stranger's name explains a silent node."""
    every = gpu_nodes_of(facts)
    if _away(facts) is not None and (measured := _measured(facts)):
        return _silence(facts, every, set(measured), "the controller hears")
    heard = _heard(BEATS, facts)
    if isinstance(heard, Link):
        return heard
    if not every:
        return BEATS.after(NODES)
    if not heard.beats:
        return BEATS.after(LABEL)
    known = set(heard.beats) | set(_strangers(facts, heard).values())
    if not heard.complete and every - known:
        return BEATS.unknown("too many heartbeats to read in this time", "konductor-like status")
    return _silence(facts, every, known, "heard in the last minutes:")


def _silence(facts: Facts, every: frozenset[str], heard: set[str], words: str) -> Link:
    excused = without_reader(facts)
    silent = sorted(every - heard - excused)
    if silent:
        do = f"konductor-like explain KernelLogSilent; kubectl get node {silent[0]}"
        return BEATS.broken(f"no heartbeat from {some_of(silent, len(every), 'GPU node')}", do)
    without = [f"without a reader: {few(excused - heard)}"] if excused - heard else []
    return BEATS.ok(f"{words} {number(len(every & heard), 'GPU node')}", without)


def watched(facts: Facts) -> Link:
    """Check that each watched namespace has a stream."""
    if missing := _not_asked(WATCHED, facts, facts.streams):
        return missing
    if isinstance(facts.streams, Unseen):
        return WATCHED.unseen(facts.streams)
    wanted = watched_namespaces(facts)
    silent = [name for name in wanted if name not in facts.streams]
    running = {} if isinstance(facts.running, Unseen) else facts.running
    broken = [name for name in silent if running.get(name)]
    do = "let the collector ship these namespaces, or correct WATCHED_NAMESPACES"
    if broken:
        return WATCHED.broken(f"pods run there, and Loki has no line: {few(broken)}", do)
    if unclear := [name for name in silent if name not in running]:
        return WATCHED.warn(f"Loki has no line of {few(unclear)}; normal if no pod runs there", do)
    idle = f", no pod runs in {few(silent)}" if silent else ""
    return WATCHED.ok(f"lines arrive from {len(wanted) - len(silent)} of {len(wanted)}{idle}")


def watched_namespaces(facts: Facts) -> tuple[str, ...]:
    """Return the namespaces to look for: those of the controller, else those of this command."""
    if isinstance(facts.controller, Unseen) or facts.controller.namespaces is None:
        return plain_names(facts.expected.namespaces)
    return plain_names(facts.controller.namespaces)


def plain_names(namespaces: Iterable[str]) -> tuple[str, ...]:
    """Return the names among watched namespaces; a pattern such as ``team-*`` has no stream of its own."""
    return tuple(name for name in namespaces if re.fullmatch(r"[a-z0-9-]+", name))


def clocks(facts: Facts) -> Link:
    """Check the clocks of this machine, of the API server, of Loki and of the nodes."""
    if isinstance(facts.cluster, Unseen) and _away(facts) is not None:
        return CLOCKS.unknown("neither the API server nor Loki answers")
    server = 0.0 if isinstance(facts.cluster, Unseen) else facts.cluster.ahead_seconds
    theirs = server if _away(facts) is not None else facts.loki_ahead_seconds
    if isinstance(facts.heard, Heard):
        lokis = facts.now + timedelta(seconds=theirs - server)
        offs = {name: (beat.wall - lokis).total_seconds() for name, beat in facts.heard.beats.items()}
        fast = {name: off for name, off in offs.items() if off >= CLOCKS_AGREE_SECONDS}
        if fast:
            worst = max(fast, key=lambda name: fast[name])
            words = f"the clock of {worst} is {clock_words(fast[worst])}"
            details = [f"also: {few(set(fast) - {worst})}"] if len(fast) > 1 else []
            do = "check NTP on that node: `chronyc tracking`; Loki refuses lines that are 10 minutes ahead"
            return CLOCKS.warn(words, do, details)
    if not isinstance(facts.cluster, Unseen) and abs(server - theirs) >= CLOCKS_AGREE_SECONDS:
        words = f"Loki's clock is {clock_words(theirs - server)}, compared with the API server's"
        do = "check NTP on the node of Loki and on the control plane"
        far = abs(server - theirs) > CLOCK_TRUSTED_SECONDS
        return CLOCKS.broken(words, do) if far else CLOCKS.warn(words, do)
    if abs(theirs) >= CLOCKS_AGREE_SECONDS:
        words = f"this machine's clock is {clock_words(-theirs)}; the cluster's clocks agree"
        return CLOCKS.warn(words, "correct the clock of this machine: ages in this output are wrong")
    seen = ["this machine"] if isinstance(facts.cluster, Unseen) else ["this machine", "the API server"]
    seen += [] if _away(facts) else ["Loki", "the nodes"]
    return CLOCKS.ok(f"{', '.join(seen)} agree within 10 s")


def retention(facts: Facts) -> Link:
    """Check that Loki keeps lines for a day, for which the controller looks back."""
    if missing := _not_asked(RETENTION, facts, facts.oldest_beat):
        return missing
    config = {} if isinstance(facts.limits, Unseen) else facts.limits.config
    if config:
        period = seconds_of(_table(config, "limits_config").get("retention_period"))
        deletes = _table(config, "compactor").get("retention_enabled") is True
        do = "raise limits_config.retention_period to 24h or more"
        if deletes and period and period < _DAY_SECONDS:
            return RETENTION.warn(f"Loki deletes lines after {span(period)}; the controller reads a day", do)
        return RETENTION.ok(
            f"Loki keeps lines {f'for {span(period)}' if deletes and period else 'without end'}"
        )
    oldest = facts.oldest_beat
    if isinstance(oldest, Unseen) or oldest is None:
        return RETENTION.after(STREAM)
    age = (facts.now - oldest).total_seconds()
    started = None if isinstance(facts.controller, Unseen) else facts.controller.started
    if age >= _DAY_SECONDS - 3600:
        return RETENTION.ok("a day or more: the oldest heartbeat of the last day is there")
    if started is not None and (facts.now - started).total_seconds() > age + 3600:
        words = (
            f"the controller started {ago(started, facts.now)}, the oldest heartbeat is of {stamp(oldest)}"
        )
        return RETENTION.warn(words, "raise limits_config.retention_period to 24h or more")
    return RETENTION.ok(f"the oldest heartbeat is {span(age)} old, as old as the installation")


def _table(config: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = config.get(name)
    return found if isinstance(found, Mapping) else {}


def seconds_of(duration: object) -> float:
    """Return the seconds of ``24h``, ``30d1h`` or ``1m0s``; 0 for anything else, and for no limit."""
    if not isinstance(duration, str):
        return 0.0
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|[smhdwy])", duration)
    return sum(float(value) * _UNITS[unit] for value, unit in parts)
