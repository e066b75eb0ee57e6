"""``python -m tools.measures.mutants`` plants the stored mutants one by one and runs the nearest tests.

``mutants.json`` has 200 small mistakes in 200 functions of the product. Commit 4856139e drew them with a
fixed seed, before features were taken out, and each has the stage that noticed it then. The run fails if one
that was noticed is not noticed any more, or if its text is not found: then the list needs the new text by
hand, or ``gone`` with the commit that deleted the function. Numbers as arguments choose some of them.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("mutants.json")
_STAGE_SECONDS = 900
"""Seconds for the tests of one stage. A mutant whose tests do not end in time is noticed."""
_STAGES = ("nearest", "package")


@dataclass(slots=True)
class Mutant:
    """One small mistake: the lines of a function before and after."""

    file: str
    function: str
    """The name with the classes around it: ``Store.write``."""
    before: str
    after: str
    noticed: str
    """``nearest`` or ``package``: the first stage that failed; empty if neither did."""
    gone: str = ""
    """The commit that deleted the function; empty while it exists."""


def main(chosen: Sequence[int] = ()) -> int:
    """Run the stored mutants, or those with these numbers; return 1 if one escapes."""
    mutants = [Mutant(**each) for each in json.loads(LIST.read_text("utf-8"))]
    numbers = [number for number in chosen or range(len(mutants)) if not mutants[number].gone]
    workers = int(os.environ.get("MUTANT_WORKERS", "2"))
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(workers) as pool:
        trees = [_copy(Path(folder) / str(number)) for number in range(workers)]
        found = pool.map(lambda number: _noticed(mutants[number], trees), numbers)
        escaped = 0
        for number, noticed in zip(numbers, found, strict=True):
            mutant = mutants[number]
            escapes = noticed == "text not found" or (mutant.noticed != "" and not noticed)
            escaped += escapes
            result = noticed or "survives"
            line = f"{number:4} {result:14} {mutant.file} {mutant.function}" + "  ESCAPED" * escapes
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    gone = sum(1 for each in mutants if each.gone)
    sys.stdout.write(f"{len(numbers)} run, {gone} gone with their functions, {escaped} escaped\n")
    return 1 if escaped else 0


def _copy(tree: Path) -> Path:
    names = ("konductor_like", "tests", "tools", "manifests", "charts", "docs", "sandbox")
    for name in names:
        if (ROOT / name).exists():
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, tree)
    return tree


def _noticed(mutant: Mutant, trees: list[Path]) -> str:
    """Plant the mutant in a free tree, and return the first stage whose tests fail; empty if all pass."""
    tree = trees.pop()
    file = tree / mutant.file
    whole = file.read_text("utf-8") if file.exists() else ""
    try:
        planted = mutated(whole, mutant)
        if planted is None:
            return "text not found"
        _write(file, planted)
        return next((stage for stage in _STAGES if _fails(tree, tests_of(mutant.file, stage))), "")
    finally:
        if whole:
            _write(file, whole)
        trees.append(tree)


def mutated(whole: str, mutant: Mutant) -> str | None:
    """Return the file's text with the mutant; None if the function or its lines are not there."""
    for name, function in _functions(ast.parse(whole)):
        if name == mutant.function:
            text = _source(whole, function)
            if text.count(mutant.before) == 1 and whole.count(text) == 1:
                return whole.replace(text, text.replace(mutant.before, mutant.after))
    return None


def tests_of(file: str, stage: str) -> list[str]:
    """Return the test files of a stage: those of the package that name the module, or all of the package."""
    path = Path(file)
    folder = ROOT / "tests" / path.parts[1] if len(path.parts) > 2 else ROOT / "tests"
    found = sorted(folder.rglob("test_*.py") if len(path.parts) > 2 else folder.glob("test_*.py"))
    if stage == "nearest":
        dotted = ".".join(path.with_suffix("").parts)
        parent, name = dotted.rsplit(".", 1)
        near = [
            each
            for each in found
            if each.stem == f"test_{name}"
            or dotted in (text := each.read_text("utf-8"))
            or f"from {parent} import {name}\n" in text
        ]
        found = near or found
    return [str(each.relative_to(ROOT)) for each in found]


def _fails(tree: Path, tests: Sequence[str]) -> bool:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider"]
    environ = {**os.environ, "PYTHONPATH": f"{tree}{os.pathsep}{tree / 'sandbox'}"}
    options = ["--hypothesis-seed=0", "-m", "not bench and not processes"]
    try:
        done = subprocess.run(
            [*command, *options, *tests],
            cwd=tree,
            env=environ,
            capture_output=True,
            timeout=_STAGE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def _write(file: Path, text: str) -> None:
    """Write a module, and forget its bytecode: a change within a second keeps the time stamp."""
    file.write_text(text, "utf-8")
    for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
        compiled.unlink()


def _functions(tree: ast.AST, around: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield around + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{around}{node.name}.")


def _source(whole: str, function: ast.FunctionDef) -> str:
    return "\n".join(whole.split("\n")[function.lineno - 1 : function.end_lineno])


if __name__ == "__main__":
    sys.exit(main([int(each) for each in sys.argv[1:]]))
