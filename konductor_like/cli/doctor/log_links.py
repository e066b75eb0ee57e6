"""The links that Loki shows: login, limits, the kernel's stream, names, heartbeats, clocks. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from datetime import timedelta
from urllib.parse import urlsplit

from konductor_like.cli.columns import age, age_of, count
from konductor_like.cli.doctor import foreign_links
from konductor_like.cli.doctor.cluster_links import without_reader
from konductor_like.cli.doctor.controller_links import (
    gpu_nodes_of,
    hearing,
    is_deaf,
    is_reading,
    other_settings,
)
from konductor_like.cli.doctor.facts import Facts, Heard, Limits, silent
from konductor_like.cli.doctor.foreign import HEARTBEATS, Foreign, Sample
from konductor_like.cli.doctor.link import (
    Link,
    State,
    Unseen,
    after,
    broken,
    few,
    known,
    not_yet,
    ok,
    seen,
    some_of,
    warn,
)
from konductor_like.loki.query.logql import kernel_matchers
from konductor_like.loki.query.logql import selector as selector_of
from konductor_like.model.attempts import Doing
from konductor_like.model.time import CLOCK_TRUSTED_SECONDS, CLOCKS_AGREE_SECONDS, moment_of, stamp

FORWARD = "kubectl -n loki port-forward svc/loki 3100, then LOG_ENDPOINT=http://localhost:3100"
_DAY_SECONDS = 86_400.0
_KEEP = "raise limits_config.retention_period to 24h or more"
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800, "y": 31_536_000}


def _away(facts: Facts) -> Unseen | None:
    """Return why Loki cannot be asked from here; None if it answers."""
    return facts.labels if isinstance(facts.labels, Unseen) else None


def loki(facts: Facts) -> Link:
    """Check that Loki answers, from here or at least to the controller."""
    away, address = _away(facts), urlsplit(facts.settings.log_endpoint)
    endpoint = f"{address.scheme}://{address.netloc.rpartition('@')[2]}{address.path}"
    if away is None or away.refused:
        return ok(f"{endpoint} answers")
    if "log_endpoint" not in facts.settings.model_fields_set:
        also = f"; {_answered(facts)}" if is_reading(facts) else ""
        raise Unseen(f"LOG_ENDPOINT is not set, and the default works only in a pod{also}", FORWARD)
    if is_reading(facts):
        do = f"run `konductor-like doctor` again in 30 seconds: an outage shows by then. {away.do}"
        return warn(f"no Loki answers here at {endpoint}; {_answered(facts)}", do, str(away))
    raise away


def _answered(facts: Facts) -> str:
    answered = seen(facts.controller).attempts.of(Doing.KERNEL).ok
    return f"Loki answered the controller {age_of(answered or facts.now, facts.now)} ago"


def login(facts: Facts) -> Link:
    """Check that Loki accepts the tenant and the credentials."""
    away = _away(facts)
    if away is None:
        return ok("Loki accepts them")
    if away.refused and "no org id" in str(away):
        do = "set KONDUCTOR_LOKI_TENANT here, and in the controller's settings"
        return broken("Loki has tenants, and no tenant is set (no org id)", do)
    if is_reading(facts) and not away.refused:
        return ok(f"not asked from here; {_answered(facts)}")
    raise away if away.refused else after("Loki")


def limits(facts: Facts) -> Link:
    """Check the limits that the controller's queries meet."""
    found = seen(facts.limits)
    problems = [f"{name}: {why}" for name, why in _low(found, facts.settings.loki_timeout_seconds)]
    if problems:
        do = "change it in Loki's configuration (manifests/loki-values.yaml has the reasons)"
        return warn(problems[0], do, *problems[1:])
    hidden = [] if found.config else ["Loki does not show its configuration; queries met no other limit"]
    return ok(f"{found.entries} lines a query, one hour a query", *hidden)


def _low(found: Limits, timeout_seconds: float) -> Iterator[tuple[str, str]]:
    """Yield each limit of Loki that is too low, and why."""
    tenant, server = found.config.get("limits_config", {}), found.config.get("server", {})
    names = ("max_query_lookback", "reject_old_samples_max_age", "query_timeout")
    lookback, oldest, timeout = (seconds_of(tenant.get(name)) for name in names)
    sizes = [server.get(f"grpc_server_max_{way}_msg_size") for way in ("recv", "send")]
    if 0 < lookback < _DAY_SECONDS:
        yield names[0], f"lines older than {age(lookback)} cannot be read after an outage"
    if 0 < oldest < _DAY_SECONDS:
        yield names[1], f"lines that arrive {age(oldest)} late are refused"
    if timeout >= timeout_seconds:
        yield names[2], f"{age(timeout)} is not below KONDUCTOR_LOKI_TIMEOUT_SECONDS"
    if any(isinstance(size, int) and size < 4 << 20 for size in sizes):
        yield "grpc_server_max_recv_msg_size and _send_", "less than 4 MiB: large answers fail"
    if found.refused_span:
        yield "max_query_length", f"a query over one hour is refused: {found.refused_span}"
    if found.entries < 1000:
        yield "max_entries_limit_per_query", f"a query returns {found.entries} lines at most"


def stream(facts: Facts) -> Link:
    """Check that the kernel selector finds lines, here and in the controller."""
    asked, every = facts.settings, gpu_nodes_of(facts)
    selector = selector_of(kernel_matchers(asked.kernel_selector, asked.extra_matchers))
    if _away(facts):
        return ok(f"the controller hears {len(hearing(facts))} of {count(len(every), 'GPU node')}")
    heard = seen(facts.heard)
    if heard.beats or heard.nameless:
        if every & heard.fresh and is_deaf(facts):
            do = "compare the controller's selector, matchers, node label and tenant with those of this shell"
            here = f"heartbeats of {count(len(every & heard.fresh), 'GPU node')}"
            why = f"the controller hears no node, and Loki has {here} here"
            return broken(why, do, *other_settings(facts))
        if is_reading(facts):
            hearing(facts)
        return ok(f"{selector} has heartbeats")
    if not every and not isinstance(facts.nodes, Unseen):
        raise after("GPU nodes")
    if is_reading(facts) and seen(facts.controller).attempts.heard:
        do = "set KONDUCTOR_KERNEL_SELECTOR and KONDUCTOR_EXTRA_MATCHERS as the controller has them"
        others = "".join(f"; {each}" for each in other_settings(facts))
        raise Unseen(f"the controller hears nodes, and {selector} has no heartbeat{others}", do)
    if known(facts.oldest_beat, None):
        do = "look at the collector's log: Loki may refuse its lines; then at the reader's pods"
        return broken(f"{selector} has no heartbeat in the last minutes, and had some before", do)
    if known(facts.first_line, None):
        return foreign_links.without_beats(_own(facts) or Sample(selector), facts.settings)
    looked, labels = known(facts.foreign, Foreign()), known(facts.labels, ())
    return foreign_links.elsewhere(selector, looked, facts.settings, labels)


def _own(facts: Facts) -> Sample | None:
    """Return a sample of the kernel lines, if none of them is a heartbeat with a node's name."""
    return known(facts.foreign, Foreign()).own


def _heard(facts: Facts) -> Heard:
    """Return the heartbeats, at least one. Raises Unseen."""
    heard = seen(facts.heard)
    if not (heard.beats or heard.nameless):
        raise after("kernel stream")
    return heard


def _journal(facts: Facts) -> Sample | None:
    """Return a sample of the kernel lines if they come from a journal."""
    own = _own(facts)
    return own if own and own.is_journal else None


def label(facts: Facts) -> Link:
    """Check that kernel lines and pod lines carry the node's name, as a label or as structured metadata."""
    link = _label_of_kernel(facts)
    own, heard = _own(facts), known(facts.heard, Heard({}))
    of_kernel = own.labels if own and not heard.beats else heard.labels
    looked = known(facts.foreign, Foreign())
    of_pods = foreign_links.node_label_of_pods(looked, of_kernel, facts.settings)
    return of_pods if of_pods and link.state is not State.BROKEN else link


def _label_of_kernel(facts: Facts) -> Link:
    has_beats, own = bool(seen(facts.heard).beats), _own(facts)
    if not has_beats and (others := other_settings(facts)) and seen(facts.controller).attempts.heard:
        raise Unseen(f"the controller hears nodes; {'; '.join(others)}", "unset it in this shell")
    if not has_beats:
        shown = own or Sample("", HEARTBEATS, labels=_heard(facts).labels)
        return foreign_links.node_label(shown, known(facts.foreign, Foreign()), facts.settings)
    heard, name = _heard(facts), facts.settings.node_label
    if heard.nameless and (late := _late(facts, heard)):
        do = "let the collector on the node set it (docs/start/own-loki.md)"
        words = f"{count(heard.nameless, 'heartbeat')} without {name}"
        return broken(f"{words}, and none with it from {some_of(late, len(gpu_nodes_of(facts)))}", do)
    if heard.nameless:
        do = "let the collector on the node set it (docs/start/own-loki.md)"
        return warn(f"{count(heard.nameless, 'heartbeat')} without {name}", do)
    return ok(f"{name} is {'a label' if name in known(facts.labels, ()) else 'structured metadata'}")


def _strangers(facts: Facts, names: Iterable[str], heard_now: Iterable[str]) -> dict[str, str]:
    """Return, by each name on lines that no Node has, the silent GPU node that is most likely meant."""
    nodes = known(facts.nodes, {})
    silent_nodes = sorted(gpu_nodes_of(facts).difference(heard_now), key=len, reverse=True)
    return {name: _meant(name, silent_nodes) for name in sorted(names) if nodes and name not in nodes}


def _late(facts: Facts, heard: Heard) -> list[str]:
    """Return the GPU nodes with a reader that were not heard in the last 100 seconds, by any name."""
    heard_now = {*heard.fresh, *_strangers(facts, heard.beats, heard.fresh).values()}
    return sorted(gpu_nodes_of(facts) - heard_now - without_reader(facts))


def _meant(name: str, silent_nodes: Iterable[str]) -> str:
    low = name.lower()
    for node in silent_nodes:
        short = node.partition(".")[0]
        if low in (node, short) or low.partition(".")[0] == short or low.endswith((f"/{node}", f"-{node}")):
            return node
    return ""


def names(facts: Facts) -> Link:
    """Check that the names on heartbeats, or on the lines of a journal, are names of Nodes."""
    if own := _journal(facts):
        found, heard_now, lines = own.names, own.names, "the latest kernel lines"
        if facts.settings.node_label not in own.node_labels:
            raise after("node label")
    else:
        heard = _heard(facts)
        found, heard_now, lines = frozenset(heard.beats), heard.fresh, "heartbeats"
    seen(facts.nodes)
    strangers = _strangers(facts, found, heard_now)
    if meant := [f"the lines say {name}, the Node is {node}" for name, node in strangers.items() if node]:
        return broken(meant[0], foreign_links.RENAME, *meant[1:5])
    if strangers:
        do = "nothing, if these nodes were just deleted, or set KONDUCTOR_EXTRA_MATCHERS for a shared Loki"
        return warn(f"no Node has the name on {lines} of {few(strangers)}", do)
    return ok(f"all {len(found)} names on {lines} are names of Nodes")


def beats(facts: Facts) -> Link:
    """Check that every GPU node with a reader is heard; a stranger's name explains a silent node."""
    every, excused = gpu_nodes_of(facts), without_reader(facts)
    if not _away(facts) and _journal(facts):
        why = "not measured: a journal has no heartbeats"
        return Link(State.UNKNOWN, why, foreign_links.IS_JOURNAL)
    here = None if _away(facts) else _heard(facts)
    if here is None:
        names = hearing(facts)
    elif not every or not here.beats:
        raise after("node label" if every else "GPU nodes")
    else:
        names = frozenset((*here.beats, *_strangers(facts, here.beats, here.fresh).values()))
    late = _late(facts, here) if here else []
    if late and here and here.nameless:
        raise after("node label")
    if late and here and not here.complete:
        raise Unseen("too many heartbeats to read in this time", "konductor-like status")
    if silent_nodes := sorted(every - names - excused):
        do = f"konductor-like explain KernelLogSilent; kubectl get node {silent_nodes[0]}"
        return broken(f"no heartbeat from {some_of(silent_nodes, len(every))}", do)
    if late:
        raise not_yet(f"no heartbeat in the last 100 s from {some_of(late, len(every))}")
    if here and (unheard := _unheard(facts, here)):
        do = "compare the controller's selector, matchers and node label with those of this shell"
        why = "Loki has heartbeats that the controller does not hear"
        return broken(f"{why}: {some_of(unheard, len(every))}", do)
    without = [f"without a reader: {few(excused - names)}"] if excused - names else []
    return ok(f"heard in the last minutes: {count(len(every & names), 'GPU node')}", *without)


def _unheard(facts: Facts, here: Heard) -> list[str]:
    """Return the GPU nodes whose heartbeats Loki has and the controller does not hear. Raises Unseen."""
    if not is_reading(facts):
        return []
    with suppress(Unseen):
        if stream(facts).state is State.OK:
            return sorted((gpu_nodes_of(facts) & here.fresh) - hearing(facts))
    raise after("kernel stream")


def watched(facts: Facts) -> Link:
    """Check that Loki has lines of each watched namespace, and of a namespace for each pattern."""
    streams, running = seen(facts.streams), known(facts.running, {})
    quiet = silent(facts.settings, streams)
    do = "let the collector ship these namespaces, or correct WATCHED_NAMESPACES or KONDUCTOR_NAMESPACE_LABEL"
    if quiet and not streams and (others := other_settings(facts)):
        raise Unseen(f"Loki has no line of {few(quiet)} here; {'; '.join(others)}", "unset it in this shell")
    if bad := [name for name in quiet if running.get(name)]:
        return broken(f"pods run there, and Loki has no line: {few(bad)}", do)
    if unclear := [name for name in quiet if name not in running]:
        return warn(f"Loki has no line of {few(unclear)}; normal if no pod runs there", do)
    idle = f", no pod runs in {few(quiet)}" if quiet else ""
    return ok(f"lines of {count(len(streams), 'namespace')} in the last day{idle}")


def clocks(facts: Facts) -> Link:
    """Check the clocks of this machine, of the API server, of Loki and of the nodes."""
    asked = not isinstance(facts.cluster, Unseen)
    if not asked and _away(facts):
        raise Unseen("neither the API server nor Loki answers")
    server = 0.0 if isinstance(facts.cluster, Unseen) else facts.cluster.ahead_seconds
    theirs = server if _away(facts) else facts.loki_ahead_seconds
    lokis = facts.now + timedelta(seconds=theirs - server)
    beats = facts.heard.beats if isinstance(facts.heard, Heard) else {}
    offs = sorted(((wall - lokis).total_seconds(), name) for name, wall in beats.items())
    if fast := [(off, name) for off, name in offs if off >= CLOCKS_AGREE_SECONDS]:
        off, worst = fast.pop()
        do = "check NTP on that node: `chronyc tracking`; Loki refuses lines that are 10 minutes ahead"
        also = [f"also: {few(name for _, name in fast)}"] if fast else []
        return warn(f"the clock of {worst} is {_ahead(off)}", do, *also)
    if asked and abs(server - theirs) >= CLOCKS_AGREE_SECONDS:
        words = f"Loki's clock is {_ahead(theirs - server)}, compared with the API server's"
        do = "check NTP on the node of Loki and on the control plane"
        return (broken if abs(server - theirs) > CLOCK_TRUSTED_SECONDS else warn)(words, do)
    if abs(theirs) >= CLOCKS_AGREE_SECONDS:
        words = f"this machine's clock is {_ahead(-theirs)}; the cluster's clocks agree"
        return warn(words, "correct the clock of this machine: ages in this output are wrong")
    compared = ["this machine", *["the API server"] * asked, *([] if _away(facts) else ["Loki", "the nodes"])]
    return ok(f"{', '.join(compared[:-1])} and {compared[-1]} agree within 10 s")


def _ahead(seconds: float) -> str:
    return f"{age(round(abs(seconds)))} {'ahead' if seconds > 0 else 'behind'}"


def retention(facts: Facts) -> Link:
    """Check that Loki keeps lines for a day, for which the controller looks back."""
    oldest, config = seen(facts.oldest_beat), known(facts.limits, Limits(0)).config
    if config:
        period = seconds_of(config.get("limits_config", {}).get("retention_period"))
        deletes = period and config.get("compactor", {}).get("retention_enabled") is True
        if deletes and period < _DAY_SECONDS:
            return warn(f"Loki deletes lines after {age(period)}; the controller reads a day", _KEEP)
        return ok(f"Loki keeps lines {f'for {age(period)}' if deletes else 'without end'}")
    if oldest is None:
        raise after("kernel stream")
    seconds, lease = (facts.now - oldest).total_seconds(), known(facts.controller, None)
    began = moment_of(lease.act_from_ns) if lease and lease.act_from_ns else facts.now
    if seconds >= _DAY_SECONDS - 3600:
        return ok("a day or more: the oldest heartbeat of the last day is there")
    if (facts.now - began).total_seconds() > seconds + 3600:
        age_of_it = f"the controller started {age_of(began, facts.now)} ago"
        return warn(f"{age_of_it}, the oldest heartbeat is of {stamp(oldest)}", _KEEP)
    return ok(f"the oldest heartbeat is {age(seconds)} old, as old as the installation")


def seconds_of(duration: object) -> float:
    """Return the seconds of ``24h``, ``30d1h`` or ``1m0s``; 0 for anything else, and for no limit."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|[smhdwy])", duration if isinstance(duration, str) else "")
    return sum(float(value) * _UNITS[unit] for value, unit in parts)
