"""Run the code of the pages, and write what it prints under it.

    python docs/run_pages.py            # all pages; tests/test_examples.py says which are not true

A ```python block is run, all of a page in one namespace, and what it prints is the ```text block
after it. Of a ```console block the lines after a $ are run, all of a page in one folder, and what
they print is below them. Other blocks are only shown.
"""

import contextlib
import io
import re
import shlex
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from labelnoise import LabelNoiseWarning, cli

DOCS = Path(__file__).parent
_BLOCK = re.compile(r"^```(python|console)\n(.*?)^```\n(?:\n```text\n.*?^```\n)?", re.M | re.S)

PAGES = sorted(page for page in DOCS.rglob("*.md") if _BLOCK.search(page.read_text()))


def played(page: str, after: Callable[[dict], None] = lambda namespace: None) -> str:
    """The page with what its code prints; `after` is called after each block of Python."""
    namespace: dict = {"__name__": "__main__"}

    def play(block: re.Match[str]) -> str:
        language, code = block[1], block[2]
        if language == "console":
            commands = [line for line in code.splitlines() if line.startswith("$ ")]
            shown = "".join(f"{line}\n{_run(line[2:])}" for line in commands)
            return f"```console\n{shown}```\n"
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(code, namespace)
        except Exception as error:
            error.add_note(printed.getvalue())
            raise
        after(namespace)
        output = f"\n```text\n{printed.getvalue()}```\n" if printed.getvalue() else ""
        return f"```python\n{code}```\n{output}"

    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.chdir(folder),
        warnings.catch_warnings(),
    ):
        # What estimators warn of they print, too, where a page asks them.
        warnings.simplefilter("ignore", LabelNoiseWarning)
        warnings.filterwarnings("ignore", category=DeprecationWarning, module="cleanlab")
        return _BLOCK.sub(play, page)


def _run(command: str) -> str:
    name, *arguments = shlex.split(command)
    if name != "labelnoise":
        return subprocess.run([name, *arguments], check=True, capture_output=True, text=True).stdout
    printed = io.StringIO()
    with (
        mock.patch.object(sys, "argv", [name, *arguments]),
        contextlib.redirect_stdout(printed),
        contextlib.suppress(SystemExit),
    ):
        cli.main()
    return printed.getvalue()


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(played(path.read_text()))
