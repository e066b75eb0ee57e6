"""The node of a kernel-log reader's line that came without the node's name: the boot id in it names the node.

A collector may leave the name out, for example until it has looked up a fresh pod. The reader writes the boot
id into each line, and the Node has it in ``status.nodeInfo.bootID``. A boot id is no secret, so this counts
only for lines in the reader's own stream, and only if one Node alone has had the boot id lately.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from konductor_like.detection.heartbeat import reader_boot
from konductor_like.model import Fault, LogLine, NodeState, Source
from konductor_like.model.time import SECOND_NS
from konductor_like.policy.node.machines import Heard

LATELY_NS = 3600 * SECOND_NS
"""Nanoseconds for which a Node that had a boot id keeps the boot id from naming another Node."""
BOOTS_MOST = 10_000
"""Boots that were left, and boots with dropped lines; beyond it the oldest are forgotten."""
_NUMBERS_MOST = 64


class BootNames:
    """Names nodes by their boots, and remembers the lines for which it could name none. For one thread."""

    def __init__(self, now_ns: Callable[[], int], heard: Callable[[], Mapping[str, Heard]]) -> None:
        """``heard`` returns, by name, the boots of which heartbeats were heard."""
        self._now_ns = now_ns
        self._heard = heard
        self._nodes: Mapping[str, NodeState] = {}
        self._owners: Mapping[str | None, list[NodeState]] | None = None
        """By boot id, the Nodes that have it; None until it is asked for."""
        self._last_ns: Mapping[str, list[tuple[str, int]]] | None = None
        """By boot id, the names under which it was heard, and when last; None until it is asked for."""
        self._left_ns: dict[str, dict[str, int]] = {}
        """By boot id and name, when the Node was first seen without the boot id."""
        self._waiting: Mapping[str, list[int]] = {}
        self._dropped: dict[str, list[int]] = {}
        """By boot id, the numbers of the lines that were dropped because no Node could be named."""
        self._printed: dict[str, tuple[str, int]] = {}
        """By node, its latest boot, and the number up to which the reader has printed its lines."""

    def see(self, nodes: Mapping[str, NodeState]) -> None:
        """Take in the Nodes as they are now."""
        before, self._nodes = self._nodes, nodes
        if nodes is before:
            return
        self._owners, now_ns = None, self._now_ns()
        for name, old in before.items():
            state, boot_id = nodes.get(name), old.machine.boot_id
            if boot_id is not None and (state is None or state.machine.boot_id != boot_id):
                self._left_ns.setdefault(boot_id, {})[name] = now_ns
        while len(self._left_ns) > BOOTS_MOST:
            del self._left_ns[next(iter(self._left_ns))]
        self._printed = {name: printed for name, printed in self._printed.items() if name in nodes}

    def node_of(self, boot_id: str) -> str | None:
        """Return the name of the one GPU Node with this boot id; None if no Node or several have had it."""
        if self._owners is None:
            owners = defaultdict[str | None, list[NodeState]](list)
            for state in self._nodes.values():
                owners[state.machine.boot_id].append(state)
            self._owners = owners
        found = self._owners.get(boot_id, ())
        if len(found) != 1 or not found[0].is_gpu_node:
            return None
        name, oldest_ns = found[0].name, self._now_ns() - LATELY_NS
        if self._last_ns is None:  # all lines may be without a name at once
            last_ns = defaultdict[str, list[tuple[str, int]]](list)
            for each, boots in self._heard().items():
                for boot in boots:
                    last_ns[boot.boot_id].append((each, boot.last_ns))
            self._last_ns = last_ns
        seen = (*self._left_ns.get(boot_id, {}).items(), *self._last_ns.get(boot_id, ()))
        return name if {each for each, ns in seen if ns > oldest_ns} <= {name} else None

    def named(self, lines: Iterable[LogLine], nodes: Mapping[str, NodeState]) -> list[LogLine]:
        """Return the lines, also those of the reader that came without a name with the name of their node."""
        self.see(nodes)
        self._last_ns = None
        return [line if line.node is not None else self._named(line) for line in lines]

    def _named(self, line: LogLine) -> LogLine:
        if line.source is not Source.KERNEL or not (line.namespace and line.container):
            return line
        boot_id = reader_boot(line.text)
        return line if boot_id is None else replace(line, node=self.node_of(boot_id))

    def named_faults(self, faults: Sequence[Fault], nodes: Mapping[str, NodeState]) -> list[Fault]:
        """Return the faults, with the names of the nodes that can be named now."""
        self.see(nodes)
        self._last_ns = None
        return [
            replace(fault, node=self.node_of(boot_id)) if (boot_id := fault.nameless_boot) else fault
            for fault in faults
        ]

    def unnamed(self, waiting: Iterable[Fault], dropped: Iterable[Fault]) -> None:
        """Take in the faults that wait for a Node now, and those that were dropped without one."""
        found = defaultdict(list)
        for fault in waiting:
            if fault.nameless_boot is not None:
                found[fault.nameless_boot].append(fault.finding.position.sequence or 0)
        self._waiting = found
        for fault in dropped:
            if fault.nameless_boot is not None:
                numbers = self._dropped.setdefault(fault.nameless_boot, [])
                if len(numbers) < _NUMBERS_MOST:
                    numbers.append(fault.finding.position.sequence or 0)
        while len(self._dropped) > BOOTS_MOST:
            del self._dropped[next(iter(self._dropped))]

    def printed(self, node: str, boot_id: str, upto: int) -> Iterable[int]:
        """Note how far a node's reader has printed; return the numbers of its lines that were dropped."""
        before = self._printed.get(node, ("", 0))
        self._printed[node] = boot_id, max(upto, before[1] if before[0] == boot_id else 0)
        return [number for number in self._dropped.get(boot_id, ()) if number <= upto]

    def lacks_a_line(self, node: str) -> bool:
        """Whether a line that the reader of a node has printed waits for a name."""
        boot_id, upto = self._printed.get(node, ("", 0))
        return any(number <= upto for number in self._waiting.get(boot_id, ()))
