"""Jobs that read files while the daemon runs: results of drills, prices, when the cost review was made."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.errors import ConfigError, DrillResultsError
from llm_serving_exporter.files.watched import Watched
from llm_serving_exporter.model.cost import Pool, PriceBook
from llm_serving_exporter.model.hardware import GpuSpec
from llm_serving_exporter.model.reading import DrillResult
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.settings.prices import look_at_prices
from llm_serving_exporter.settings.problems import shown
from llm_serving_exporter.state import drill_results

if TYPE_CHECKING:
    from llm_serving_exporter.daemon.review_runner import ReviewRunner

drill_log = logging.getLogger("llm_serving_exporter.drill")
price_log = logging.getLogger("llm_serving_exporter.prices")

# drills are run by people or once a week
DRILLS_EVERY_SECONDS = 30.0
# a change is believed at the second look
PRICES_EVERY_SECONDS = 2.5
MOST_CHANGES_LOGGED = 20
REVIEW_EVERY_SECONDS = 30.0


PriceFile = Watched[PriceBook | None]
DrillFile = Watched[tuple[DrillResult, ...]]


def watch_prices(
    path: str, book: PriceBook | None, *, quiet_since: float | None = None, own: Sequence[GpuSpec] = ()
) -> PriceFile:
    """The price file over time. `book`: the prices that are in use until it is read.

    A change is believed at the second look that finds the same stamp, but for a file that nobody has touched since `quiet_since` (Unix
    time): then the first look is enough, so that a daemon that starts loses no cost.
    """

    def read() -> PriceBook | None:
        found = look_at_prices(path, described=own)
        if found.problems:
            raise ConfigError(*found.problems)
        for warning in found.warnings:
            price_log.warning("%s", warning)
        return found.book

    return Watched(path, read, book, twice=True, quiet_since=quiet_since)


def refresh_prices(file: PriceFile) -> bool:
    """Reads the price file if it changed, and logs what came of it; whether its value or its usability changed."""
    book, problem = file.value, file.problem
    if not file.refresh():
        return False
    if isinstance(file.problem, ConfigError):
        kept = "was not reloaded, its last good prices stay"
        if book is None:
            kept = "cannot be used, nothing has a cost until it can"
        for fault in file.problem.problems:
            price_log.error("the price file %s: %s", kept, fault)
    elif file.value is not None and file.value != book:
        changes = describe_price_changes(book, file.value) if book is not None else []
        price_log.info("price file reloaded, %d prices", len(file.value.statements))
        for change in changes[:MOST_CHANGES_LOGGED]:
            price_log.info("price changed: %s", change)
        if len(changes) > MOST_CHANGES_LOGGED:
            price_log.info("and %d more prices changed", len(changes) - MOST_CHANGES_LOGGED)
    return file.value != book or (file.problem is None) != (problem is None)


def describe_price_changes(old: PriceBook, new: PriceBook) -> list[str]:
    """What another price file states otherwise, old and new, a line each: prices, rates, pools, nodes, electricity, the budget."""
    before, after = _list_terms(old), _list_terms(new)
    every = dict.fromkeys((*before, *after))
    return [
        f"{what}: {before.get(what, 'none')} -> {after.get(what, 'none')}"
        for what in every
        if before.get(what) != after.get(what)
    ]


def _list_terms(book: PriceBook) -> dict[str, str]:
    found = {}
    for one in book.statements:
        begin = one.from_unix_seconds
        since = "" if begin is None else f" from {datetime.fromtimestamp(begin, UTC):%Y-%m-%dT%H:%M:%SZ}"
        found[f"{one.scope.value} {shown(one.value)}{since}"] = (
            f"{one.usd_per_gpu_hour:.12g} USD (rate {shown(one.rate)})"
        )
    for rate in book.rates:
        committed = "" if rate.committed_gpus is None else f", {rate.committed_gpus} committed"
        power = "with" if rate.includes_power else "without"
        found[f"rate {shown(rate.name)}"] = f"{rate.kind.value}{committed}, {power} power"
    for pool in book.pools:
        of = shown(pool.use.instance_type or pool.use.gpu_name) if pool.gpus else count_nouns(len(pool.rates), "rate")
        much = (
            f"{pool.usd_per_hour:.12g} USD/h"
            if not pool.gpus
            else f"{pool.gpus:.12g} {'GPU' if pool.gpus == 1 else 'GPUs'} at {pool.usd_per_gpu_hour:.12g} USD"
        )
        found[f"pool {shown(pool.name)}"] = f"{pool.kind.value} of {of}, {much}, {_write_span(pool)}"
    for name, place in book.nodes:
        parts = (place.region, place.zone, place.instance_type, place.provider_id)
        found[f"node {shown(name)} stands"] = ", ".join(shown(part) for part in parts if part)
    power_terms = {
        "USD per kWh": book.power.usd_per_kwh,
        "PUE": book.power.pue,
        "carbon grams per kWh": book.power.carbon_grams_per_kwh,
        "budget a month in USD": book.budget_usd_per_month,
    }
    return found | {what: f"{amount:.12g}" for what, amount in power_terms.items() if amount is not None}


def _write_span(pool: Pool) -> str:
    ends = (pool.from_unix_seconds, pool.until_unix_seconds)
    return " until ".join("-" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}" for at in ends)


def watch_drills(path: str) -> DrillFile:
    """The file of drill results over time."""

    def read() -> tuple[DrillResult, ...]:
        found = drill_results.read_results(path)
        if found is None:
            raise DrillResultsError(f"there is no file of drill results {path}; the first drill makes it")
        return found

    return Watched(path, read, ())


def refresh_drills(file: DrillFile) -> tuple[DrillResult, ...]:
    """The last good results, () where there have been none. A file that cannot be used is logged once."""
    if file.refresh() and file.problem is not None:
        kept = f" {len(file.value)} results that it had before stay." if file.value else ""
        drill_log.warning("%s%s", file.problem, kept)
    return file.value


class FileJobs:
    """`every(name, seconds, job)` starts a job, `cancel(name)` ends one. `lock`: the daemon's. `priced` is called when a price file was
    read again or can no longer be used."""

    def __init__(
        self,
        store: Store,
        lock: threading.RLock,
        every: Callable[[str, float, Callable[[], None]], None],
        cancel: Callable[[str], None],
        priced: Callable[[PriceFile], None],
        wall: Callable[[], float],
    ) -> None:
        self._store, self._lock, self._every, self._cancel = store, lock, every, cancel
        self._priced, self._wall = priced, wall
        self._drills: DrillFile | None = None
        self._prices: PriceFile | None = None
        # those that the configuration described when the price file was last looked at
        self._own_gpus: tuple[GpuSpec, ...] = ()
        self._review: ReviewRunner | None = None

    def apply(self, config: Config) -> None:
        """Starts and ends jobs as the configuration wants them; each looks at its file at once."""
        self._restart_drills(config.drill_result_file)
        self._set("prices", PRICES_EVERY_SECONDS, self._read_prices if self._prices is not None else None)
        self._restart_review(config)

    @property
    def prices_are_good(self) -> bool:
        """Whether nothing is wrong with the price file, as far as it was read."""
        return self._prices is None or self._prices.problem is None

    def take_prices(self, path: str | None, book: PriceBook | None, own: Sequence[GpuSpec] = ()) -> PriceBook | None:
        """Looks at the price file of a configuration that is about to be used. `book`: the prices in use so far; `own`: the GPUs that
        the configuration describes.

        The prices to use: those of the file, or `book` as long as the file is not believed or not good; None without a file.
        """
        if path is None:
            self._prices = None
            return None
        if self._prices is None or self._prices.path != path or tuple(own) != self._own_gpus:
            quiet_since = self._wall() - PRICES_EVERY_SECONDS
            self._own_gpus = tuple(own)
            self._prices = watch_prices(path, book, quiet_since=quiet_since, own=own)
        refresh_prices(self._prices)
        return self._prices.value

    def close(self) -> None:
        """Ends a review under way."""
        review, self._review = self._review, None
        if review is not None:
            review.close()

    def _set(self, name: str, seconds: float, job: Callable[[], None] | None) -> None:
        if job is None:
            self._cancel(name)
        else:
            self._every(name, seconds, job)

    def _restart_drills(self, path: str | None) -> None:
        if self._drills is None or self._drills.path != path:
            self._drills = watch_drills(path) if path is not None else None
            self._store.put_values(drills=())
        self._set("drills", DRILLS_EVERY_SECONDS, self._read_drills if self._drills is not None else None)

    def _read_drills(self) -> None:
        source = self._drills
        if source is None:
            return
        results = refresh_drills(source)
        with self._lock:
            if source is self._drills:  # else another file is configured since
                self._store.put_values(drills=results)

    def _read_prices(self) -> None:
        with self._lock:
            source = self._prices
            if source is not None and refresh_prices(source):
                self._priced(source)

    def _restart_review(self, config: Config) -> None:
        if self._review is not None and self._review.schedule != config.review:
            self.close()
            self._store.put_values(review=None)
        if self._review is None and config.review is not None:
            # the calendar takes 3 MB, and most exporters make no review
            from llm_serving_exporter.daemon.review_runner import ReviewRunner

            self._review = ReviewRunner(config.review, wall=self._wall)
        self._set("review", REVIEW_EVERY_SECONDS, self._run_review_when_due if self._review is not None else None)

    def _run_review_when_due(self) -> None:
        runner = self._review
        if runner is None:
            return
        runs = runner.run_when_due()
        with self._lock:
            if runner is self._review:
                self._store.put_values(review=runs)
