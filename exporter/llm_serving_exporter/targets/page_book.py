"""What one process knows about pages: made once for all targets whose pages are alike, so that each keeps only what is its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock

from llm_serving_exporter.engines.apply import Plans, wanted_by
from llm_serving_exporter.engines.detect import labels_needed
from llm_serving_exporter.engines.mapping import Runtime
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.fetch.page import KnownPages, PageParser, outline_page
from llm_serving_exporter.model.sample import Page

# outlines of pages whose runtime is remembered: a number each
MOST_RECOGNISED = 4096


class PageBook:
    """Threads may share it. `runtimes`: those that have a table."""

    def __init__(self, runtimes: Mapping[str, Runtime] = RUNTIMES) -> None:
        self.runtimes = runtimes
        # how pages of each layout are read
        self.plans = Plans()
        self._lock = Lock()
        # by the runtime's name, None before it is known: the samples that are wanted, and the pages that are known
        self._wanted: dict[str | None, tuple[Callable[[str], bool], KnownPages]] = {}
        # by outline
        self._recognised: dict[int, Runtime] = {}

    def make_parser(self, runtime: Runtime | None, max_series: int) -> PageParser:
        """A parser of pages of a runtime; None: of pages whose runtime is to be recognised."""
        name = runtime.name if runtime is not None else None
        with self._lock:
            if name not in self._wanted:
                wanted = wanted_by(runtime) if runtime is not None else labels_needed(self.runtimes)
                self._wanted[name] = wanted, KnownPages()
            wanted, known = self._wanted[name]
        return PageParser(wanted, max_series, known)

    def recall_runtime(self, page: Page) -> Runtime | None:
        """Whose page one was recognised as that differed from this one in nothing but values; None where there was none."""
        return self._recognised.get(outline_page(page.body))

    def note_runtime(self, page: Page, runtime: Runtime) -> None:
        """Remembers whose page it was recognised as."""
        with self._lock:
            if len(self._recognised) >= MOST_RECOGNISED:
                self._recognised.clear()
            self._recognised[outline_page(page.body)] = runtime
