"""``python -m tools.measures.lines`` counts the code: modules, all lines, and code lines of each part.

A code line is no blank line, comment or docstring. A statement over three lines counts three.
``sandbox`` (the stand-ins and the demo), tools, tests and data files are shown apart, and are not in its sum.
Each package of the product has a ceiling in ``pyproject.toml``; ``--ceilings`` only checks them.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PRODUCT = ROOT / "konductor_like"
_NO_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


@dataclass(slots=True)
class Size:
    """Numbers of modules and lines."""

    modules: int = 0
    lines: int = 0
    code: int = 0

    def add(self, other: Size) -> None:
        """Add the numbers of another size."""
        self.modules += other.modules
        self.lines += other.lines
        self.code += other.code


def size_of(path: Path) -> Size:
    """Return the size of one Python file; a package's ``__init__`` does not count as a module."""
    text = path.read_text("utf-8")
    return Size(int(path.name != "__init__.py"), len(text.splitlines()), len(code_lines(text)))


def code_lines(text: str) -> set[int]:
    """Return the numbers of the lines with code."""
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    return found - _docstring_lines(ast.parse(text))


def _docstring_lines(tree: ast.AST) -> set[int]:
    """Return the lines of docstrings, including those of fields."""
    return {
        number
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }


def product_sizes() -> dict[str, Size]:
    """Return the sizes of the product's packages; ``top`` has the modules beside them."""
    product: dict[str, Size] = defaultdict(Size)
    for path in sorted(PRODUCT.rglob("*.py")):
        inside = path.relative_to(PRODUCT).parts
        product[inside[0] if len(inside) > 1 else "top"].add(size_of(path))
    return product


def ceilings() -> dict[str, int]:
    """Return the most code lines that each package may have."""
    found: dict[str, int] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"][
        "konductor-like"
    ]["ceilings"]
    return found


def too_large(product: Mapping[str, Size], allowed: Mapping[str, int]) -> Iterator[str]:
    """Yield a sentence for each package above its ceiling or without one."""
    for name, size in product.items():
        if name not in allowed:
            yield f"{name} has no ceiling of code lines in pyproject.toml, [tool.konductor-like.ceilings]"
        elif size.code > allowed[name]:
            yield f"{name} has {size.code:,} code lines, at most {allowed[name]:,} (pyproject.toml)"


def main(*, only_ceilings: bool = False) -> int:
    """Print the table and what is above its ceiling; return 1 if something is."""
    product, allowed = product_sizes(), ceilings()
    if not only_ceilings:
        _print(product, allowed)
    problems = [*too_large(product, allowed)]
    sys.stderr.write("".join(f"{each}\n" for each in problems))
    return int(bool(problems))


def _print(product: Mapping[str, Size], allowed: Mapping[str, int]) -> None:
    total, beside = Size(), dict[str, Size]()
    for part in ("sandbox", "tools", "tests"):
        beside[part] = Size()
        for path in sorted((ROOT / part).rglob("*.py")):
            beside[part].add(size_of(path))
    sys.stdout.write(f"{'':14}{'modules':>8}{'lines':>8}{'code':>8}{'ceiling':>9}\n")
    for name, size in product.items():
        total.add(size)
        sys.stdout.write(f"{_row(name, size)}{allowed.get(name, 0):9,}\n")
    sys.stdout.write(f"{_row('product', total)}{sum(allowed.values()):9,}\n\n")
    for name, size in beside.items():
        sys.stdout.write(f"{_row(name, size)}\n")


def _row(name: str, size: Size) -> str:
    return f"{name:14}{size.modules:8,}{size.lines:8,}{size.code:8,}"


if __name__ == "__main__":
    sys.exit(main(only_ceilings=sys.argv[1:] == ["--ceilings"]))
