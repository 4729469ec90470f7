"""What a dashboard shows in a browser, panel by panel."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

# of a panel: what its body says, whether something is drawn in it, and whether it complains
_PROBE = """
() => Object.fromEntries([...document.querySelectorAll('[data-testid^="data-testid Panel header "]')].map(panel => {
  const body = panel.querySelector('[data-testid="data-testid panel content"]');
  const large = element => { const box = element.getBoundingClientRect(); return box.width > 20 && box.height > 20 };
  return [panel.dataset.testid.replace('data-testid Panel header ', ''), {
    text: body ? body.innerText.trim() : '',
    drawn: !!body && [...body.querySelectorAll('canvas, svg, [role=grid], [role=table]')].some(large),
    error: !!panel.querySelector('[data-testid="data-testid Panel status error"], [aria-label="Panel status"]'),
    legend: body ? [...body.querySelectorAll('[data-testid^="data-testid VizLegend series "], tr:has([data-testid="series-icon"])')].map(
      one => one.querySelector('button').innerText.trim()) : [],
    links: [...panel.querySelectorAll('a[href*="/d/"]')].map(one => one.href),
    box: (({x, y, width, height}) => [x, y + window.scrollY, width, height])(panel.getBoundingClientRect()),
  }]
}))
"""
_FAILURES = ("An unexpected error happened", "Failed to load", "parse error", "Err")
_SETTLED_MILLISECONDS, _LONGEST_MILLISECONDS = 2000, 30_000
_LOOK_MILLISECONDS, _LONGEST_SETTLING_MILLISECONDS = 250, 120_000
# a panel that asks, or a dashboard whose refresh button can be cancelled
_LOADS = """
() => !!document.querySelector('[aria-label="Panel loading bar"]')
  || [...document.querySelectorAll('button')].some(one => one.innerText.trim() === 'Cancel')
"""


@dataclass(frozen=True)
class Seen:
    """One panel."""

    text: str
    drawn: bool
    error: bool
    legend: list[str]
    links: list[str]
    box: list[float]

    @property
    def failed(self) -> bool:
        return self.error or any(self.text.startswith(words) for words in _FAILURES)

    @property
    def empty(self) -> bool:
        return "No data" in self.text or "Data does not have" in self.text or not (self.text or self.drawn)


@dataclass
class Looked:
    """A page that is open: `complaints` are what its console has of errors."""

    page: Any
    complaints: list[str] = field(default_factory=list)

    def settle(self) -> None:
        """Until nothing has loaded for a while: between two panels' queries the network of a slow machine is quiet, too."""
        still = waited = 0
        while still < _SETTLED_MILLISECONDS:
            self.page.wait_for_timeout(_LOOK_MILLISECONDS)
            waited += _LOOK_MILLISECONDS
            assert waited < _LONGEST_SETTLING_MILLISECONDS, "panels still load"
            still = 0 if self.page.evaluate(_LOADS) else still + _LOOK_MILLISECONDS

    def panels(self) -> dict[str, Seen]:
        """By title."""
        return {title: Seen(**found) for title, found in self.page.evaluate(_PROBE).items()}


@contextmanager
def looking(browser: Any, address: str, width: int = 1440, height: int = 2600, theme: str = "dark") -> Iterator[Looked]:
    """A page so high that every panel is in view: Grafana draws those only."""
    page = browser.new_page(viewport={"width": width, "height": height})
    seen = Looked(page)
    page.on("console", lambda told: seen.complaints.append(told.text) if told.type == "error" else None)
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    try:
        page.goto(f"{address}&theme={theme}", wait_until="load", timeout=_LONGEST_MILLISECONDS)
        # the first dashboard loads the whole application
        page.wait_for_selector('[data-testid^="data-testid Panel header "]', timeout=_LONGEST_MILLISECONDS)
        seen.settle()
        yield seen
    finally:
        page.close()
