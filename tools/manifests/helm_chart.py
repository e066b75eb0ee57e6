"""``make chart`` writes what the Helm chart copies from elsewhere, and renders the goldens with a real Helm.

Copied are parts of ``manifests/``, the kernel-log reader, the names of the settings and the version. A golden
carries a hash of the chart and its values: without Helm, a test still notices that it is out of date.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from pydantic import SecretStr

from konductor_like import __version__
from konductor_like.settings import Settings
from konductor_like.settings_report import REMOVED
from tools.generate_docs import _variable
from tools.manifests.embed import script
from tools.manifests.manifests import MANIFESTS, MONITORING, OPTIONAL

CHART = MANIFESTS.parent / "charts" / "konductor-like"
GOLDENS = MANIFESTS.parent / "tests" / "manifests" / "chart"
DASHBOARD = MANIFESTS / "grafana_dashboard.json"
FIXED = {
    "KONDUCTOR_LEASE_NAME",
    "KONDUCTOR_LISTEN",
    "KONDUCTOR_LOKI_TENANT",
    "KONDUCTOR_NAMESPACE",
    "KONDUCTOR_NOTIFY_SLACK_FILE",
    "KONDUCTOR_NOTIFY_WEBHOOK_FILE",
    "KONDUCTOR_RECOVERY_FILE",
    "KONDUCTOR_RULES_FILE",
    "LOG_ENDPOINT",
}
"""Settings that are no key of `settings`: objects of the chart depend on them, or `loki` has a key for
them."""
RELEASES: Mapping[str, tuple[str, str]] = {"renamed": ("gpu-watch", "gpu-watch")}
"""Release name and namespace of a golden; both are `konductor-like` otherwise."""
REFUSED: Mapping[str, str] = {
    "a value that does not exist": "imagee.tag=1",
    "a misspelt value of the image": "image.tagg=1",
    "a misspelt value of the reader": "reader.enable=true",
    "a misspelt value of Loki": "loki.endpont=http://loki:3100",
    "a setting that does not exist": "settings.KONDUCTOR_BRAKE_MAX_NODE=3",
    "a password in a ConfigMap": "settings.KONDUCTOR_LOKI_PASSWORD=secret",
    "a setting that the chart fixes": "settings.KONDUCTOR_LEASE_NAME=other",
    "a word that a setting does not know": "settings.KONDUCTOR_RETURN=rebooot",
    "a number out of a setting's bounds": "settings.KONDUCTOR_BRAKE_MAX_PERCENT=500",
    "a text out of a setting's bounds": "settings.KONDUCTOR_BRAKE_MAX_PERCENT=100.5",
    "a word in place of a number": "settings.KONDUCTOR_BRAKE_MAX_PERCENT=abc",
    "an address with a password as a setting": "settings.LOG_ENDPOINT=https://user:secret@loki.example.com",
    "a tenant as a setting": "settings.KONDUCTOR_LOKI_TENANT=gpu",
    "a list as a setting": "settings.WATCHED_NAMESPACES={a,b}",
    "an address without a scheme": "loki.endpoint=loki.example.com:3100",
    "an address with a password": "loki.endpoint=https://user:secret@loki.example.com",
    "a tag in the digest": "image.digest=0.1.0",
    "a tag in the repository": "image.repository=registry.example.com/konductor-like:0.1.0",
    "a digest in the repository": "image.repository=registry.example.com/konductor-like@sha256",
    "a word for a switch": "people.enabled=yes",
    "a misspelt part of the rules": "rules.overides.a=b",
    "a condition not in CamelCase": "nodeCondition.type=gpu-faulty",
    "names instead of objects": "imagePullSecrets={registry}",
    "validations without an image": "validation.enabled=true",
    "a level that dcgmi diag has and no validation": "validation.level=1",
    "two tolerations in one": "validation.tolerations={a b}",
    "a namespace that cannot be": "validation.namespace=Tests",
    "a word that a switch does not know": "recovery.return=validate",
    "returns by validations that are off": "recovery.return=validated",
    "a rehearsal of nothing": "recovery.recovery=rehearse",
}
"""Values that Helm must refuse, as `--set` takes them."""
AS_TEXT = {"a text out of a setting's bounds"}
"""Those that `--set-string` takes."""


def names() -> list[str]:
    """Return the settings that may stand in `settings`: no secret, and none that the chart fixes."""
    fields = Settings.model_fields.items()
    plain = {_variable(name, info) for name, info in fields if info.annotation != SecretStr | None}
    return sorted(plain - FIXED)


def accepted(name: str) -> dict[str, Any]:
    """Return the schema of a setting's values. A number or a switch may also be a string."""
    fields = {_variable(field, info): field for field, info in Settings.model_fields.items()}
    found = Settings.model_json_schema()["properties"][fields[name]]
    found = next((each for each in found.get("anyOf", ()) if each["type"] != "null"), found)
    bounds = {key: value for key, value in found.items() if key.lower().endswith("imum")}
    match found["type"]:
        case "number" | "integer":
            return {"anyOf": [{"type": found["type"], **bounds}, number_as_text(bounds)]}
        case "boolean":
            return {"enum": [True, False, *["true", "false", "yes", "no", "on", "off", "1", "0"]]}
    return {"enum": found["enum"]} if "enum" in found else {"$ref": "#/definitions/setting"}


def number_as_text(bounds: Mapping[str, float]) -> dict[str, Any]:
    """Return the schema of a number within these bounds that is written as text, in decimal digits.

    A pattern is all that a schema can say about a text, and Go's patterns cannot look ahead.
    """
    schema: dict[str, Any] = {"type": "string", "pattern": "^[0-9]+([.][0-9]+)?$"}
    too_small = [f"^{_below(bounds['minimum'])}$"] if bounds.get("minimum") else []
    if "exclusiveMinimum" in bounds:
        too_small.append(f"^{_at_most(bounds['exclusiveMinimum'])}$")
    if too_small:
        schema["not"] = {"anyOf": [{"pattern": each} for each in too_small]}
    if "maximum" in bounds:
        schema["allOf"] = [{"pattern": f"^{_at_most(bounds['maximum'])}$"}]
    return schema


def _at_most(bound: float) -> str:
    zeros = "0*" if bound % 1 else "([.]0+)?"
    return f"({_below(bound)}|0*{_digits(bound).replace('.', '[.]')}{zeros})"


def _below(bound: float) -> str:
    """Return the pattern of the decimal numbers below ``bound``, which is 0 or more."""
    whole, _, fraction = _digits(bound).partition(".")
    smaller = [rf"[0-9]{{1,{len(whole) - 1}}}"] if len(whole) > 1 else []
    smaller += [
        f"{whole[:at]}[0-{int(digit) - 1}][0-9]{{{len(whole) - at - 1}}}"
        for at, digit in enumerate(whole)
        if digit != "0"
    ]
    parts = [f"({'|'.join(smaller)})([.][0-9]+)?"] if smaller else []
    if fraction:
        parts.append(f"{whole}([.]{'|[.]'.join(_fractions_below(fraction))})?")
    return f"0*({'|'.join(parts)})" if parts else "[^0-9.]"


def _fractions_below(digits: str) -> Iterator[str]:
    for at, digit in enumerate(digits):
        if at:
            yield digits[:at]
        if digit != "0":
            yield f"{digits[:at]}[0-{int(digit) - 1}][0-9]*"


def _digits(number: float) -> str:
    return f"{number:f}".rstrip("0").rstrip(".") or "0"


def copies() -> Iterator[tuple[Path, str]]:
    """Yield each file of the chart that follows from another file, with its content."""
    files = CHART / "files"
    yield files / "kmsg.py", script()
    for name, source, own in (
        ("controller.yaml", "controller_deployment.yaml", ("Namespace", "ConfigMap", "Deployment")),
        ("reader.yaml", "dmesg_daemonset.yaml", ("ConfigMap", "DaemonSet")),
    ):
        parts = (MANIFESTS / source).read_text("utf-8").split("\n---\n")
        kept = [part for part in parts if yaml.safe_load(part)["kind"] not in own]
        yield files / name, "\n---\n".join(kept).rstrip() + "\n"
    for path in (*(MANIFESTS / name for name in (*OPTIONAL, *MONITORING)), DASHBOARD):
        yield files / path.name, path.read_text("utf-8")
    about = (CHART / "Chart.yaml").read_text("utf-8")
    # NOTES.txt names those that are set.
    yield (
        files / "removed_settings.yaml",
        "".join(f"{name}: {json.dumps(REMOVED[name])}\n" for name in sorted(REMOVED)),
    )
    yield CHART / "Chart.yaml", re.sub(r"(?m)^((?:appV|v)ersion: )[\w.+-]+", rf"\g<1>{__version__}", about)
    schema: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    settings = {
        **{name: accepted(name) for name in names()},
        **{name: {"$ref": "#/definitions/setting"} for name in REMOVED},
    }
    schema["properties"]["settings"]["properties"] = dict(sorted(settings.items()))
    yield CHART / "values.schema.json", json.dumps(schema, indent=2) + "\n"


def goldens() -> list[str]:
    """Return the names of the value sets; `default` has no values."""
    return [
        "default",
        *sorted(path.name.removesuffix(".values.yaml") for path in GOLDENS.glob("*.values.yaml")),
    ]


def head(name: str) -> str:
    """Return the first line of a golden: the hash of the chart and of the golden's values."""
    digest = hashlib.sha256(repr((RELEASES.get(name), sorted(REFUSED.items()))).encode())
    values = [GOLDENS / f"{name}.values.yaml"] if (GOLDENS / f"{name}.values.yaml").exists() else []
    for path in (*sorted(path for path in CHART.rglob("*") if path.is_file()), *values):
        digest.update(f"{path.relative_to(MANIFESTS.parent).as_posix()}\n".encode() + path.read_bytes())
    return f"# `make chart` rendered this from chart and values {digest.hexdigest()}\n"


def _helm(helm: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([helm, *arguments], check=False, capture_output=True, text=True, timeout=60)


def render(helm: str, name: str) -> str:
    """Return the objects of a value set, and what `helm install` says to the user. Raises RuntimeError."""
    release, namespace = RELEASES.get(name, ("konductor-like", "konductor-like"))
    file = GOLDENS / f"{name}.values.yaml"
    options = ["--namespace", namespace, *(["--values", str(file)] if file.exists() else [])]

    def template(chart: Path, *further: str) -> str:
        done = _helm(helm, "template", release, str(chart), *options, *further)
        if done.returncode:
            raise RuntimeError(f"helm cannot render {name}: {done.stderr}")
        return done.stdout

    with TemporaryDirectory() as folder:  # `helm template` prints no notes: a template of a copy prints them
        copy = shutil.copytree(CHART, Path(folder) / CHART.name)
        notes = (copy / "templates" / "NOTES.txt").read_text("utf-8")
        (copy / "templates" / "_notes.tpl").write_text(
            f'{{{{ define "notes" }}}}{notes}{{{{ end }}}}', "utf-8"
        )
        (copy / "templates" / "notes.yaml").write_text('said: {{ include "notes" . | toJson }}', "utf-8")
        said = yaml.safe_load(template(copy, "--show-only", "templates/notes.yaml"))["said"]
    lines = "".join(f"# {line}".rstrip() + "\n" for line in said.rstrip().splitlines())
    return f"{head(name)}{template(CHART).rstrip()}\n# NOTES:\n{lines}"


def refusals(helm: str) -> str:
    """Return what Helm says about each of the refused values. Raises RuntimeError if it accepts one."""
    parts = [head("refused")]
    for what, value in REFUSED.items():
        option = "--set-string" if what in AS_TEXT else "--set"
        done = _helm(helm, "template", "konductor-like", str(CHART), option, value)
        if not done.returncode:
            raise RuntimeError(f"helm accepts {what}: {value}")
        said = done.stderr.partition("konductor-like:\n")[2].strip()
        parts.append(f"# {what}\n$ helm install … {option} {value}\n{said}\n")
    return "\n".join(parts)


def main() -> int:
    """Write the copies; then the goldens, if there is a Helm. Returns the exit code."""
    for path, text in list(copies()):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    helm = shutil.which(os.environ.get("HELM", "helm"))
    if helm is None:
        sys.stderr.write(
            "The chart's files are written, but its goldens are not: helm is missing.\n"
            "Install Helm 3.8 or newer, or say make chart HELM=/path/to/helm.\n"
        )
        return 2
    for name in goldens():
        (GOLDENS / f"{name}.yaml").write_text(render(helm, name), encoding="utf-8")
    (GOLDENS / "refused.txt").write_text(refusals(helm), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
