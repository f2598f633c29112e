"""Markdown tables, as all benchmarks print them."""

from __future__ import annotations


def table(title: str, header: str, rows: list[list[str]]) -> None:
    columns = [column.strip() for column in header.split("|")]
    print(f"\n### {title}\n")
    print("| " + " | ".join(columns) + " |")
    print("| " + " | ".join("---" for _ in columns) + " |")
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)
