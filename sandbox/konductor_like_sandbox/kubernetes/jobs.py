"""What happens to a Job: its controller, the scheduler and the kubelets, for Jobs of one pod and one try.

All of them act when somebody looks: before a Job, a pod or an Event is read. So nothing has to be waited for,
and time passes only by the server's clock. Sources: pkg/controller/job, pkg/kubelet, pkg/controller/podgc.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from konductor_like_sandbox.http import Reply, Request
from konductor_like_sandbox.kubernetes import errors, scheduling
from konductor_like_sandbox.kubernetes.errors import ApiError, Cause
from konductor_like_sandbox.kubernetes.exec import container_named
from konductor_like_sandbox.kubernetes.store import Key, Store

MESSAGE_BYTES = 4096
"""The kubelet keeps the last bytes of a termination message."""
ORPHANS_WARNING = (
    '299 - "child pods are preserved by default when jobs are deleted; set propagationPolicy=Background to '
    'remove them or set propagationPolicy=Orphan to suppress this warning"'
)
_POLICIES = ("Background", "Foreground", "Orphan")
_NO_NODE = "PodGC: node no longer exists"
_SHOWN = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, slots=True)
class Started:
    """A container that the kubelet starts, its command and environment expanded."""

    node: str
    pod: str
    command: Sequence[str]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Ended:
    """How a program ended."""

    exit_code: int = 0
    output: bytes = b""
    message: str = ""
    """What the program wrote to its termination log."""


class Jobs:
    """The Jobs' controller, the scheduler, and the kubelets as far as Jobs are concerned."""

    def __init__(self, store: Store, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock
        self._logs: dict[str, bytes] = {}
        self.controller_runs = True
        """False: Jobs stay without pods, as on a bare API server."""
        self.programs: dict[str, Callable[[Started], Ended]] = {}
        """By node: what its containers do, to their end. Without an entry they run until there is one."""
        self.waits: dict[str, tuple[str, str]] = {}
        """By node: reason and message for which its containers wait, such as ``ImagePullBackOff``."""
        self.refusals: dict[str, tuple[str, str]] = {}
        """By node: reason and message with which it refuses pods, such as ``TopologyAffinityError``."""
        self.unreachable: set[str] = set()
        """The nodes whose kubelets give no log."""

    def look(self) -> None:
        """Let everybody act who has something to do."""
        with self._store.lock:
            for stored in self._store.objects("jobs")[1]:
                job = stored.load()
                if self.controller_runs and not _finished(job) and not job["spec"].get("suspend"):
                    self._act(job)

    def deleted(self, uid: str, options: Mapping[str, Any]) -> Mapping[str, str]:
        """Delete or orphan the pods of a deleted Job; return the headers of the answer."""
        policy = options.get("propagationPolicy")
        with self._store.lock:
            for pod in self._pods(uid):
                meta = pod["metadata"]
                if policy in ("Background", "Foreground"):
                    self._store.delete("pods", Key(meta["namespace"], meta["name"]))
                else:
                    del meta["ownerReferences"]
                    self._store.put("pods", pod)
        return {} if policy else {"Warning": ORPHANS_WARNING}

    def log(self, request: Request, key: Key) -> Reply:
        """Return a pod's log. Raises ``ApiError``."""
        limit = request.param("limitBytes")
        if limit and int(limit) < 1:
            cause = Cause.invalid("limitBytes", limit, "must be greater than 0")
            raise errors.invalid("", "PodLogOptions", key.name, [cause])
        stored = self._store.get("pods", key)
        if stored is None:
            raise errors.not_found("", "pods", key.name)
        pod = stored.load()
        container = container_named(pod, key.name, request.param("container"))
        node = pod["spec"].get("nodeName")
        if not node:
            return Reply.of_text("")
        if self._store.get("nodes", Key("", node)) is None:
            raise errors.not_found("", "nodes", node)
        if node in self.unreachable:
            dial = f"dial tcp {node}:10250: connect: connection refused"
            address = f"https://{node}:10250/containerLogs/{key.namespace}/{key.name}/{container}"
            raise ApiError(500, "InternalError", f'Get "{address}": {dial}')
        for each in pod["status"].get("containerStatuses", ()):
            if "waiting" in each["state"]:
                why = f"is waiting to start: {each['state']['waiting']['reason']}"
                raise errors.bad_request(f'container "{container}" in pod "{key.name}" {why}')
        output = self._logs.get(stored.uid, b"")
        return Reply(body=output[: int(limit)] if limit else output, content_type="text/plain")

    def _act(self, job: dict[str, Any]) -> None:
        """Do the next steps for one unfinished Job."""
        status = job["status"]
        status.setdefault("startTime", self._now())
        pods = self._pods(job["metadata"]["uid"])
        if not pods and not status.get("active"):
            pods = self._make_pod(job)
        for pod in pods:
            if not _over(pod):
                self._run(pod)
        phases = [pod["status"]["phase"] for pod in pods]
        if "Succeeded" in phases:
            self._finish(job, "SuccessCriteriaMet", "Complete", "CompletionsReached", _COMPLETE, succeeded=1)
        elif "Failed" in phases or (status.get("active") and not pods):
            for pod in pods:
                if _lost(pod):  # by PodGC, which marks it before
                    self._store.delete("pods", Key(pod["metadata"]["namespace"], pod["metadata"]["name"]))
            self._finish(job, "FailureTarget", "Failed", "BackoffLimitExceeded", _BACKOFF, failed=1)
        elif self._is_overdue(job):
            for pod in pods:
                self._store.delete("pods", Key(pod["metadata"]["namespace"], pod["metadata"]["name"]))
            self._finish(job, "FailureTarget", "Failed", "DeadlineExceeded", _DEADLINE, failed=len(pods))
        else:
            status.update(active=len(pods), terminating=0, uncountedTerminatedPods={})
            status["ready"] = phases.count("Running")
            self._keep("jobs", job)

    def _is_overdue(self, job: dict[str, Any]) -> bool:
        seconds = job["spec"].get("activeDeadlineSeconds")
        started = datetime.fromisoformat(job["status"]["startTime"])
        return seconds is not None and self._clock() - started >= timedelta(seconds=seconds)

    def _finish(
        self, job: dict[str, Any], target: str, kind: str, reason: str, message: str, **counts: int
    ) -> None:
        now = self._now()
        times = {"status": "True", "lastProbeTime": now, "lastTransitionTime": now}
        status = job["status"]
        status.pop("active", None)
        status.update(counts, terminating=0, uncountedTerminatedPods={}, ready=0)
        status["conditions"] = [
            {"type": each, **times, "reason": reason, "message": message} for each in (target, kind)
        ]
        if kind == "Complete":
            status["completionTime"] = now
        self._keep("jobs", job)

    def _make_pod(self, job: dict[str, Any]) -> list[dict[str, Any]]:
        """Create the Job's pod, or an Event that tells why it cannot be."""
        meta, template = job["metadata"], job["spec"]["template"]
        owner = {"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "uid": meta["uid"]}
        name = f"{meta['name']}-{meta['uid'][:5]}"  # always the same: a Job here has one pod at most
        pod = {
            "metadata": {
                "name": name,
                "generateName": f"{meta['name']}-",
                "namespace": meta["namespace"],
                "uid": str(uuid.uuid4()),
                "creationTimestamp": self._now(),
                "labels": dict(template["metadata"]["labels"]),
                "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
                "finalizers": ["batch.kubernetes.io/job-tracking"],
            },
            "spec": {
                **template["spec"],
                "containers": [_with_requests(each) for each in template["spec"]["containers"]],
            },
            "status": {"phase": "Pending", "qosClass": "BestEffort"},
        }
        namespace = self._store.get("namespaces", Key("", meta["namespace"]))
        assert namespace is not None  # noqa: S101 -- the Job is in it
        why = scheduling.refusal(
            pod,
            namespace.load(),
            self._all("priorityclasses"),
            self._all("resourcequotas", meta["namespace"]),
            self._all("pods", meta["namespace"]),
        )
        if why:
            self._tell(job, f'Error creating: pods "{name}" is forbidden: {why}')
            return []
        self._keep("pods", pod)
        return [pod]

    def _run(self, pod: dict[str, Any]) -> None:
        """Take a pod as far as it gets: to a node, past the kubelet, to its program's end."""
        spec, status = pod["spec"], pod["status"]
        if not spec.get("nodeName"):
            found, message = scheduling.place(pod, self._all("nodes"), self._all("pods"))
            scheduled = {"type": "PodScheduled", "status": "True" if found else "False"}
            if not found:
                scheduled |= {"reason": "Unschedulable", "message": message}
            status["conditions"] = [scheduled]
            if not found:
                self._keep("pods", pod)
                return
            spec["nodeName"] = found
        node = spec["nodeName"]
        container = spec["containers"][0]
        told = {"name": container["name"], "image": container["image"], "ready": False, "restartCount": 0}
        if self._store.get("nodes", Key("", node)) is None:
            gone = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC"}
            status.update(phase="Failed", conditions=[*status["conditions"], {**gone, "message": _NO_NODE}])
        elif status["phase"] == "Pending" and node in self.refusals:
            reason, message = self.refusals[node]
            status.update(phase="Failed", reason=reason, message=f"Pod was rejected: {message}")
        elif status["phase"] == "Pending" and node in self.waits:
            reason, message = self.waits[node]
            state = {"waiting": {"reason": reason, "message": message} if message else {"reason": reason}}
            status["containerStatuses"] = [{**told, "state": state}]
        else:
            self._start(pod, told, _started(pod))
        self._keep("pods", pod)

    def _start(self, pod: dict[str, Any], told: dict[str, Any], started: Started) -> None:
        status, now = pod["status"], self._now()
        status.setdefault("startTime", now)
        if started.node not in self.programs:
            running = {"running": {"startedAt": status["startTime"]}}
            status.update(phase="Running", containerStatuses=[{**told, "ready": True, "state": running}])
            return
        ended = self.programs[started.node](started)
        self._logs[pod["metadata"]["uid"]] = ended.output
        state: dict[str, Any] = {
            "exitCode": ended.exit_code,
            "reason": "Error" if ended.exit_code else "Completed",
            "startedAt": status["startTime"],
            "finishedAt": now,
        }
        if ended.message:
            state["message"] = ended.message.encode()[-MESSAGE_BYTES:].decode(errors="replace")
        phase = "Failed" if ended.exit_code else "Succeeded"
        status.update(phase=phase, containerStatuses=[{**told, "state": {"terminated": state}}])

    def _tell(self, job: dict[str, Any], message: str) -> None:
        """Record an Event FailedCreate, as the Job controller does at each try."""
        meta, now = job["metadata"], self._now()
        about = {
            "kind": "Job",
            "apiVersion": "batch/v1",
            **{key: meta[key] for key in ("namespace", "name", "uid")},
        }
        name = f"{meta['name']}.{meta['uid'][:16]}"
        own = {"name": name, "namespace": meta["namespace"], "uid": meta["uid"], "creationTimestamp": now}
        event = {
            "metadata": own,
            "involvedObject": about,
            "reason": "FailedCreate",
            "message": message,
            "source": {"component": "job-controller"},
            "type": "Warning",
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "eventTime": None,
            "reportingComponent": "job-controller",
            "reportingInstance": "",
        }
        old = self._store.get("events", Key(meta["namespace"], name))
        if old is None or old.load()["message"] != message:
            self._store.put("events", event)

    def _pods(self, uid: str) -> list[dict[str, Any]]:
        owned = []
        for pod in self._all("pods"):
            owners = pod["metadata"].get("ownerReferences", ())
            if any(each.get("uid") == uid and each.get("controller") for each in owners):
                owned.append(pod)
        return owned

    def _all(self, table: str, namespace: str = "") -> list[dict[str, Any]]:
        return [stored.load() for stored in self._store.objects(table, namespace)[1]]

    def _keep(self, table: str, item: dict[str, Any]) -> None:
        """Store an object, unless it is stored as it is."""
        meta = item["metadata"]
        old = self._store.get(table, Key(meta.get("namespace", ""), meta["name"]))
        if old is None or old.load() != item:
            self._store.put(table, item)

    def _now(self) -> str:
        return self._clock().strftime(_SHOWN)


_COMPLETE = "Reached expected number of succeeded pods"
_BACKOFF = "Job has reached the specified backoff limit"
_DEADLINE = "Job was active longer than specified deadline"


def check_policy(options: Mapping[str, Any]) -> None:
    """Raises ``ApiError`` (422) for an unknown ``propagationPolicy``."""
    policy = options.get("propagationPolicy")
    if policy is not None and policy not in _POLICIES:
        supported = ", ".join(f'"{each}"' for each in (*_POLICIES, "nil"))
        message = f'Unsupported value: "{policy}": supported values: {supported}'
        cause = Cause("propagationPolicy", "FieldValueNotSupported", message)
        raise errors.invalid("meta.k8s.io", "DeleteOptions", "", [cause])


def _finished(job: Mapping[str, Any]) -> bool:
    return any(each["type"] in ("Complete", "Failed") for each in job["status"].get("conditions", ()))


def _over(pod: Mapping[str, Any]) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def _lost(pod: Mapping[str, Any]) -> bool:
    return any(each.get("reason") == "DeletionByPodGC" for each in pod["status"].get("conditions", ()))


def _with_requests(container: Mapping[str, Any]) -> dict[str, Any]:
    """Return a container that requests what limits it: a default of pods, and not of a Job's template."""
    resources = container.get("resources", {})
    limits = resources.get("limits", {})
    requests = {**limits, **resources.get("requests", {})}
    return {**container, "resources": {**resources, "requests": requests} if requests else resources}


def _started(pod: Mapping[str, Any]) -> Started:
    container = pod["spec"]["containers"][0]
    environment: dict[str, str] = {}
    for each in container.get("env", ()):
        environment[each["name"]] = _expanded(each.get("value", ""), environment)
    command = [_expanded(each, environment) for each in container.get("command", ())]
    return Started(pod["spec"]["nodeName"], pod["metadata"]["name"], command, environment)


def _expanded(text: str, environment: Mapping[str, str]) -> str:
    """Expand ``$(NAME)``, and make ``$$`` one dollar (third_party/forked/golang/expansion)."""

    def value(found: re.Match[str]) -> str:
        return "$" if found[1] is None else environment.get(found[1], found[0])

    return re.sub(r"\$(?:\$|\(([^)]*)\))", value, text)
