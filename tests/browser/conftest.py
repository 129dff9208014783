"""Pages in Debian's chromium, which is never downloaded: skipped where it is not installed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]

Opened = Callable[..., Any]
"""Opens a file: path, then width, scheme and whether scripts run; gives playwright's page."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    if not CHROMIUM.exists():
        pytest.skip(f"{CHROMIUM} is not there: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api", reason="needs playwright: corral[dev]")
    with api.sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture
def open_page(browser: Any) -> Iterator[Opened]:
    """Open files; fails at the end where a page said something on its console, or asked for
    anything but itself."""
    said: list[str] = []
    contexts: list[Any] = []

    def opened(path: Path, width: int = 1280, scheme: str = "light", script: bool = True) -> Any:
        context = browser.new_context(
            viewport={"width": width, "height": 900},
            color_scheme=scheme,
            java_script_enabled=script,
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("request", lambda sent: sent.url == path.as_uri() or said.append(sent.url))
        page.goto(path.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert said == []
