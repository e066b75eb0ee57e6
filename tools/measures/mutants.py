"""``python -m tools.measures.mutants`` plants the stored mutants one by one and runs the nearest tests.

``mutants.json`` has 200 small mistakes in 200 functions of the product, drawn with a fixed seed before the
version that took features away. Each has the stage that noticed it then. The run fails if a mutant that was
noticed is not noticed any more, or if its text is not found: then the list needs the new text by hand, or
``gone`` with the commit that deleted the function. ``python -m tools.measures.mutants 3 17`` plants two.
"""

from __future__ import annotations

import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("mutants.json")
SEED = 38
DRAWN = 200
_STAGE_SECONDS = 900
"""Seconds for the tests of one stage. A mutant whose tests do not end in time is noticed."""
_STAGES = ("nearest", "package")
_DELETED = (
    *(
        "sandbox/",
        "demo/",
        "cli/demo",
        "cli/doctor/",
        "cli/chain_test/",
        "cli/report/",
        "cli/case/",
        "cli/scan",
    ),
    *(
        "cli/incident/",
        "cli/similar_names",
        "cli/help",
        "cli/status/watch",
        "cli/check_config",
        "backtest/cache",
    ),
    *("backtest/incident", "history/case", "history/drivers", "notify/", "controller/side/notifier"),
    *("controller/loop/active_", "switches", "cluster/api/exec", "cluster/preflight", "cluster/reader_pods"),
    *("cluster/api/errors", "loki/query/errors", "prometheus/client"),
)
"""Paths that the version after the drawing deletes or rebuilds: no mutant is drawn there."""
_DELETED_NAMES = ("part", "common_node", "failed_jobs", "refused", "suspect_taint", "_suspected", "ack")
"""Words in names of functions and files that it deletes."""


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


def main(chosen: Sequence[int] = (), *, record: bool = False) -> int:
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
            if record:
                mutant.noticed = noticed
            escapes = noticed == "text not found" or (mutant.noticed != "" and not noticed)
            escaped += escapes
            result = noticed or "survives"
            line = f"{number:4} {result:14} {mutant.file} {mutant.function}" + "  ESCAPED" * escapes
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    if record:
        LIST.write_text(json.dumps([asdict(each) for each in mutants], indent=1) + "\n", "utf-8")
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


def draw() -> None:
    """Draw the mutants from the present tree and write the list; ``record`` adds who notices each."""
    chooser = random.Random(SEED)  # noqa: S311  # a fixed seed, so that nobody chooses a mutant
    functions = [
        (str(path.relative_to(ROOT)), name, function)
        for path in sorted((ROOT / "konductor_like").rglob("*.py"))
        if not str(path.relative_to(ROOT / "konductor_like")).startswith(_DELETED)
        for name, function in _functions(ast.parse(path.read_text("utf-8")))
        if not any(word in f"{path.stem} {name}".lower() for word in _DELETED_NAMES)
    ]
    chooser.shuffle(functions)
    drawn: list[Mutant] = []
    for file, name, function in functions:
        whole = (ROOT / file).read_text("utf-8")
        text = _source(whole, function)
        changes = [
            (before, after)
            for before, after in _changes(whole, function)
            if before != after and text.count(before) == 1 and whole.count(text) == 1
        ]
        if changes and len(drawn) < DRAWN:
            drawn.append(Mutant(file, name, *chooser.choice(changes), noticed=""))
    LIST.write_text(json.dumps([asdict(each) for each in drawn], indent=1) + "\n", "utf-8")


def _functions(tree: ast.AST, around: str = "") -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef):
            yield around + node.name, node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{around}{node.name}.")


def _source(whole: str, function: ast.FunctionDef) -> str:
    return "\n".join(whole.split("\n")[function.lineno - 1 : function.end_lineno])


_SWAPPED: dict[type[ast.AST], ast.AST] = {
    ast.Lt: ast.LtE(),
    ast.LtE: ast.Lt(),
    ast.Gt: ast.GtE(),
    ast.GtE: ast.Gt(),
    ast.Eq: ast.NotEq(),
    ast.NotEq: ast.Eq(),
    ast.In: ast.NotIn(),
    ast.NotIn: ast.In(),
    ast.Is: ast.IsNot(),
    ast.IsNot: ast.Is(),
    ast.And: ast.Or(),
    ast.Or: ast.And(),
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
}


def _changes(whole: str, function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    """Yield the whole lines of one statement's part before and after each small mistake in a function."""
    for node in ast.walk(function):
        if node is function or not isinstance(node, ast.expr | ast.stmt):
            continue
        wrong = _wrong(node)
        if wrong is None:
            continue
        before, after = _replaced(whole, node, wrong)
        if before.strip():
            yield before, after


def _wrong(node: ast.AST) -> str | None:
    """Return the text of the mistake in place of this node; None if the node offers none."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=comparators) if type(op) in _SWAPPED:
            swapped = ast.Compare(left, [_SWAPPED[type(op)]], comparators)  # type: ignore[list-item]  # an operator
            return f"({ast.unparse(swapped)})"
        case ast.BoolOp(op=op, values=values):
            return f"({ast.unparse(ast.BoolOp(_SWAPPED[type(op)], values))})"  # type: ignore[arg-type]  # as above
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _SWAPPED:
            return f"({ast.unparse(ast.BinOp(left, _SWAPPED[type(op)], right))})"  # type: ignore[arg-type]  # as above
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"({ast.unparse(operand)})"
        case ast.Constant(value=bool() as value):
            return str(not value)
        case ast.Constant(value=int() as value):
            return str(value + 1)
        case ast.IfExp(test=test, body=body, orelse=other):
            return f"({ast.unparse(ast.IfExp(test, other, body))})"
        case ast.Expr(value=ast.Call()):
            return "pass"
        case _:
            return None


def _replaced(whole: str, node: ast.expr | ast.stmt, wrong: str) -> tuple[str, str]:
    lines = whole.split("\n")
    first, last = node.lineno - 1, (node.end_lineno or node.lineno) - 1
    before = "\n".join(lines[first : last + 1])
    head = lines[first].encode()[: node.col_offset].decode()
    tail = lines[last].encode()[node.end_col_offset :].decode()
    return before, f"{head}{wrong}{tail}"


if __name__ == "__main__":
    if sys.argv[1:] == ["draw"]:
        draw()
    else:
        sys.exit(
            main(record=True) if sys.argv[1:] == ["record"] else main([int(each) for each in sys.argv[1:]])
        )
