"""The browser that all tests of pages use."""

import shutil

import pytest
from playwright.sync_api import sync_playwright


@pytest.fixture(scope="module")
def browser():
    """Debian's chromium, which these tests are for: without it they fail."""
    path = shutil.which("chromium")
    if path is None:
        pytest.fail("Expected chromium, but there is none: apt-get install chromium")
    with sync_playwright() as playwright:
        # Without its sandbox, as root in a container has none.
        running = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        running.close()
