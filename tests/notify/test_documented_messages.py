"""docs/use/notifications.md shows messages as the code makes them."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from konductor_like.model import Change, NodeState, Verb
from konductor_like.notify.messages import Message, cloud_event, text_of
from konductor_like.notify.news import Out
from konductor_like.policy.node.release import release
from tests.controller.reconciling import Scene, xid
from tests.notify.scenes import messages_of, news_of
from tests.policy.scenes import at

PAGE = (Path(__file__).parents[2] / "docs" / "use" / "notifications.md").read_text("utf-8")
CLUSTER = "prod-eu"


def message_of(scene: Scene, out: int) -> Message:
    """The message about the first kind of writes in the scene."""
    out_of = Out(out, len(scene.cluster.nodes))
    nodes = scene.cluster.nodes
    news = [
        each for change in scene.cluster.written for each in news_of(nodes[change.node], change, 2, out_of)
    ]
    return messages_of(news)[0]


def one_node() -> Message:
    scene = Scene(10)
    scene.run(xid("gpu-1"), seconds=2)
    return message_of(scene, 1)


def returned_nodes() -> Message:
    def change(state: NodeState) -> Change:
        mark = release(state, at=at(0), by="ann", reason="new riser", read_ns={})
        assert mark is not None
        return replace(mark, node=state.name, verb=Verb.UNTAINT)

    scene = Scene(100)
    scene.run(*(xid(f"gpu-{number}") for number in range(1, 4)), seconds=2)
    nodes = scene.cluster.nodes
    news = [
        each
        for number in range(1, 4)
        for each in news_of(nodes[f"gpu-{number}"], change(nodes[f"gpu-{number}"]), 3600, Out(0, 100))
    ]
    return messages_of(news)[0]


EXAMPLES = {
    "one node": one_node,
    "returned": returned_nodes,
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_page_shows_the_message_as_it_is(name: str) -> None:
    text = text_of(EXAMPLES[name](), CLUSTER, at(0))

    assert f"```text\n{text}\n```" in PAGE


def test_the_page_shows_the_cloud_event_as_it_is() -> None:
    [shown] = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    message = cloud_event(one_node(), CLUSTER, at(0))
    message["data"]["text"] = message["data"]["text"].partition("\n")[0] + "\n…"

    assert json.loads(shown) == json.loads(json.dumps(message))
