"""``konductor-like demo``: plays the demonstration live on a terminal, or as plain lines in a pipe."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from konductor_like.cli.errors import CommandError
from konductor_like.cli.help import examples
from konductor_like.cli.options import Verbose, node_names
from konductor_like.cli.output import colourful, say, tell, warn
from konductor_like.exits import Exit
from konductor_like.model.text import clipped

if TYPE_CHECKING:
    from rich.console import Console

    from konductor_like_sandbox.demo.kept import KeptDemo
    from konductor_like_sandbox.demo.stage import RunningController, Stage
    from konductor_like_sandbox.demo.story import Step

PROGRAM = "konductor-like"
_LOG_LINES_SHOWN = 15
_CODE = re.compile(r"[1-9][0-9]{0,2}")
_CODE_CHARS = 40
_BUS_ID = re.compile(
    r"(?:pci:)?((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2})(?:\.[0-7])?", re.ASCII | re.IGNORECASE
)
"""A PCI bus id as the driver, nvidia-smi and lspci print it."""
_ASSIGNMENT = re.compile(r"(\w{1,80})=[ -~]{0,200}")
_SETTING = re.compile(r"KONDUCTOR_[A-Z_]+|WATCHED_NAMESPACES")
_FLEET_NODES = 100
"""GPU nodes of ``--jobs`` without ``--nodes``."""


def _settings(assignments: list[str] | None) -> list[str] | None:
    for each in assignments or ():
        if not (found := _ASSIGNMENT.fullmatch(each)):
            raise typer.BadParameter(f"expected NAME=VALUE, got {clipped(each, _CODE_CHARS)!r}")
        if not _SETTING.fullmatch(found[1]):
            raise typer.BadParameter(f"expected KONDUCTOR_… or WATCHED_NAMESPACES, not {found[1]}")
    return assignments


_SET = typer.Option(
    "--set", metavar="NAME=VALUE", help="A controller's setting; may repeat.", callback=_settings
)


@examples("demo", "demo --keep", "demo --keep --set KONDUCTOR_RETURN=reboot", "demo --nodes 600 --jobs")
def demo(
    ctx: typer.Context,
    *,
    nodes: Annotated[
        int | None,
        typer.Option("--nodes", metavar="N", min=40, max=2000, help="Play a large fleet's story."),
    ] = None,
    jobs: Annotated[
        bool, typer.Option("--jobs", help="Jobs run on the fleet, as pods; one of them dies.")
    ] = False,
    notify: Annotated[
        bool, typer.Option("--notify", help="Show the messages that the controller sends to a chat.")
    ] = False,
    assignments: Annotated[list[str] | None, _SET] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave the demo cluster running at the end, until Ctrl-C.")
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Watch the real controller at work on a made-up fleet.

    The demo needs no cluster, no Loki and no GPU. -v shows the controller's log.
    """
    if ctx.invoked_subcommand is not None:
        return
    from rich.console import Console

    from konductor_like.cli.session import ending_by_signal
    from konductor_like_sandbox.demo import fleet, story, validation
    from konductor_like_sandbox.demo.chat import Chat
    from konductor_like_sandbox.demo.stage import Stage

    plain = None if colourful(sys.stdout) else False  # NO_COLOR: not even bold text or a moving line
    console = Console(force_terminal=plain, highlight=False, soft_wrap=True, markup=False, emoji=False)
    given = dict(each.split("=", 1) for each in assignments or ())
    _warn_of_unused(given)
    count = nodes or (_FLEET_NODES if jobs else None)
    with ExitStack() as exits:
        exits.enter_context(ending_by_signal())
        chat = exits.enter_context(Chat(lambda text: _show_message(console, text))) if notify else None
        settings = (fleet.settings_of(count) if count else {}) | (chat.settings if chat else {})
        settings |= validation.settings_of(given) | given
        stage = exits.enter_context(Stage(count or 10, settings, jobs=jobs))
        if given and (found := stage.run("check-config")).returncode:
            tell(found.stderr.rstrip())
            raise typer.Exit(Exit.USAGE)
        console.print("Starting a stand-in Loki, a stand-in Kubernetes API server and the real controller.\n")
        stage.keep_beating()
        validated = given.get("KONDUCTOR_RETURN") == "validated"
        if validated:
            console.print("GPUs and the tests of validations are simulated: every test passes, at once.\n")
        controller = stage.start_controller()
        steps = fleet.steps(controller, stage) if count else story.steps(controller, validated=validated)
        if not _play(console, stage, controller, steps, verbose=verbose):
            raise typer.Exit(Exit.FAILED)
        if chat:
            chat.wait()
        _show_status(console, stage)
        if not keep:
            program = next(_setup_lines(), "").removeprefix("export PATH=").removesuffix(":$PATH")
            command = f"{program}/{PROGRAM}" if program else PROGRAM
            same = "".join((f" --nodes {nodes}" if nodes else "", " --jobs" if jobs else ""))
            same += " --set KONDUCTOR_RETURN=validated" if validated else ""
            console.print(f"\nAll steps passed. To look around yourself: {command} demo{same} --keep")
            return
        _keep(console, stage)


def _warn_of_unused(given: Mapping[str, str]) -> None:
    """Name the settings of the shell: they are for another cluster, so the demo leaves them out."""
    for name in sorted(os.environ):
        if name.startswith("KONDUCTOR_") and name not in given:
            warn(f"{name} of your shell is not used here; --set {name}=… sets it for the demo")


def _show_message(console: Console, text: str) -> None:
    for number, line in enumerate(text.splitlines()):
        console.print(f"   {'chat:' if number == 0 else '     '} {line}", style="cyan")


def _xid_code(code: str) -> str:
    if not _CODE.fullmatch(code):
        raise typer.BadParameter(f"an Xid is a number from 1 to 999, not {clipped(code, _CODE_CHARS)!r}")
    return code


def bus_id(typed: str | None) -> str | None:
    """Return a PCI bus id as records have it: ``00000000:4E:00.0`` as ``0000:4e:00``. Raises BadParameter."""
    from konductor_like.detection.kernel_record import normal_pci

    found = _BUS_ID.fullmatch(typed.strip()) if typed is not None else None
    if typed is not None and found is None:
        raise typer.BadParameter(f"a PCI bus id looks like 4e:00 or 0000:4e:00.0, not {clipped(typed, 60)!r}")
    return normal_pci(found[1]) if found else None


@examples("demo xid gpu-03 79", "demo xid gpu-05 63 --gpu 0000:1b:00")
def xid(
    node: Annotated[str, typer.Argument(metavar="NODE", help="A GPU node of the demo.", callback=node_names)],
    code: Annotated[
        str, typer.Argument(metavar="CODE", help="The number of the Xid, such as 79.", callback=_xid_code)
    ],
    *,
    gpu: Annotated[
        str, typer.Option("--gpu", metavar="ID", help="The PCI bus id of the GPU (4e:00).", callback=bus_id)
    ] = "0000:4e:00",
    _verbose: Verbose = False,
) -> None:
    """Write an Xid to a node's kernel log in the demo that runs with --keep."""
    from konductor_like_sandbox.demo.xids import xid_message

    bus = gpu if gpu.count(":") > 1 else f"0000:{gpu}"  # the driver prints the domain, too
    with _kept_demo(node) as kept:
        say([f"{node}: {kept.write_line(node, xid_message(int(code), bus))}"])


@examples("demo reboot gpu-03", "demo reboot gpu-07")
def reboot(
    node: Annotated[str, typer.Argument(metavar="NODE", help="A GPU node of the demo.", callback=node_names)],
    *,
    _verbose: Verbose = False,
) -> None:
    """Reboot a node in the demo that runs with --keep.

    The Node gets a new boot id, and its heartbeats are those of the new boot.
    """
    from uuid import uuid4

    from konductor_like.cli import session
    from konductor_like.cluster.api.client import KubeClient, node_path

    boot_id = str(uuid4())
    change = {"op": "replace", "path": "/status/nodeInfo/bootID", "value": boot_id}
    with _kept_demo(node) as kept, session.connected(KubeClient, kept.kubeconfig, None) as (client, _):
        client.patch(f"{node_path(node)}/status", [change])
        say([f"{node}: booted, boot id {boot_id}"])


@contextmanager
def _kept_demo(node: str) -> Iterator[KeptDemo]:
    """Find the demo that has this node; at the end, print how to look at the node."""
    from konductor_like_sandbox.demo.kept import NoDemoError, find

    try:
        kept = find()
        if node not in kept.booted_ns:
            names = list(kept.booted_ns)
            raise CommandError(
                f"the demo has no GPU node {node}", hint=f"its GPU nodes are {names[0]} to {names[-1]}"
            )
        yield kept
    except NoDemoError as error:
        hint = error.hint or f"start one in another terminal: {PROGRAM} demo --keep"
        raise CommandError(str(error), hint=hint) from error
    tell(f"hint: KUBECONFIG={shlex.quote(kept.kubeconfig)} {PROGRAM} explain {node}")


def _play(
    console: Console, stage: Stage, controller: RunningController, steps: Iterable[Step], *, verbose: bool
) -> bool:
    """Play every step and return whether all steps succeeded."""
    from konductor_like_sandbox.demo.story import StoryError, play

    for number, step in enumerate(steps, start=1):
        console.print(f"{number}. {step.title}", style="bold")
        try:
            with console.status("waiting …"):
                outcome = play(step, stage, controller)
        except StoryError as error:
            _show_failure(console, controller, error)
            return False
        console.print(f"   ✓ {outcome}", style="green")
        if verbose:
            for line in list(controller.log):
                console.print(f"     {line}", style="dim")
        controller.log.clear()
    return True


def _show_failure(console: Console, controller: RunningController, error: Exception) -> None:
    console.print(f"   ✗ {error}", style="red")
    console.print("\nThe controller's last lines:")
    for line in list(controller.log)[-_LOG_LINES_SHOWN:]:
        console.print(f"  {line}")


def _show_status(console: Console, stage: Stage) -> None:
    console.print(f"\n$ {PROGRAM} status", style="bold")
    if console.is_terminal:
        stage.run("status", show=True)  # it fits its table to the terminal
    else:
        console.print(stage.run("status").stdout.rstrip("\n"))


def _keep(console: Console, stage: Stage) -> None:
    """Print what people can try, and wait for Ctrl-C."""
    from konductor_like_sandbox.demo.kept import findable

    with ExitStack() as exits:
        try:
            exits.enter_context(findable(stage.kept))
        except (OSError, RuntimeError) as error:
            warn(f"`{PROGRAM} demo xid` will not find this demo: {error}")
        console.print(
            "\nAll steps passed. The brake is full now, so a further broken node is only held until the"
        )
        console.print("nodes are released. The demo keeps running until Ctrl-C. Try, in another terminal:\n")
        for line in (*_setup_lines(), *_commands(stage)):
            console.print(f"  {line}")
        try:
            threading.Event().wait()
        except KeyboardInterrupt:  # the documented end
            console.print("\nStopping the demo.")


def _setup_lines() -> Iterator[str]:
    """Yield the shell line that puts the program on PATH, unless it is there."""
    folder = Path(sys.executable).parent
    if shutil.which(PROGRAM) is None and (folder / PROGRAM).exists():
        yield f"export PATH={shlex.quote(str(folder))}:$PATH"


def _commands(stage: Stage) -> Iterator[str]:
    """Yield command lines that people can paste."""
    for name, value in stage.environment.items():
        yield f"export {name}={shlex.quote(value)}"
    yield f"{PROGRAM} status"
    names = stage.gpu_nodes
    idle = sum(len(job.nodes) for job in stage.jobs) or 5
    yield f"{PROGRAM} explain {names[3]}"
    yield f"{PROGRAM} doctor"
    yield f"{PROGRAM} history --since 1h"
    yield f"grep audit: {shlex.quote(str(stage.controller_log))}"
    yield f"{PROGRAM} reset --all --yes --reason 'trying it out'"
    yield f"{PROGRAM} brake reset"
    yield f"{PROGRAM} test {names[idle]}"
    yield f"{PROGRAM} demo xid {names[2]} 79"
    yield f"{PROGRAM} demo reboot {names[2]}"
    yield f"{PROGRAM} status --watch"
    if shutil.which("kubectl") is not None:
        yield "kubectl get nodes -L trainy.konduktor.ai/health"
        yield f"kubectl describe node {names[3]}"
        yield "kubectl events"
