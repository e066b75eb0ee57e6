"""Who we are on the Lease, and whether the process that a Lease names can still be alive.

In a pod the identity is the pod's name and UID (``POD_NAME``, ``POD_UID`` from the downward API): a
container that is restarted in place finds its own Lease. Anywhere else it is
``<host>_<hash>_<pid>_<start>``; the hash stands for this boot of this machine and its process namespace.
Only where that hash is our own can the process table say that a holder is dead; of everybody else's Lease
the expiry is waited for.
"""

from __future__ import annotations

import hashlib
import os
import socket
import uuid
from collections.abc import Mapping
from pathlib import Path

_DEAD_STATES = frozenset("ZX")


def own_identity(environ: Mapping[str, str] | None = None) -> str:
    """The identity of this process."""
    environ = os.environ if environ is None else environ
    pod, uid = environ.get("POD_NAME"), environ.get("POD_UID")
    if pod and uid:
        return f"{pod}_{uid}"
    host, pid = socket.gethostname() or "localhost", os.getpid()
    # Where the kernel shows no process table, nobody can be found dead in it.
    place = _place() or uuid.uuid4().hex[:16]
    _, start = _state_and_start(pid) or ("", "0")
    return f"{host}_{place}_{pid}_{start}"


def is_dead(identity: str) -> bool:
    """Whether this is a process of this very machine, boot and process namespace that has ended."""
    parts = identity.rsplit("_", 3)
    if len(parts) != 4 or parts[1] != _place():
        return False
    pid, start = parts[2], parts[3]
    if not (pid.isdecimal() and start.isdecimal() and 0 < int(pid) < 1 << 31):
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass  # somebody else's, so it is there
    found = _state_and_start(int(pid))
    if found is None:
        return False  # hidden from us: there, for all we know
    return found[0] in _DEAD_STATES or found[1] != start


def _place() -> str | None:
    """A hash of this boot and this process namespace; None where the kernel does not show them."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return None
    return hashlib.sha256(f"{boot_id} {namespace}".encode()).hexdigest()[:16]


def _state_and_start(pid: int) -> tuple[str, str] | None:
    """State letter and start time of a process (proc(5), fields 3 and 22)."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The name in parentheses may itself hold spaces and parentheses.
    fields = stat.rpartition(")")[2].split()
    return (fields[0], fields[19]) if len(fields) > 19 else None
