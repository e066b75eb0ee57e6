"""Gathers all facts of a checkup at the same time, within one deadline."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any

from konductor_like.cli import session
from konductor_like.cli.check_config import inspect
from konductor_like.cli.doctor import facts
from konductor_like.cli.doctor.acting import acting
from konductor_like.cli.doctor.foreign import Foreign, look
from konductor_like.cli.doctor.link import State, Unseen, after, known, seen
from konductor_like.cluster.api.client import ReadOnlyKubeClient
from konductor_like.cluster.api.errors import KubeBadAnswer, KubeForbidden, KubeTimeout, refused_right
from konductor_like.cluster.preflight import policy_names
from konductor_like.cluster.published import Published
from konductor_like.cluster.reader_pods import reader_place
from konductor_like.loki.query.client import LokiClient, retrying
from konductor_like.loki.query.errors import LokiRefused, LokiTimeout, LokiUnauthorized
from konductor_like.loki.query.logql import heartbeat_query, kernel_query
from konductor_like.model.edge_errors import EdgeError
from konductor_like.settings import Settings

VIEWER = "ask for the ClusterRole konductor-like-viewer (manifests/people_rbac.yaml)"
LONGER = "try again with --timeout 30; if that does not help, look at the load of this server"


class Requests:
    """Requests that run at the same time, each in a thread that does not keep the process from ending."""

    def __init__(
        self, asks: Mapping[str, Callable[[], object]], seconds: float, left: Callable[[], float]
    ) -> None:
        """``left`` returns the rest of these ``seconds``, or 0. A request may wait for other requests."""
        self._seconds, self._left = seconds, left
        self._futures = {name: Future[Any]() for name in asks}
        self.threads = [threading.Thread(target=self._run, args=each, daemon=True) for each in asks.items()]

    def _run(self, name: str, ask: Callable[[], object]) -> None:
        try:
            self._futures[name].set_result(ask())
        except Exception as error:  # noqa: BLE001  # `get` raises it again, in the thread that asks
            self._futures[name].set_exception(error)

    def get(self, name: str, share: float = 1.0) -> Any:
        """Return the answer of a request, or why there is none. Raises an error only if it is a bug.

        It waits for this share of the time that is left.
        """
        try:
            return self._futures[name].result(share * self._left())
        except TimeoutError:
            return Unseen(f"no answer within {self._seconds:g} s", LONGER)
        except Unseen as why:
            return why
        except EdgeError as error:
            return unseen(error)


def unseen(error: EdgeError) -> Unseen:
    """Return a failed request as a fact."""
    match error:
        case KubeForbidden():
            right = refused_right(error)
            return Unseen(f"you may not {right}" if right else str(error), VIEWER)
        case KubeTimeout() | LokiTimeout():
            return Unseen(str(error), LONGER)
        case LokiRefused() if error.asks_for_less:
            return Unseen("Loki refuses to read a day at once", "see the link `limits`")
        case LokiUnauthorized():
            return Unseen(str(error), error.hint, State.BROKEN, refused=True)
        case _:
            return Unseen(str(error), error.hint or KubeBadAnswer.hint, State.BROKEN)


def _foreign(api: LokiClient, settings: Settings, asked: Requests) -> Foreign:
    """Look for what the other requests to Loki did not find."""
    heard = seen(asked.get("heard"))
    lines = bool(heard.beats or heard.nameless) or seen(asked.get("first_line")) is not None
    labels = known(asked.get("labels"), ())
    return look(
        api, settings, labels, lambda: known(asked.get("nodes"), {}), beats=bool(heard.beats), lines=lines
    )


def gather(
    settings: Settings,
    kubeconfig: str | None,
    context: str | None,
    seconds: float,
    left: Callable[[], float],
) -> facts.Facts:
    """Return the facts at the deadline at the latest; an error of a server is a fact, too.

    ``left`` returns the rest of these ``seconds``. A kubeconfig's login command may take all of them.
    """

    def no_cluster() -> Unseen | None:
        return after("API server") if isinstance(asked.get("cluster"), Unseen) else None

    def no_loki() -> Unseen | None:
        why = asked.get("labels")
        if isinstance(why, Unseen):
            return after("tenant and login") if why.refused else Unseen("Loki does not answer here")
        return None

    def later(missing: Callable[[], Unseen | None], client: str, ask: Callable[[Any], object]) -> object:
        if why := missing():
            raise why
        return ask(seen(asked.get(client)))

    def settings_of_controller(share: float = 1.0) -> Published | None:
        lease = known(asked.get("controller", share), None)
        return lease.settings if lease else None

    def chosen() -> Settings:
        found: Settings = seen(asked.get("settings"))
        return found

    def gpu_nodes() -> list[str]:
        return [name for name, node in known(asked.get("nodes"), {}).items() if node.is_gpu_node]

    asks: dict[str, Callable[[], object]] = {
        # Half of the time, because Loki's links are worth the rest if the API server does not answer.
        "settings": lambda: session.like_the_controller(settings, settings_of_controller(0.5)),
        "configuration": lambda: inspect(os.environ),
        "client": lambda: ReadOnlyKubeClient.connect(kubeconfig, context, seconds),
        "loki": lambda: LokiClient(settings, retrying(attempts=1)),
        "cluster": lambda: facts.cluster(seen(asked.get("client"))),
        "labels": lambda: facts.labels(seen(asked.get("loki"))),
    }
    of_cluster: dict[str, Callable[[ReadOnlyKubeClient], object]] = {
        "rights": lambda api: facts.rights(api, settings),
        "controller": lambda api: session.known_controller(api, settings),
        "configured": lambda api: facts.configured(
            api, session.lease_namespace(api, settings), "konductor-like"
        ),
        "rules_files": lambda api: facts.configured(
            api, session.lease_namespace(api, settings), "konductor-like-rules"
        ),
        "deployments": lambda api: facts.workloads(
            api, "deployments", session.lease_namespace(api, settings)
        ),
        "daemonsets": lambda api: facts.workloads(api, "daemonsets", reader_place(settings)[0]),
        "policies": lambda api: facts.policies(api, policy_names(settings_of_controller())),
        "acting": lambda api: acting(api, seen(asked.get("controller")), known(asked.get("nodes"), {})),
        "readers": lambda api: facts.readers(api, reader_place(settings)[0]),
        "nodes": lambda api: facts.nodes(api, settings_of_controller()),
        "running": lambda api: facts.running(api, chosen(), seen(asked.get("streams"))),
    }
    of_loki: dict[str, Callable[[LokiClient], object]] = {
        "heard": lambda api: facts.heard(api, chosen(), gpu_nodes),
        "limits": lambda api: facts.limits(api, chosen()),
        "first_line": lambda api: facts.first(api, kernel_query(chosen(), ("",)), facts.HOUR_NS),
        "oldest_beat": lambda api: facts.first(api, heartbeat_query(chosen()), facts.DAY_NS),
        "streams": lambda api: facts.streams(api, chosen()),
        "foreign": lambda api: _foreign(api, chosen(), asked),
    }
    asks |= {name: partial(later, no_cluster, "client", ask) for name, ask in of_cluster.items()}
    asks |= {name: partial(later, no_loki, "loki", ask) for name, ask in of_loki.items()}
    asked = Requests(asks, seconds, left)
    for thread in asked.threads:
        thread.start()
    answers = {name: asked.get(name) for name in asks}
    for names, missing in ((of_cluster, no_cluster()), (of_loki, no_loki())):
        answers |= dict.fromkeys(names, missing) if missing else {}
    api, logs = known(answers.pop("client"), None), known(answers.pop("loki"), None)
    found = facts.Facts(
        now=session.cluster_now(api) if api else session.now(),
        settings=known(answers.pop("settings"), settings),
        loki_ahead_seconds=logs.clock_ahead_seconds if logs else 0.0,
        **answers,
    )
    for each in filter(None, (api, logs)):
        each.close()
    return found
