from __future__ import annotations

import base64
import json
import logging
import ssl
import tempfile
from pathlib import Path
from typing import Any

import pytest

from konductor_like.cluster.api import auth, transport
from konductor_like.cluster.api.client import KubeClient
from konductor_like.cluster.api.errors import KubeConfigError, KubeUnauthorized
from konductor_like.cluster.api.transport import Connection
from konductor_like_sandbox.kubernetes import KubernetesServer

CERTIFICATES = Path(__file__).parent.parent / "loki" / "certificates"
CA = CERTIFICATES / "ca.pem"


def config(path: Path, user: dict[str, Any] | None = None, **cluster: Any) -> Path:
    """Return a kubeconfig with the contexts ``east`` (current) and ``west``."""
    cluster = {"server": "https://east.example:6443", "certificate-authority": str(CA), **cluster}
    contexts = {
        "east": {"cluster": "east", "user": "kim", "namespace": "ml"},
        "west": {"cluster": "west", "user": "kim"},
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(
            {
                "clusters": [
                    {"name": "east", "cluster": cluster},
                    {"name": "west", "cluster": {**cluster, "server": "https://west.example"}},
                ],
                "users": [{"name": "kim", "user": {"token": "t-1"} if user is None else user}],
                "contexts": [{"name": name, "context": each} for name, each in contexts.items()],
                "current-context": "east",
            }
        )
    )
    return path


def load(
    kubeconfig_file: Path | None = None,
    context: str | None = None,
    folder: Path = Path("/none"),
    **environ: str,
) -> Connection:
    """Load with these flags, environment variables and service account."""
    return auth.load(None if kubeconfig_file is None else str(kubeconfig_file), context, environ, folder)


@pytest.fixture
def service_account(tmp_path: Path) -> Path:
    """The files that Kubernetes puts into a pod."""
    folder = tmp_path / "serviceaccount"
    folder.mkdir()
    (folder / "token").write_text("pod-token\n")
    (folder / "namespace").write_text("gpu-health")
    (folder / "ca.crt").write_bytes(CA.read_bytes())
    return folder


POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


# The places of the configuration.


def test_the_current_context_is_used(tmp_path: Path) -> None:
    access = load(config(tmp_path / "c"))

    assert access.host == "https://east.example:6443"
    assert access.authorization() == "Bearer t-1"
    assert (access.namespace, access.in_cluster) == ("ml", False)


def test_another_context_can_be_asked_for(tmp_path: Path) -> None:
    access = load(config(tmp_path / "c"), "west")

    assert (access.host, access.namespace) == ("https://west.example", None)


def test_an_explicit_file_comes_before_the_environment_and_a_pods_account(
    tmp_path: Path, service_account: Path
) -> None:
    other = config(tmp_path / "other", server="https://other.example")

    access = load(config(tmp_path / "c"), None, service_account, KUBECONFIG=str(other), **POD)

    assert access.host == "https://east.example:6443"


def test_files_in_the_environment_are_merged_as_kubectl_does(tmp_path: Path) -> None:
    places = f"{tmp_path / 'none'}:{config(tmp_path / 'c')}"

    assert load(KUBECONFIG=places).host == "https://east.example:6443"


def test_the_default_file_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    config(tmp_path / ".kube" / "config")

    assert load().namespace == "ml"


def test_in_a_pod_its_service_account_is_used(service_account: Path) -> None:
    access = load(None, None, service_account, **POD)

    assert access.host == "https://10.0.0.1:443"
    assert access.authorization() == "bearer pod-token"
    assert (access.namespace, access.in_cluster) == ("gpu-health", True)


def test_in_a_pod_with_a_kubeconfig_that_is_not_there_so_too(service_account: Path) -> None:
    assert load(None, None, service_account, KUBECONFIG="/none/config", **POD).in_cluster


# Configurations that cannot be used.


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(KubeConfigError, match=r"there is no kubeconfig .*/none"):
        load(tmp_path / "none")


@pytest.mark.parametrize(
    ("place", "reason"),
    [("x" * 5000, "File name too long"), ("~nobody-of-that-name/config", "home directory")],
    ids=["long", "home of nobody"],
)
def test_a_name_that_no_file_can_have_is_refused(place: str, reason: str) -> None:
    with pytest.raises(KubeConfigError, match=f"cannot be used: .*{reason}"):
        auth.load(place, None, {})


def test_a_huge_file_is_refused_unread(tmp_path: Path) -> None:
    (tmp_path / "core").write_bytes(b"x" * 10_000_000)

    with pytest.raises(KubeConfigError, match="core cannot be used: it is larger than 4194304 bytes"):
        load(tmp_path / "core")


@pytest.mark.parametrize(
    ("content", "reason"), [(b"", "the file is empty"), (b"\x7fELF\xff", "it is not UTF-8 text")]
)
def test_a_file_without_text_is_refused_in_plain_words(content: bytes, reason: str, tmp_path: Path) -> None:
    (tmp_path / "config").write_bytes(content)

    with pytest.raises(KubeConfigError, match=f"config cannot be used: {reason}$"):
        load(tmp_path / "config")


def test_without_any_configuration_the_error_names_the_places() -> None:
    with pytest.raises(
        KubeConfigError, match=r"no kubeconfig at ~/.kube/config, and this is not a pod"
    ) as caught:
        load()

    assert "--kubeconfig" in caught.value.hint


def test_a_context_without_any_kubeconfig_is_refused_even_in_a_pod(service_account: Path) -> None:
    with pytest.raises(KubeConfigError, match="context 'east' was asked for"):
        load(None, "east", service_account, **POD)


def test_an_unknown_context_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(KubeConfigError, match="has no context 'north'") as caught:
        load(config(tmp_path / "c"), "north")

    assert caught.value.hint == "choose with --context; its contexts: east, west"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "just words",
        "- a\n- b",
        "a: [",
        '{"contexts": 5}',
        '{"contexts": [5]}',
        '{"clusters": [{}]}',
        "{}",
        "\0",
    ],
)
def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c"
    path.write_text(text)

    with pytest.raises(KubeConfigError, match=f"kubeconfig {path}"):
        load(path)


@pytest.mark.parametrize(
    "changes",
    [
        {"server": ""},
        {"certificate-authority": "/none/ca.pem"},
        {"certificate-authority-data": "!!"},
        {"certificate-authority-data": base64.b64encode(b"no certificate").decode()},
    ],
    ids=str,
)
def test_a_cluster_that_cannot_be_used_is_refused(tmp_path: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(KubeConfigError, match="kubeconfig"):
        load(config(tmp_path / "c", **changes))


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_an_incomplete_service_account_is_refused(service_account: Path, missing: str) -> None:
    (service_account / missing).unlink()

    with pytest.raises(KubeConfigError, match="service account"):
        load(None, None, service_account, **POD)


# Login commands.


def login(tmp_path: Path, script: str) -> dict[str, Any]:
    """A user who logs in with a command."""
    command = tmp_path / "login"
    command.write_text(f"#!/bin/sh\n{script}\n")
    command.chmod(0o755)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(command)}}


def granted(token: str, expires: str = "2026-01-01T00:00:00Z") -> str:
    """Return the output of a login command."""
    credential = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": token, "expirationTimestamp": expires},
    }
    return f"echo '{json.dumps(credential)}'"


def test_a_login_command_gives_the_token(tmp_path: Path) -> None:
    access = load(config(tmp_path / "c", user=login(tmp_path, granted("t-9", "2099-01-01T00:00:00Z"))))

    assert access.authorization() == "Bearer t-9"


def test_a_login_command_that_fails_is_an_error_and_is_not_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    user = login(tmp_path, "echo 'the SSO session has expired' >&2; exit 1")

    with pytest.raises(KubeConfigError, match="the SSO session has expired"):
        load(config(tmp_path / "c", user=user))

    assert caplog.records == []
    assert capfd.readouterr().err == ""


def test_an_expired_token_is_renewed_by_the_command_and_a_failed_renewal_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "_RENEW_SECONDS", 0.0)
    user = login(tmp_path, granted("t-1"))
    access = load(config(tmp_path / "c", user=user))
    login(tmp_path, granted("t-2"))
    assert access.authorization() == "Bearer t-2"

    login(tmp_path, "echo 'no network' >&2; exit 1")

    with pytest.raises(
        KubeUnauthorized, match=r"cannot renew the login: exec: process returned 1\. no network"
    ):
        access.authorization()


def test_loading_leaves_the_root_logger_as_it_was(tmp_path: Path) -> None:
    root = logging.getLogger()
    before = (list(root.handlers), list(root.filters), root.level)

    load(config(tmp_path / "c"))

    assert (root.handlers, root.filters, root.level) == before


# Files.


def test_the_users_file_is_never_written(tmp_path: Path) -> None:
    path = config(tmp_path / "c", user=login(tmp_path, granted("t-1")))
    path.chmod(0o400)
    before = path.read_bytes()

    load(path).authorization()

    assert path.read_bytes() == before


def test_a_token_file_may_end_in_a_newline(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("t-5\n")

    access = load(config(tmp_path / "c", user={"tokenFile": str(tmp_path / "token")}))

    assert access.authorization() == "Bearer t-5"


def test_inline_certificates_work_over_tls_and_leave_no_file_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    inline = {
        name: base64.b64encode((CERTIFICATES / name).read_bytes()).decode()
        for name in ("ca.pem", "client.pem", "client.key")
    }
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "server.pem", CERTIFICATES / "server.key")
    context.load_verify_locations(CA)
    context.verify_mode = ssl.CERT_REQUIRED

    with KubernetesServer(ssl_context=context) as server:
        user = {"client-certificate-data": inline["client.pem"], "client-key-data": inline["client.key"]}
        path = config(
            tmp_path / "c", user, **{"server": server.url, "certificate-authority-data": inline["ca.pem"]}
        )
        KubeClient.connect(str(path), None, 5.0).close()
        client = KubeClient.connect(
            str(path), None, 5.0
        )  # the official client keeps the files of the first configuration
        left = list(scratch.iterdir())
        nodes = client.list("/api/v1/nodes")
        client.close()

    assert left == []
    assert nodes["items"] == []
