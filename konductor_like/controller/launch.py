"""Starting the controller: ``python -m konductor_like.controller.launch`` and ``konductor-like run``.

The controller runs in a thread of its own, and the main thread waits for signals. A Python signal handler
that sets a ``threading.Event`` can deadlock with a main thread that waits on the same Event. Therefore every
thread blocks the signals, and the main thread takes them with ``sigwait``. This also makes SIGTERM work for
process 1 of a container, which has no default handlers.

If the rules file changes and is valid, the controller ends as after SIGTERM, and the process starts the same
program again in its place.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

from pydantic import ValidationError

from konductor_like.build import this_program
from konductor_like.catalog import RulesError
from konductor_like.cluster.api.errors import KubeConfigError
from konductor_like.controller import logs
from konductor_like.controller.loop.active_rules import ActiveRules, RulesWatch
from konductor_like.controller.loop.leader import Controller
from konductor_like.controller.reporting.health_server import HealthServer
from konductor_like.controller.reporting.metrics import Metrics
from konductor_like.controller.wiring import Options, open_controller
from konductor_like.exits import Exit
from konductor_like.loki.query.errors import LokiMisconfigured
from konductor_like.settings import Settings
from konductor_like.settings_report import explain_settings_error, removed, without_effect

_FINISHED = signal.SIGUSR1
_AGAIN = signal.SIGUSR2
_AWAITED = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, _FINISHED, _AGAIN}


def run(
    settings: Settings,
    *,
    once: bool = False,
    dry_run: bool = False,
    kubeconfig: str | None = None,
    context: str | None = None,
) -> int:
    """Run the controller until a signal arrives. Return the exit code. Call it from the main thread only."""
    logs.set_up(settings.log_format, settings.log_level)
    program = this_program()
    logs.info(f"konductor-like {program} starts.", version=program.version, build=program.build)
    for sentence in without_effect(os.environ) + removed(os.environ):
        logs.warning(sentence)
    options = Options(once, dry_run, kubeconfig, context)
    look = threading.Event()
    return supervise(lambda stop: _serve(settings, options, stop, look), on_hangup=look.set)


def start_again() -> None:
    """End the work as after SIGTERM, and start the same program again. Any thread may call it."""
    os.kill(os.getpid(), _AGAIN)


def _serve(settings: Settings, options: Options, stop: threading.Event, look: threading.Event) -> int:
    metrics = Metrics()
    watch = None if options.once else partial(_watch, look)
    try:
        with ExitStack() as exits:
            controller = exits.enter_context(open_controller(settings, options, metrics, stop, watch))
            if not options.once:
                _start_probes(settings, metrics, controller, exits)
            return controller.run(stop)
    except (KubeConfigError, LokiMisconfigured) as error:
        logs.error(logs.error_text(error))
    except RulesError as error:
        for problem in error.problems:
            logs.error(f"Rules file refused: {problem}.")
        logs.error(error.hint)
    except (ValueError, OSError) as error:
        logs.error(str(error))
    return Exit.USAGE


def _watch(look: threading.Event, rules: ActiveRules) -> RulesWatch:
    return RulesWatch(rules=rules, asked=look, again=start_again)


def _start_probes(settings: Settings, metrics: Metrics, controller: Controller, exits: ExitStack) -> None:
    if settings.listen == "off":
        return
    try:
        probes = HealthServer(
            settings.listen, metrics.registry, alive=controller.alive, ready=controller.ready
        )
    except OSError as error:
        if "listen" in settings.model_fields_set:
            raise OSError(f"cannot listen on KONDUCTOR_LISTEN={settings.listen}: {error.strerror}") from error
        logs.warning(f"Metrics and probes are off: cannot listen on {settings.listen} ({error.strerror}).")
        return
    exits.callback(probes.close)


def supervise(work: Callable[[threading.Event], int], on_hangup: Callable[[], object]) -> int:
    """Run ``work(stop)`` in a thread and handle signals meanwhile.

    The first SIGTERM or SIGINT sets ``stop``; a second one ends the process at once. SIGHUP calls
    ``on_hangup``, unless the terminal of the process was closed: then SIGHUP counts as SIGTERM. After
    :func:`start_again` the process starts again when ``work`` has ended. Return the result of ``work``, or
    130 after an interrupt from the keyboard.
    """
    stop, again = threading.Event(), False
    result: list[int] = []
    on_terminal = _on_terminal()

    def run() -> None:
        try:
            result.append(work(stop))
        finally:
            os.kill(os.getpid(), _FINISHED)

    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    interrupted = False
    try:
        worker = threading.Thread(target=run, name="controller")
        worker.start()
        while (received := signal.sigwait(_AWAITED)) != _FINISHED:
            if received == signal.SIGHUP and on_terminal == _on_terminal():
                on_hangup()
                continue
            if received == _AGAIN:
                again = again or not stop.is_set()
                stop.set()
                continue
            if stop.is_set() and not again:
                os._exit(Exit.INTERRUPTED)
            again = False
            interrupted = received == signal.SIGINT
            stop.set()
        worker.join()
        if again and result == [Exit.OK]:
            # The signals stay blocked: one that arrives before the new program waits for signals is not lost.
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606  # the same program
    finally:
        # A thread that looks at the rules file may still ask for another start: nobody hears it any more.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED - {_AGAIN})
    if not result:
        return Exit.FAILED
    return Exit.INTERRUPTED if interrupted and result[0] == Exit.OK else result[0]


def _on_terminal() -> bool:
    return sys.stderr is not None and sys.stderr.isatty()


def main(arguments: list[str] | None = None) -> int:
    """Parse the arguments, run the controller and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m konductor_like.controller.launch",
        description="Taint nodes whose logs report a broken GPU. Environment variables are the settings.",
    )
    parser.add_argument(
        "--once", action="store_true", help="read Loki up to now, write to the nodes, and exit"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="log every write that the controller would make; write nothing"
    )
    parser.add_argument("--kubeconfig", help="kubeconfig file to use")
    parser.add_argument("--context", help="kubeconfig context to use")
    chosen = parser.parse_args(arguments)
    try:
        settings = Settings()
    except ValidationError as error:
        for line in explain_settings_error(error, os.environ):
            print(line, file=sys.stderr)  # noqa: T201  # the log is not set up: it needs the settings
        return Exit.USAGE
    return run(settings, **vars(chosen))


if __name__ == "__main__":
    sys.exit(main())
