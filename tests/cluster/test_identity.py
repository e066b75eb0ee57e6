from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from konductor_like.cluster.lease import election as lease
from konductor_like.cluster.lease.election import is_dead, own_identity

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/ns/pid").exists(), reason="needs the process table of Linux"
)


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that lives until it is killed."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        yield process
        process.kill()


def of(pid: int) -> str:
    """Return the identity of a process on this machine."""
    host, place, _, _ = own_identity({}).rsplit("_", 3)
    _, start = lease._state_and_start(pid) or ("", "0")
    return f"{host}_{place}_{pid}_{start}"


def test_in_a_pod_it_is_the_pod() -> None:
    assert own_identity({"POD_NAME": "konductor-like-5f-x", "POD_UID": "7e1"}) == "konductor-like-5f-x_7e1"


@pytest.mark.parametrize("environ", [{}, {"POD_NAME": "x"}, {"POD_UID": "7e1"}])
def test_elsewhere_it_is_this_very_process(environ: dict[str, str]) -> None:
    host, place, pid, start = own_identity(environ).rsplit("_", 3)

    assert (host, pid) == (socket.gethostname(), str(os.getpid()))
    assert len(place) == 16
    assert int(start) > 0


def test_we_are_alive() -> None:
    assert not is_dead(own_identity({}))


def test_a_process_is_alive_until_it_ends(child: subprocess.Popen[bytes]) -> None:
    name = of(child.pid)
    assert not is_dead(name)

    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # the process has ended and is a zombie

    assert is_dead(name)
    child.wait()
    assert is_dead(name)


def test_another_process_under_the_same_number_is_not_the_holder(child: subprocess.Popen[bytes]) -> None:
    front, start = of(child.pid).rsplit("_", 1)

    assert is_dead(f"{front}_{int(start) - 1}")


@pytest.mark.parametrize(
    "holder",
    [
        "",
        "konductor-like-5f-x_7e1",
        "other_0123456789abcdef_1_5",
        "a_b_c_d",
        "host_{place}_0_5",
        "host_{place}_-1_5",
        "host_{place}_x_5",
        "host_{place}_99999999999999_5",
    ],
)
def test_of_anybody_else_nothing_is_claimed(holder: str) -> None:
    assert not is_dead(holder.format(place=lease._place()))


def test_a_process_that_we_may_not_look_at_is_taken_for_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_pid: int, _signal: int) -> None:
        raise PermissionError

    name = of(os.getpid())
    monkeypatch.setattr(os, "kill", refused)
    monkeypatch.setattr(lease, "_state_and_start", lambda _pid: None)

    assert not is_dead(name)


def test_where_no_process_table_is_shown_every_process_is_a_stranger(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "_place", lambda: None)

    first, again = own_identity({}), own_identity({})
    monkeypatch.setattr(lease, "_NO_PLACE", "another process's")

    assert first == again
    assert first != own_identity({})
    assert not is_dead(first)
