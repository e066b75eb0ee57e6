"""The links that Kubernetes shows: API server, rights, nodes, readers. Pure."""

from __future__ import annotations

from konductor_like.cli.columns import count
from konductor_like.cli.doctor import foreign
from konductor_like.cli.doctor.controller_links import gpu_nodes_of
from konductor_like.cli.doctor.facts import Facts, Heard, Reader, Workload
from konductor_like.cli.doctor.link import APPLY, Link, after, broken, few, known, ok, seen, some_of, warn
from konductor_like.cluster.reader_pods import own_script, reader_place


def cluster(facts: Facts) -> Link:
    """Check that the API server answers, and knows the caller."""
    found = seen(facts.cluster)
    return ok(f"{found.server} knows {found.user}")


def rights(facts: Facts) -> Link:
    """Check that the caller may use the commands; a viewer without the right to write is whole."""
    missing = seen(facts.rights)
    details = [f"{commands}: not without {lacks}" for commands, lacks in missing.items()]
    if not details:
        return ok("every command of this program is allowed")
    if any(commands.startswith("status") for commands in missing):
        do = "ask for the roles of manifests/people_rbac.yaml (docs/use/permissions.md)"
        return warn("you may not read what `status` needs", do, *details)
    return ok(f"you may look, and not use: {', '.join(missing)}", *details)


def nodes(facts: Facts) -> Link:
    """Check that the cluster has GPU nodes."""
    every, found = seen(facts.nodes), len(gpu_nodes_of(facts))
    if not found:
        do = "set KONDUCTOR_GPU_NODE_SELECTOR to a label of the GPU nodes (docs/start/own-loki.md)"
        none = f"none of {count(len(every), 'Node')} counts as a GPU node"
        heard = known(facts.heard, Heard({}))
        if beating := sorted(heard.beats.keys() & every.keys()):
            return broken(f"{none}, and the reader runs on {few(beating)}", do)
        return warn(f"{none}; normal while a pool is scaled to zero", do)
    return ok(f"{found} of {count(len(every), 'Node')}")


def without_reader(facts: Facts) -> frozenset[str]:
    """Return the GPU nodes that are known to have no ready reader."""
    pods = known(facts.readers, dict.fromkeys(gpu_nodes_of(facts), Reader(is_ready=True)))
    return frozenset(name for name in gpu_nodes_of(facts) if name not in pods or not pods[name].is_ready)


def readers(facts: Facts) -> Link:
    """Check that the kernel-log reader of this build runs on every GPU node."""
    pods, every, namespace = seen(facts.readers), gpu_nodes_of(facts), reader_place(facts.settings)[0]
    details = [_ready(each) for each in known(facts.daemonsets, ()) if each.namespace == namespace]
    if not every:
        raise after("GPU nodes")
    own = known(facts.foreign, foreign.Foreign()).own
    if not pods and not details and own and own.is_journal and not known(facts.oldest_beat, None):
        return ok(f"no pod runs in namespace {namespace}; the kernel lines come from {own.what}")
    if not pods:
        do = f"kubectl -n {namespace} describe daemonset" if details else APPLY
        return broken(f"no pod runs in namespace {namespace}", do, *details)
    missing = without_reader(facts)
    unready = sorted(missing & set(pods))
    if absent := sorted(missing - set(pods)):
        details += [f"not ready: {few(unready)}"] if unready else []
        do = f"kubectl -n {namespace} describe daemonset"
        return broken(f"no reader runs on {some_of(absent, len(every))}", do, *details)
    if unready:
        do = f"kubectl -n {namespace} get pods -o wide"
        return broken(f"the reader is not ready on {some_of(unready, len(every))}", do, *details)
    known_scripts = ("", own_script())  # a reader of somebody else has no hash
    if others := sorted(name for name in every if pods[name].script not in known_scripts):
        words = f"a reader of another build runs on {some_of(others, len(every))}"
        do = "roll out the DaemonSet of this build (docs/use/upgrade-and-uninstall.md#the-reader-first)"
        lost = "an earlier reader does not tell that the kernel overwrote the beginning of its log"
        return warn(words, do, lost, *details)
    return ok(f"a reader is ready on every GPU node ({len(every)})", *details)


def _ready(each: Workload) -> str:
    return f"DaemonSet {each.namespace}/{each.name}: {each.ready} of {count(each.desired, 'pod')} ready"
