"""Find the API server and the credentials for it.

An explicit kubeconfig comes first, then ``KUBECONFIG`` or ``~/.kube/config`` if such a file exists, then the
pod's own service account. The user's kubeconfig is never written. Certificates inside the kubeconfig are
written to a temporary folder, loaded from there, and removed.
"""

# The official client is annotated in part only.
# mypy: disable-error-code="no-untyped-call"
from __future__ import annotations

import logging
import os
import ssl
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from konductor_like.cluster.api.errors import KubeConfigError, KubeError, KubeUnauthorized
from konductor_like.cluster.api.transport import Connection
from konductor_like.model.text import excerpt

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_CONNECTIONS_KEPT = 100  # more than there are writing threads: urllib3 warns about each connection above it
_BYTES_MOST = 4 * 1024 * 1024
"""The largest kubeconfig; the loader reads some 400 KB a second."""
_FILES = ("ssl_ca_cert", "cert_file", "key_file")
"""The fields of the official client's configuration that name a file with a certificate or a key."""
_MALFORMED = (TypeError, AttributeError)
_UNUSABLE = (OSError, ValueError, KeyError, ImportError, *_MALFORMED)
"""The exceptions that the official client's loaders raise on a malformed file, besides their own."""

_root_logger = threading.Lock()


def load(
    kubeconfig: str | None,
    context: str | None,
    environ: Mapping[str, str] | None = None,
    service_account: Path = SERVICE_ACCOUNT,
) -> Connection:
    """Find and load the configuration. Raises KubeConfigError if no usable configuration is found."""
    environ = os.environ if environ is None else environ
    if kubeconfig is not None:
        if not _is_there(kubeconfig):
            raise KubeConfigError(f"there is no kubeconfig {excerpt(kubeconfig)}")
        return _from_files(kubeconfig, context)
    places = environ.get("KUBECONFIG") or "~/.kube/config"
    there = [place for place in places.split(os.pathsep) if place and _is_there(place)]
    if there:
        return _from_files(places, context)
    if context is not None:
        raise KubeConfigError(f"context {context!r} was asked for, but there is no kubeconfig at {places}")
    if not environ.get("KUBERNETES_SERVICE_HOST"):
        raise KubeConfigError(f"there is no kubeconfig at {places}, and this is not a pod in a cluster")
    return _from_service_account(environ, service_account)


def _is_there(place: str) -> bool:
    """Whether there is such a file. Raises KubeConfigError if it cannot be a kubeconfig."""
    try:
        path = Path(place).expanduser()
        size = path.stat().st_size if path.is_file() else None
    except (OSError, RuntimeError) as error:  # RuntimeError: ~nobody/config
        reason = error.strerror if isinstance(error, OSError) else error
        raise KubeConfigError(f"kubeconfig {excerpt(place)} cannot be used: {reason}") from error
    problem = "the file is empty" if size == 0 else f"it is larger than {_BYTES_MOST} bytes"
    if size is not None and not 0 < size <= _BYTES_MOST:
        raise KubeConfigError(f"kubeconfig {excerpt(place)} cannot be used: {problem}")
    return size is not None


def _from_files(places: str, context: str | None) -> Connection:
    # Imported here because the import takes about a second.
    from kubernetes.config.kube_config import KubeConfigLoader, KubeConfigMerger

    configuration = _blank_configuration()
    with (
        _reported(KubeConfigError, f"kubeconfig {places} cannot be used"),
        tempfile.TemporaryDirectory(prefix="konductor-like-") as folder,
    ):
        merged = KubeConfigMerger(places).config
        if merged is None:
            raise KubeConfigError(f"kubeconfig {places} is empty")
        wanted = context or merged.safe_get("current-context")
        known = [entry["name"] for entry in merged.value.get("contexts") or ()]
        if wanted not in known:
            listed = f"its contexts: {', '.join(map(str, known)) or 'none'}"
            which = f"context {wanted!r}" if wanted else "current context"
            raise KubeConfigError(
                f"kubeconfig {places} has no {which}", hint=f"choose with --context; {listed}"
            )
        loader = KubeConfigLoader(
            config_dict=merged, active_context=wanted, config_base_path=None, temp_file_path=folder
        )
        loader.load_and_set(configuration)
        if not configuration.host:
            raise KubeConfigError(f"kubeconfig {places} names no server for context {wanted!r}")
        if not hasattr(loader, "expiry"):
            configuration.refresh_api_key_hook = None  # a token without an end is never renewed
        namespace = loader.current_context["context"].get("namespace")
        return _connection(configuration, str(namespace) if namespace else None, in_cluster=False)


def _from_service_account(environ: Mapping[str, str], folder: Path) -> Connection:
    from kubernetes.config.incluster_config import InClusterConfigLoader

    configuration = _blank_configuration()
    with _reported(KubeConfigError, f"the pod's service account in {folder} cannot be used"):
        InClusterConfigLoader(
            token_filename=str(folder / "token"), cert_filename=str(folder / "ca.crt"), environ=environ
        ).load_and_set(configuration)
        own = folder / "namespace"
        namespace = own.read_text(encoding="utf-8").strip() if own.is_file() else None
        return _connection(configuration, namespace or None, in_cluster=True)


def _connection(configuration: Any, namespace: str | None, *, in_cluster: bool) -> Connection:
    hook = configuration.refresh_api_key_hook

    def renew() -> None:
        with _reported(KubeUnauthorized, "cannot renew the login"):
            hook(configuration)

    tls, certificates = _tls_context(configuration), {}
    for name in _FILES:
        if (place := getattr(configuration, name)) and tls is not None:
            certificates[name] = Path(place).read_bytes()
        # The file has been read; urllib3 must not read it again for every new connection.
        setattr(configuration, name, None)
    return Connection(
        configuration,
        namespace,
        in_cluster=in_cluster,
        tls=tls,
        certificates=certificates,
        renew=renew if hook else None,
    )


def _blank_configuration() -> Any:
    from kubernetes.client import Configuration

    configuration = Configuration(host="", connection_pool_maxsize=_CONNECTIONS_KEPT)
    configuration.retries = False  # the callers decide about retries, not urllib3
    configuration.keep_alive = True
    return configuration


def _tls_context(configuration: Any) -> ssl.SSLContext | None:
    if not configuration.host.startswith("https"):
        return None
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    # Python 3.13 sets this flag; the certificate authorities of many clusters do not satisfy it.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file:
        # A key with a passphrase is an error; without a password here OpenSSL would ask on the terminal.
        context.load_cert_chain(configuration.cert_file, configuration.key_file, password=lambda: b"")
    return context


@contextmanager
def _reported(kind: type[KubeError], what: str) -> Iterator[None]:
    """Turn each exception and each logged error of the client's loaders into one ``kind`` of error."""
    from kubernetes.config import ConfigException
    from yaml import YAMLError

    try:
        with _swallowed() as problems:
            yield
    except UnicodeDecodeError as error:
        raise kind(f"{what}: it is not UTF-8 text") from error
    except (ConfigException, YAMLError, *_UNUSABLE) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        if isinstance(error, _MALFORMED):
            reason = "its content has another form"
        raise kind(f"{what}: {excerpt(reason)}") from error
    if problems:
        raise kind(f"{what}: {excerpt(problems[0])}", hint="run the kubeconfig's login command by hand")


@contextmanager
def _swallowed() -> Iterator[list[str]]:
    """Collect the errors that the kubeconfig loader only logs, and keep them out of the log."""
    messages: list[str] = []

    def catch(record: logging.LogRecord) -> bool:
        if record.module != "kube_config":
            return True
        messages.append(record.getMessage())
        return False

    root, silence = logging.getLogger(), logging.NullHandler()
    with _root_logger:
        root.addHandler(silence)  # without a handler, logging.error() would install one
        root.addFilter(catch)
        try:
            yield messages
        finally:
            root.removeFilter(catch)
            root.removeHandler(silence)
