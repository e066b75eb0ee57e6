"""The real program accepts every command of ours that the documentation shows."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
import typer

from konductor_like.cli.app import build
from tests.docs.shell import PAGES, named, our_commands, typed
from tools.generate_docs import commands

ALL = commands()
GROUPS = {name.split()[0] for name in ALL if " " in name}
PLACEHOLDERS = {
    "NODE": "gpu-1",
    "$NODE": "gpu-1",
    "RULE": "xid.79",
    "SPAN": "1h",
    "TIME": "2026-05-06T18:00:00Z",
}
"""Words in capitals that a reader replaces, and what with."""


def parse(arguments: list[str]) -> None:
    """Let the program read the arguments; it runs nothing. Raises its error about them."""
    if not arguments or arguments[0].startswith("-"):
        # An option such as --install-completion acts as soon as it is parsed.
        options = {option for each in typer.main.get_command(build()).params for option in each.opts}
        assert {*arguments} <= {*options, "--help"}, f"no such option among {arguments}"
        return
    words = 2 if arguments[0] in GROUPS and not "".join(arguments[1:2]).startswith("-") else 1
    name = " ".join(arguments[:words])
    form = len(arguments) <= words or any("[" in each or each.endswith(("...", "…")) for each in arguments)
    if form:  # the page names a command, or shows its form
        assert name in {*ALL, *GROUPS, "COMMAND", "…"}, f"no command {name!r}"
        return
    assert name in ALL, f"no command {name!r}"
    ALL[name].context([PLACEHOLDERS.get(each, each) for each in arguments[words:]])


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_program_accepts_every_command_that_a_page_shows(page: Path) -> None:
    for line in typed(page):
        for arguments in our_commands(line):
            with suppress(typer.Exit):
                parse(arguments)


@pytest.mark.parametrize(
    "wrong", ["statsu now", "status --color", "brake stop", "pause --for 1h", "scan -o csv"]
)
def test_a_command_that_the_program_refuses_is_noticed(wrong: str) -> None:
    with pytest.raises(Exception, match=r"no command|[Nn]o such option|Missing|csv"):
        parse(wrong.split())


@pytest.mark.parametrize(
    ("line", "arguments"),
    [
        ("konductor-like status gpu-1", [["status", "gpu-1"]]),
        ("dmesg | konductor-like scan | head", [["scan"]]),
        ("A=1 konductor-like backtest --since 1d > out", [["backtest", "--since", "1d"]]),
        (
            "kubectl exec deploy/konductor-like -- konductor-like reset --all --yes",
            [["reset", "--all", "--yes"]],
        ),
        ("kubectl -n konductor-like get pods", []),
    ],
)
def test_our_commands_are_found_in_a_line(line: str, arguments: list[list[str]]) -> None:
    assert list(our_commands(line)) == arguments
