"""The real exporter as a process of its own, and its pages as a scraper sees them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any

import requests
from prometheus_client.parser import text_string_to_metric_families

from tests.support.waiting import PATIENCE_SECONDS, wait_until

LISTENING = re.compile(r"listening on (?:every address[^:]*: )?(http://[^\s\",]+)")

Labels = frozenset[tuple[str, str]]
Series = tuple[str, Labels]
# how a sample's line begins
_NAME = re.compile(r"[a-zA-Z_:][\w:]*")


def _read_samples(text: str) -> Iterator[tuple[Series, float]]:
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            yield (sample.name, frozenset(sample.labels.items())), sample.value


class MissingSeriesError(AssertionError):
    """A page has no such series."""


class Scraped:
    """One /metrics page: `value(name, label=…)` finds exactly one series by a subset of its labels.

    A name's lines are read when it is asked for: to read a whole page takes longer than to make it.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._read: dict[str, dict[Labels, float]] = {}

    @cached_property
    def samples(self) -> dict[Series, float]:
        """Every sample; the whole page is read, and an error in any line raises a ValueError."""
        return dict(_read_samples(self.text))

    @cached_property
    def _lines(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for line in self.text.split("\n"):
            if match := _NAME.match(line):
                found.setdefault(match[0], []).append(line)
        return found

    def series(self, name: str, **labels: str) -> dict[Labels, float]:
        wanted = set(labels.items())
        full = f"llm_serving_{name}"
        if full not in self._read:
            lines = "\n".join(self._lines.get(full, ()))
            self._read[full] = {found: value for (_, found), value in _read_samples(f"{lines}\n")}
        return {found: value for found, value in self._read[full].items() if wanted <= found}

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

    def __exit__(self, kind: object, *exc: object) -> None:
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
        for line in self.process.stderr:
            self.log.append(line.rstrip())
            if match := LISTENING.search(line):
                self.url = match[1].rstrip("/")
                self._listening.set()
        self._listening.set()

    def get(self, path: str, **more: Any) -> requests.Response:
        return self.http.get(self.url + path, timeout=PATIENCE_SECONDS, **more)

    def scrape(self) -> Scraped:
        """The page, of which every line can be read."""
        page = self._fetch()
        assert page.samples
        return page

    def _fetch(self) -> Scraped:
        answer = self.get("/metrics", headers={"Accept": "text/plain;version=0.0.4"})
        assert answer.status_code == 200, answer.text
        return Scraped(answer.text)

    def until(self, holds: Callable[[Scraped], bool], what: str) -> Scraped:
        """Scrapes until `holds`; fails with `what` was awaited. A page that lacks a series which `holds` asks for is not the one."""
        lacking = ""

        def look() -> Scraped | None:
            nonlocal lacking
            page, lacking = self._fetch(), ""
            try:
                return page if holds(page) else None
            except MissingSeriesError as error:
                lacking = f"{error}\n"
                return None

        found = wait_until(look, what, lambda: lacking + "log:\n" + "\n".join(self.log[-20:]))
        assert found.samples
        return found

    def after_ticks(self, count: int = 2) -> Scraped:
        """The page once `count` more attempts have been made: what was shown before they began is on it."""
        before = self.scrape().total("scrape_attempts_total")
        return self.until(lambda page: page.total("scrape_attempts_total") >= before + count, f"{count} more attempts")
