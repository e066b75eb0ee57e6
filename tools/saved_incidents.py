"""Make the saved incidents of the tests: ``python -m tools.saved_incidents [NAME…]``.

Each scene is played to the real controller with the stand-ins, and ``konductor-like incident save`` saves it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from konductor_like_sandbox.demo.stage import Stage
from konductor_like_sandbox.demo.xids import xid_message

FOLDER = Path(__file__).parents[1] / "tests" / "data" / "incidents"
GPU = "0000:4e:00"
LINK = "NETIR_LINK_EVT Fatal XC0 i0 Link 13 (0x00000000 0x00000000 0x0 0x0)"
WAIT_SECONDS = 180.0
SETTLE_SECONDS = 2.0
"""Seconds of several polls, after which nothing more is expected of a scene."""
EPISODE_SECONDS = 62.0
"""Seconds after which a line counts once more for a threshold."""
RULES = "overrides:\n  xid.31.threshold: 2 in 20m on one gpu\n"


@dataclass(frozen=True, slots=True)
class Scene:
    """One incident: what happens on a stage, and which node is saved."""

    play: Callable[[Stage], None]
    node: str = "gpu-03"
    tainted: bool = True
    options: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)
    rules: str = ""


def _xids(*codes: int, seconds_apart: float = 0.6) -> Callable[[Stage], None]:
    def play(stage: Stage) -> None:
        for place, code in enumerate(codes):
            time.sleep(seconds_apart * (place > 0))
            stage.kernel("gpu-03", xid_message(code, GPU))

    return play


def _line(text: str) -> Callable[[Stage], None]:
    return lambda stage: stage.kernel("gpu-03", text)


def _held(stage: Stage) -> None:
    for name in ("gpu-01", "gpu-02"):
        stage.kernel(name, xid_message(79, GPU))
        _until(lambda name=name: stage.node(name).tainted)  # type: ignore[misc]  # the loop's own name
    stage.kernel("gpu-03", xid_message(79, GPU))
    _until(lambda: stage.node("gpu-03").recorded(79))


def _by_person(stage: Stage) -> None:
    done = stage.run("taint", "gpu-03", "--reason", "smoke from the PSU")
    assert done.returncode == 0, done.stderr  # noqa: S101  # a tool


def _domain(stage: Stage) -> None:
    stage.kernel("gpu-03", f"NVRM: Xid (PCI:{GPU}): 149, {LINK}")
    time.sleep(1.2)
    for name in ("gpu-04", "gpu-05"):
        stage.kernel(name, f"NVRM: Xid (PCI:{GPU}): 149, {LINK}")


def _relapse(stage: Stage) -> None:
    _xids(79)(stage)
    _until(lambda: stage.node("gpu-03").tainted)
    stage.reboot("gpu-03")
    _until(lambda: not stage.node("gpu-03").tainted)
    time.sleep(SETTLE_SECONDS)
    _xids(79)(stage)


SCENES: Mapping[str, Scene] = {
    "xid-79": Scene(_xids(79)),
    "bus-without-xid": Scene(_line("NVRM: GPU at PCI:0000:4e:00: GPU has fallen off the bus.")),
    "xid-48-with-63-and-64": Scene(_xids(48, 63, 64)),
    "xid-94-threshold": Scene(_xids(94, 94, 94, seconds_apart=EPISODE_SECONDS)),
    "xid-31-not-tainted": Scene(_xids(31), tainted=False, options=("--outage", "0")),
    "sxid": Scene(
        _line("nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 12028, Fatal, Link 32 egress non-posted PRIV error")
    ),
    "held-by-the-brake": Scene(
        _held, tainted=False, options=("--outage", "0"), settings={"KONDUCTOR_BRAKE_MAX_PERCENT": "20"}
    ),
    "tainted-by-a-person": Scene(_by_person),
    "nvlink-domain": Scene(_domain),
    "relapse-after-a-reboot": Scene(
        _relapse, settings={"KONDUCTOR_RETURN": "reboot", "KONDUCTOR_RETURN_QUIET_SECONDS": "0"}
    ),
    "own-rules": Scene(_xids(31, 31, seconds_apart=EPISODE_SECONDS), rules=RULES),
}


def _until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not holds():
        if time.monotonic() > end:
            raise TimeoutError("the scene did not come to its end")
        time.sleep(0.1)


@contextmanager
def _stage(scene: Scene) -> Iterator[Stage]:
    with TemporaryDirectory() as folder:
        settings = {"KONDUCTOR_BRAKE_MAX_PERCENT": "100", **scene.settings}
        if scene.rules:
            rules = Path(folder) / "rules.yaml"
            rules.write_text(scene.rules, "utf-8")
            settings["KONDUCTOR_RULES_FILE"] = str(rules)
        with Stage(settings=settings) as stage:
            for name in ("gpu-03", "gpu-04", "gpu-05"):
                stage.cluster.edit_node(
                    name,
                    lambda node: node["metadata"]["labels"].update({"nvidia.com/gpu.clique": "rack-7.1"}),
                )
            stage.keep_beating()
            stage.start_controller()
            _until(lambda: stage.heard() == set(stage.gpu_nodes))
            yield stage


def save(name: str) -> None:
    """Play one scene, and save it. Raises TimeoutError or RuntimeError."""
    scene, file = SCENES[name], FOLDER / f"{name}.json"
    with _stage(scene) as stage:
        scene.play(stage)
        _until(lambda: stage.node(scene.node).tainted is scene.tainted)
        time.sleep(SETTLE_SECONDS if scene.tainted else 3 * SETTLE_SECONDS)
        options = (*scene.options, "--since", "1h", "--force", "-o", str(file))
        done = stage.run("incident", "save", scene.node, *options)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
    sys.stdout.write(f"{name}\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for chosen in sys.argv[1:] or SCENES:
        save(chosen)
