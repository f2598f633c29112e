"""The benchmarks are not run here, but what they import from the package exists."""

import ast
from pathlib import Path

import pytest

SCRIPTS = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_imports_of_a_benchmark(script):
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("labelnoise"):
            exec(ast.unparse(node), {})
