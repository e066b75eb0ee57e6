"""``python -m tools.release.dist`` makes the files of a release in ``dist``, from the last commit alone.

Two runs give the same bytes: every file comes from ``git archive``, every time is the commit's.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from konductor_like import __version__
from tools.release.check import ROOT, git, owners_values, section
from tools.release.sbom import sbom

DIST = ROOT / "dist"
OURS = ("*.whl", "*.tar.gz", "*.tgz", "*.cdx.json", "SHA256SUMS", "notes.md")
"""The files of an earlier run, which are removed first."""
_REPOSITORY = re.compile(r"(?m)^(  repository: )konductor-like\b")


def chart_archive(chart: Path, registry: str, epoch: int) -> tuple[str, bytes]:
    """Return the name and the content of a chart's archive, as ``helm package`` lays it out.

    Helm itself writes the present time into its archives. If there is a registry, the chart's image comes
    from there.
    """
    about = yaml.safe_load((chart / "Chart.yaml").read_text("utf-8"))
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(path for path in chart.rglob("*") if path.is_file()):
            content = path.read_bytes()
            if registry and path == chart / "values.yaml":
                content = with_registry(content.decode(), registry).encode()
            entry = tarfile.TarInfo(f"{about['name']}/{path.relative_to(chart).as_posix()}")
            entry.size, entry.mtime = len(content), epoch
            archive.addfile(entry, io.BytesIO(content))
    return f"{about['name']}-{about['version']}.tgz", gzip.compress(packed.getvalue(), mtime=epoch)


def with_registry(values: str, registry: str) -> str:
    """Return the chart's values with the image of this registry. Raises ValueError if they name no image."""
    text, found = _REPOSITORY.subn(rf"\1{registry}/konductor-like", values)
    if found != 1:
        raise ValueError(f"values.yaml: {found} lines `  repository: konductor-like`; one was expected")
    return text


def checksums(folder: Path) -> Iterator[str]:
    """Yield the lines of SHA256SUMS, which ``sha256sum --check`` reads."""
    for path in sorted(folder.iterdir()):
        yield f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"


def make(tree: Path, out: Path, epoch: int) -> None:
    """Make wheel, sdist, chart archives, SBOM, checksums and notes in ``out``, from the commit's files."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-t", "sdist", "-d", str(out)]
    subprocess.run(build, cwd=tree, check=True, env={**os.environ, "SOURCE_DATE_EPOCH": str(epoch)})
    pyproject = (tree / "pyproject.toml").read_text("utf-8")
    for chart in sorted(tree.glob("charts/*")):
        name, archive = chart_archive(chart, owners_values(pyproject)["registry"], epoch)
        (out / name).write_bytes(archive)
    lock = (tree / "requirements.lock").read_text("utf-8")
    document = json.dumps(sbom(lock, pyproject, __version__, epoch), indent=2, ensure_ascii=False)
    (out / f"konductor-like-{__version__}.cdx.json").write_text(f"{document}\n", "utf-8")
    (out / "SHA256SUMS").write_text("".join(checksums(out)), "utf-8")
    _, notes = section((tree / "CHANGELOG.md").read_text("utf-8"), __version__) or ("", "")
    (out / "notes.md").write_text(f"{notes}\n", "utf-8")


def main() -> int:
    """Fill ``dist``."""
    if git("status", "--porcelain"):
        sys.stderr.write("The tree has changes that are not committed; dist/ has the last commit only.\n")
    DIST.mkdir(exist_ok=True)
    for path in (path for pattern in OURS for path in DIST.glob(pattern)):
        path.unlink()
    with TemporaryDirectory() as folder:
        tree, out = Path(folder, "tree"), Path(folder, "out")
        out.mkdir()
        packed = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
        with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
            archive.extractall(tree, filter="data")
        make(tree, out, int(git("log", "-1", "--format=%ct")))
        for path in sorted(out.iterdir()):
            (DIST / path.name).write_bytes(path.read_bytes())
            sys.stdout.write(f"dist/{path.name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
