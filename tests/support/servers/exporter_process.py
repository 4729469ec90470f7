"""The real exporter as a process of its own, and its pages as a scraper sees them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

import requests
from prometheus_client.parser import text_string_to_metric_families

from tests.support.waiting import PATIENCE_SECONDS, wait_until

LISTENING = re.compile(r"listening on (?:every address[^:]*: )?(http://[^\s\",]+)")

Series = tuple[str, frozenset[tuple[str, str]]]


class MissingSeriesError(AssertionError):
    """A page has no such series."""


class Scraped:
    """One /metrics page: `value(name, label=…)` finds exactly one series by a subset of its labels."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.samples: dict[Series, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                self.samples[sample.name, frozenset(sample.labels.items())] = sample.value

    def series(self, name: str, **labels: str) -> dict[frozenset[tuple[str, str]], float]:
        wanted = set(labels.items())
        full = f"llm_serving_{name}"
        return {found: value for (sample, found), value in self.samples.items() if sample == full and wanted <= found}

    def value(self, name: str, **labels: str) -> float:
        found = self.series(name, **labels)
        if not found:
            raise MissingSeriesError(f"no series matches {name} {labels}")
        assert len(found) == 1, f"{len(found)} series match {name} {labels}: {sorted(map(sorted, found))[:5]}"
        return next(iter(found.values()))

    def total(self, name: str, **labels: str) -> float:
        found = self.series(name, **labels)
        if not found:
            raise MissingSeriesError(f"no series matches {name} {labels}")
        return sum(found.values())


class Exporter:
    """`with Exporter("--target", url) as exporter:`; its log is kept, SIGTERM ends it, the exit status is checked."""

    def __init__(self, *arguments: str, env: Mapping[str, str] | None = None, gpus: bool = False) -> None:
        without_gpus = [] if gpus else ["--no-gpu.enabled"]
        listen = ["--web.listen-address", "127.0.0.1:0"]
        self._arguments = [sys.executable, "-m", "llm_serving_exporter", *listen, *without_gpus, *arguments]
        self._env = {**os.environ, **(env or {})}
        self.log: list[str] = []
        self.url = ""
        self._listening = threading.Event()

    def __enter__(self) -> Exporter:
        self.process = subprocess.Popen(
            self._arguments, env=self._env, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        self._reader = threading.Thread(target=self._read_log, daemon=True)
        self._reader.start()
        if not self._listening.wait(PATIENCE_SECONDS) or not self.url:
            self._end()
            raise AssertionError("the exporter did not start:\n" + "\n".join(self.log))
        self.http = requests.Session()
        self.http.trust_env = False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.http.close()
        status = self._end()
        if kind is None:
            assert status == 0, f"exit status {status}:\n" + "\n".join(self.log[-20:])

    def _end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError("the exporter did not end after SIGTERM") from None
        finally:
            self._reader.join(PATIENCE_SECONDS)
            assert self.process.stderr is not None
            self.process.stderr.close()
        return status

    def _read_log(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line.rstrip())
            if match := LISTENING.search(line):
                self.url = match[1].rstrip("/")
                self._listening.set()
        self._listening.set()

    def get(self, path: str, **more: Any) -> requests.Response:
        return self.http.get(self.url + path, timeout=PATIENCE_SECONDS, **more)

    def scrape(self) -> Scraped:
        answer = self.get("/metrics", headers={"Accept": "text/plain;version=0.0.4"})
        assert answer.status_code == 200, answer.text
        return Scraped(answer.text)

    def until(self, holds: Callable[[Scraped], bool], what: str) -> Scraped:
        """Scrapes until `holds`; fails with `what` was awaited. A page that lacks a series which `holds` asks for is not the one."""
        lacking = ""

        def look() -> Scraped | None:
            nonlocal lacking
            page, lacking = self.scrape(), ""
            try:
                return page if holds(page) else None
            except MissingSeriesError as error:
                lacking = f"{error}\n"
                return None

        found = wait_until(look, what, lambda: lacking + "log:\n" + "\n".join(self.log[-20:]))
        assert found is not None
        return found

    def after_ticks(self, count: int = 2) -> Scraped:
        """The page once `count` more attempts have been made: what was shown before they began is on it."""
        before = self.scrape().total("scrape_attempts_total")
        return self.until(lambda page: page.total("scrape_attempts_total") >= before + count, f"{count} more attempts")
