"""``reset --rule`` and ``reset --gpu``: only the named faults are released."""

from __future__ import annotations

from typing import Any

import pytest

from konductor_like.model import RECORD_ANNOTATION, TAINT_KEY, IncidentState, Severity
from konductor_like.policy.node.covers import PART_COVERS_MOST
from konductor_like_sandbox.kubernetes import KubernetesServer
from konductor_like_sandbox.kubernetes.fleet import make_node
from tests.cli.conftest import Cluster, Run
from tests.cli.scenes import boot_of, incident, with_record

OTHER_GPU = "0000:4e:00"


def two_faults(name: str = "gpu-1") -> dict[str, Any]:
    """Return a node that the controller tainted for Xid 79, and that is under a test on another GPU."""
    node = make_node(name)
    test = incident("xid.14", OTHER_GPU, severity=Severity.TEST, boot=boot_of(node), evidence="NVRM: Xid 14")
    return with_record(node, incident(boot=boot_of(node)), test, tainted=True)


@pytest.fixture
def server(cluster: Cluster) -> KubernetesServer:
    server = cluster("healthy")
    server.put_node(two_faults())
    return server


def open_rules(server: KubernetesServer, name: str = "gpu-1") -> set[str]:
    from konductor_like.cluster.node.record import decode

    record, _ = decode(server.node(name)["metadata"]["annotations"][RECORD_ANNOTATION])
    return {each.key.rule for each in record.incidents if each.state is not IncidentState.RELEASED}


def tainted(server: KubernetesServer, name: str = "gpu-1") -> bool:
    return any(taint["key"] == TAINT_KEY for taint in server.node(name)["spec"].get("taints") or ())


@pytest.mark.parametrize(
    "options",
    [
        *(("--rule", spelled) for spelled in ("xid.14", "xid 14", "XID-14", "xid14", "14")),
        *(("--gpu", spelled) for spelled in ("4e:00", "0000:4e:00", "00000000:4E:00.0", "PCI:0000:4e:00")),
        ("--rule", "63", "--rule", "14", "--gpu", "4e:00"),
    ],
    ids=" ".join,
)
def test_the_named_fault_is_released_however_it_is_spelled(
    options: tuple[str, ...], server: KubernetesServer, run: Run
) -> None:
    done = run("reset", "gpu-1", *options)

    assert done.code == 0
    assert done.out == (
        "node/gpu-1 xid 14 on GPU 0000:4e:00 released; the taint stays, for xid 79 on GPU 0000:9b:00\n"
    )
    assert (open_rules(server), tainted(server)) == ({"xid.79"}, True)
    [event] = server.objects("events", "default")
    assert event["message"].startswith("xid 14 on GPU 0000:4e:00 released by ")


def test_the_taint_goes_with_its_last_reason(server: KubernetesServer, run: Run) -> None:
    run("reset", "gpu-1", "--rule", "14")

    done = run("reset", "gpu-1", "--rule", "79", "--yes")

    assert done.out == "node/gpu-1 untainted: xid 79 on GPU 0000:9b:00 released\n"
    assert "Unmet need: reboot (xid 79 on GPU 0000:9b:00)." in done.err
    assert (open_rules(server), tainted(server)) == (set(), False)
    assert "(reset of xid 14 on GPU 0000:4e:00)" in run("explain", "node", "gpu-1").out


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--rule", "95"), "node/gpu-1 has no open xid 95 on record; open are: xid 79 on GPU 0000:9b:00,"),
        (("--gpu", "aa:00"), "node/gpu-1 has no open fault on GPU aa:00 on record; open are: xid 79"),
        (("--rule", "79", "--gpu", "4e:00"), "node/gpu-1 has no open xid 79 on GPU 4e:00 on record"),
        (("--rule", "site.fan"), "node/gpu-1 has no open site fan on record; open are: xid 79"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_name_that_nothing_fits_is_refused_and_the_open_faults_are_named(
    options: tuple[str, ...], says: str, server: KubernetesServer, run: Run
) -> None:
    done = run("reset", "gpu-1", *options)

    assert done.code == 1
    assert says in done.err
    assert server.calls("patch") == []


def test_too_many_faults_released_one_by_one_ask_for_a_reset_of_the_whole_node(
    cluster: Cluster, run: Run
) -> None:
    server, node = cluster("healthy"), make_node("gpu-1")
    many = [incident(f"xid.{code}", boot=boot_of(node)) for code in range(200, 200 + PART_COVERS_MOST)]
    server.put_node(with_record(node, *many, incident("xid.79", OTHER_GPU, boot=boot_of(node)), tainted=True))
    assert run("reset", "gpu-1", "--gpu", "9b:00", "--yes").code == 0

    done = run("reset", "gpu-1", "--rule", "79", "--yes")

    assert done.code == 1
    assert "node/gpu-1 has too many faults released one by one: give neither --rule nor --gpu" in done.err
    assert run("reset", "gpu-1", "--yes").code == 0
    assert not tainted(server)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--gpu", "4e"), "a PCI bus id looks like 4e:00"),
        (("--rule", "79!"), "there is no fault '79!'"),
        (("--rule", "xid.abc"), "there is no fault 'xid.abc'"),
        (("--rule", ""), "an empty word"),
        (("--rule", "79", "--purge"), "--purge removes the whole record"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_a_fault_is_a_usage_error(
    options: tuple[str, ...], says: str, server: KubernetesServer, run: Run
) -> None:
    done = run("reset", "gpu-1", *options)

    assert done.code == 2
    assert says in done.err
    assert server.calls("patch") == []


def test_a_dry_run_writes_nothing(server: KubernetesServer, run: Run) -> None:
    done = run("reset", "gpu-1", "--rule", "14", "--dry-run")

    assert done.out.endswith("the taint stays, for xid 79 on GPU 0000:9b:00 (dry run)\n")
    assert server.calls("patch") == []


def test_without_names_only_nodes_with_such_a_fault_are_reset(server: KubernetesServer, run: Run) -> None:
    server.put_node(with_record(make_node("gpu-3"), incident(), tainted=True))

    done = run("reset", "--all", "--rule", "14", "--yes", "-o", "name")

    assert done.out == "node/gpu-1\n"
    assert run("reset", "--all", "--rule", "14", "--yes").err == (
        "Nothing to release: no node has the taint, and the brake holds no node with such a fault.\n"
    )
