"""The package as it is installed: its files, its version, its command."""

import os
import subprocess
import sys
from importlib import metadata, resources

import pytest

import labelnoise


@pytest.mark.parametrize(
    "name", ["py.typed", "report/page.html", "report/page.css", "report/page.js"]
)
def test_files_that_are_no_code_are_in_it(name):
    """Types for mypy, and what the report is made of."""
    assert resources.files(labelnoise).joinpath(name).is_file()


def test_the_version_is_that_of_the_metadata():
    """What pip lists is what the package says."""
    assert metadata.version("labelnoise") == labelnoise.__version__


@pytest.mark.parametrize(
    ("line", "expected"), [("labelnoise comp", {"compare"}), ("labelnoise card --b", {"--badge"})]
)
def test_shells_complete_commands_and_options(line, expected):
    """As bash asks, once `labelnoise --install-completion` was run."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    asked = os.environ | words | {"_LABELNOISE_COMPLETE": "complete_bash"}
    command = [sys.executable, "-m", "labelnoise"]
    done = subprocess.run(command, env=asked, capture_output=True, text=True)
    assert set(done.stdout.split()) == expected
