"""VictoriaMetrics and vmalert on loopback: one scrapes and keeps, the other evaluates rule files against it, live or over a past.

What VictoriaMetrics is told differs from its defaults where those do not fit rules that are written for Prometheus; each flag says why.
"""

import io
import json
import shutil
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TextIO

from tests.support.servers.server_process import ServerProcess, program

# a replay asks for a rule's whole range at once, which for two weeks of minutes takes seconds
QUERY_SECONDS, REPLAY_SECONDS = 120, 900
_POST_BYTES = 1 << 23


class _Program(ServerProcess):
    """A program of the family: flags with one dash, /health. Its log stays in `folder`."""

    name = ""

    def __init__(self, folder: Path, *arguments: str, port: int | None = None) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        found = program(self.name)
        super().__init__(
            lambda port: (found, f"-httpListenAddr=127.0.0.1:{port}", *arguments),
            folder / f"{self.name}.log",
            ready="/health",
            port=port,
        )

    def _get(self, path: str, **parameters: str) -> Any:
        return self.get(path, QUERY_SECONDS, **parameters)


class VictoriaMetrics(_Program):
    """The database. `scrape`: the text of a Prometheus configuration with `scrape_configs`, "" for a database that is only written to."""

    name = "victoria-metrics"

    def __init__(self, folder: Path, *arguments: str, scrape: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        fixed = [
            f"-storageDataPath={folder / 'data'}",
            # a simulated past may be of any year
            "-retentionPeriod=100y",
            # what a rule has just recorded is read by the next one
            "-search.latencyOffset=1ms",
            # imported and replayed samples come behind what was asked before
            "-search.disableCache",
            "-search.maxPointsPerTimeseries=100000",
            f"-search.maxQueryDuration={QUERY_SECONDS}s",
            "-maxInsertRequestSize=256MB",
        ]
        if scrape:
            (folder / "scrape.yml").write_text(scrape)
            fixed.append(f"-promscrape.config={folder / 'scrape.yml'}")
        super().__init__(folder, *fixed, *arguments)

    @contextmanager
    def importing(self) -> Iterator[TextIO]:
        """Takes lines as /api/v1/import/prometheus does; they can be asked for afterwards."""
        with io.TextIOWrapper(io.BufferedWriter(_Posted(self), _POST_BYTES), write_through=True) as lines:
            yield lines
        self.flush()

    def take(self, lines: bytes) -> None:
        """Imports whole lines."""
        answer = self.http.post(f"{self.url}/api/v1/import/prometheus", data=lines, timeout=QUERY_SECONDS)
        assert answer.ok, answer.text

    def take_file(self, path: Path) -> None:
        """Imports a file of such lines."""
        with self.importing() as out, path.open() as lines:
            shutil.copyfileobj(lines, out, 1 << 22)

    def flush(self) -> None:
        """Makes everything that was written visible to queries."""
        self._get("/internal/force_flush")

    def query(self, expression: str, at_unix_seconds: float, step: str = "1m") -> list[dict[str, Any]]:
        """An instant vector: dicts with metric and value. `step`: how far back a selector looks."""
        answer = self._get("/api/v1/query", query=expression, time=f"{at_unix_seconds:.3f}", step=step).json()
        return list(answer["data"]["result"])

    def value(self, expression: str, at_unix_seconds: float) -> float:
        """The one value of an expression."""
        (found,) = self.query(expression, at_unix_seconds)
        return float(found["value"][1])

    def names(self, from_unix_seconds: float) -> list[str]:
        """Names of all series since then."""
        answer = self._get("/api/v1/label/__name__/values", start=f"{from_unix_seconds:.0f}").json()
        return list(answer["data"])

    def rows(self, selector: str) -> Iterator[bytes]:
        """Every selected series as /api/v1/export has it: a JSON object a line."""
        with self.http.get(
            f"{self.url}/api/v1/export", params={"match[]": selector}, timeout=REPLAY_SECONDS, stream=True
        ) as answer:
            assert answer.ok, answer.text
            yield from answer.iter_lines(1 << 20)

    def export(self, selector: str) -> list[tuple[dict[str, str], list[float], list[float]]]:
        """Every sample of the selected series: labels, unix seconds, values."""
        rows = map(json.loads, self._get("/api/v1/export", **{"match[]": selector}).text.splitlines())
        return [(row["metric"], [stamp / 1000 for stamp in row["timestamps"]], row["values"]) for row in rows]


class _Posted(io.RawIOBase):
    """What is written here is imported, as far as its last whole line; the rest with what comes next."""

    def __init__(self, database: VictoriaMetrics) -> None:
        super().__init__()
        self._database, self._rest = database, b""

    def writable(self) -> bool:
        return True

    def write(self, part: Any) -> int:
        lines, end, rest = (self._rest + bytes(part)).rpartition(b"\n")
        self._rest = rest
        if lines:
            self._database.take(lines + end)
        return len(part)


class VmAlert(_Program):
    """vmalert over a database; `rules`: rule files. Alerts go to the Alertmanager at `notifier`."""

    name = "vmalert"

    def __init__(
        self,
        folder: Path,
        database: str,
        notifier: str,
        rules: Iterable[Path],
        *arguments: str,
        port: int | None = None,
    ) -> None:
        super().__init__(
            folder,
            *_common(database, rules),
            f"-notifier.url={notifier}",
            f"-remoteRead.url={database}",
            *arguments,
            port=port,
        )

    def alerts(self) -> list[dict[str, Any]]:
        """Pending and firing alerts."""
        # null where there is none
        return list(self._get("/api/v1/alerts").json()["data"]["alerts"] or ())

    def groups(self) -> list[dict[str, Any]]:
        """Groups with their rules, each with its last error."""
        return list(self._get("/api/v1/rules").json()["data"]["groups"] or ())


def replay(
    folder: Path, database: VictoriaMetrics, rules: Iterable[Path], begin_unix_seconds: float, end_unix_seconds: float
) -> None:
    """Evaluates rule files over a past and writes what they yield, alerts as `ALERTS`, back into the database.

    vmalert evaluates a rule over all of the time before it takes up the next: what a rule reads has to be there, from an earlier replay.
    """
    command = [
        program("vmalert"),
        *_common(database.url, rules),
        f"-replay.timeFrom={_rfc3339(begin_unix_seconds)}",
        f"-replay.timeTo={_rfc3339(end_unix_seconds)}",
        # at the border of two requests an alert would be pending anew
        "-replay.maxDatapointsPerQuery=100000",
        "-replay.rulesDelay=0s",
        "-replay.disableProgressBar",
        "-remoteWrite.maxQueueSize=1000000",
        "-remoteWrite.maxBatchSize=100",
        "-evaluationInterval=1m",
        # else every fifth minute is looked at: a point is a step, which is five minutes by default
        "-datasource.queryStep=0s",
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=REPLAY_SECONDS)
    with (folder / "replay.log").open("a") as log:
        log.write(done.stdout + done.stderr)
    assert done.returncode == 0, done.stderr[-4000:]
    # what could not be written is logged and left out
    assert "\terror\t" not in done.stderr, done.stderr[-4000:]
    database.flush()


def _common(database: str, rules: Iterable[Path]) -> list[str]:
    return [
        f"-datasource.url={database}",
        f"-remoteWrite.url={database}",
        *(f"-rule={path}" for path in rules),
        # Prometheus adds no such label; routes and inhibitions go by the rule's own
        "-disableAlertgroupLabel",
        # what is recorded should be there when the next rule reads it
        "-remoteWrite.flushInterval=50ms",
    ]


def _rfc3339(unix_seconds: float) -> str:
    return datetime.fromtimestamp(unix_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
