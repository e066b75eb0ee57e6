"""Mutants of nodes without room for their record, and of lines without a name: see ``mutants``."""

from __future__ import annotations

from tests.chaos.mutant import Mutant

MUTANTS_OF_HARM: dict[str, Mutant] = {
    "a Node without room for its record is not tainted": Mutant(
        *("cluster.node.patch.LADDER", lambda real: tuple(each for each in real if not each.record)),
        example="a node without room for its record is tainted, and its record comes when there is room",
    ),
    "a record is never tried again on its Node": Mutant(
        *("controller.loop.kept_records.KeptRecords.due", lambda _: lambda *_args: frozenset()),
        example="a node without room for its record is tainted, and its record comes when there is room",
    ),
    "a line without the node's name is dropped": Mutant(
        *("controller.fleet.boot_names.BootNames.node_of", lambda _: lambda *_args: None),
        example="a kernel line without the node's name taints the node that has its boot",
    ),
}
