"""What the package exports, as api.txt has it: a change of it shows in a review.

``PORTCULLIS_WRITE_API=1 pytest tests/test_api.py`` writes it anew.
"""

# pyright: basic

import ast
import os
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "portcullis_host"
REPORT = ROOT / "api.txt"


def test_the_exported_names_are_those_of_the_report() -> None:
    report = "\n".join([*exported("portcullis_host", SOURCE), "", *exported("portcullis_host.testing", SOURCE / "testing"), ""])
    if os.environ.get("PORTCULLIS_WRITE_API"):
        REPORT.write_text(report)
    assert report == REPORT.read_text()


def exported(package: str, directory: Path) -> Iterator[str]:
    defined = {name: node for file in sorted(directory.glob("_*.py")) for node in ast.parse(file.read_text()).body for name in names(node)}
    listed = next(node.value for node in ast.parse((directory / "__init__.py").read_text()).body if names(node) == ["__all__"])  # type: ignore[attr-defined]
    for name in ast.literal_eval(listed):
        yield from (f"{package}.{line}" for line in described(name, defined[name]))


def names(node: ast.AST) -> list[str]:
    match node:
        case (
            ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name))
        ):
            return [name]
        case ast.Assign(targets=[ast.Name(id=name)]):
            return [name]
        case _:
            return []


def described(name: str, node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        yield f"{name}({', '.join(map(ast.unparse, node.bases))})"
        for member in node.body:
            for below in names(member):
                if not below.startswith("_") or below in ("__init__", "__call__", "__aenter__", "__enter__"):
                    yield from described(f"{name}.{below}", member)
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        marks = "".join(f"@{ast.unparse(mark)} " for mark in node.decorator_list)
        result = f" -> {ast.unparse(node.returns)}" if node.returns else ""
        yield f"{name}: {marks}{'async ' if isinstance(node, ast.AsyncFunctionDef) else ''}({ast.unparse(node.args)}){result}"
    elif isinstance(node, ast.AnnAssign):
        value = f" = {ast.unparse(node.value)}" if node.value else ""
        yield f"{name}: {ast.unparse(node.annotation)}{value}"
    elif isinstance(node, ast.Assign):
        yield f"{name} = {ast.unparse(node.value)}"
