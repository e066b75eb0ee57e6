"""kubectl against the stand-in API server."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from konductor_like_sandbox.kubernetes import KubernetesServer

KUBECTL = shutil.which("kubectl")
needs_kubectl = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")


def kubectl(server: KubernetesServer, folder: Path, *arguments: str) -> str:
    """Run kubectl; what it printed, stderr included, whatever became of it."""
    config = server.kubeconfig(folder / "config")
    done = subprocess.run(
        [str(KUBECTL), f"--kubeconfig={config}", f"--cache-dir={folder / 'cache'}", *arguments],
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "NO_PROXY": "127.0.0.1"},
    )
    return done.stdout
