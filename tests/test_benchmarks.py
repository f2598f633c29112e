"""The benchmarks are not run here, but what they import from the package exists."""

import ast
from pathlib import Path

import pytest

RESULTS = "benchmarks/results/accuracy.md"
SCRIPTS = sorted((Path(__file__).parents[1] / "benchmarks").glob("*.py"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_imports_of_a_benchmark(script):
    for node in ast.walk(ast.parse(script.read_text())):
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("labelnoise"):
            exec(ast.unparse(node), {})


def test_readme_quotes_the_results():
    """README's table of errors is that of the results."""
    root = SCRIPTS[0].parents[1]
    readme, results = ((root / name).read_text() for name in ("README.md", RESULTS))
    table = readme.split("<!-- written by benchmarks/accuracy.py render -->")[1].strip()
    assert table.count("\n") > 10
    assert table in results
