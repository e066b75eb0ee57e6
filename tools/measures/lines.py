"""``python -m tools.measures.lines`` counts the code: modules, all lines, and code lines of each part.

A code line is no blank line, comment or docstring. A statement over three lines counts three.
``sandbox`` (the stand-ins and the demo), tools, tests and data files are shown apart, and are not in its sum.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import defaultdict
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


def measured() -> tuple[dict[str, Size], dict[str, Size]]:
    """Return the sizes of the product's parts, and of everything else."""
    product: dict[str, Size] = defaultdict(Size)
    beside: dict[str, Size] = defaultdict(Size)
    for path in sorted(PRODUCT.rglob("*.py")):
        inside = path.relative_to(PRODUCT).parts
        part = inside[0] if len(inside) > 1 else "(top)"
        product[part].add(size_of(path))
    for part in ("sandbox", "tools", "tests"):
        for path in sorted((ROOT / part).rglob("*.py")):
            beside[part].add(size_of(path))
    return product, beside


def main() -> int:
    """Print the table."""
    product, beside = measured()
    total = Size()
    sys.stdout.write(f"{'':14}{'modules':>8}{'lines':>8}{'code':>8}\n")
    for name, size in product.items():
        total.add(size)
        sys.stdout.write(_row(name, size))
    sys.stdout.write(_row("product", total) + "\n")
    for name, size in beside.items():
        sys.stdout.write(_row(name, size))
    return 0


def _row(name: str, size: Size) -> str:
    return f"{name:14}{size.modules:8,}{size.lines:8,}{size.code:8,}\n"


if __name__ == "__main__":
    sys.exit(main())
