"""A Prometheus of one's own, for the demos: loopback, a temporary folder, gone when closed."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import yaml

from llm_serving_exporter.model.record import Struct, field
from llm_serving_simulator.child import Child, ChildError

# a week of the past, and the days that a demo may run
_RETENTION = "15d"
# for promtool to take the past in; a busy machine needs some ten
_PAST_SECONDS = 120.0


class Pace(Struct, frozen=True):
    """How fast a Prometheus works, in seconds of real time."""

    scrape_seconds: float = 5.0  # between two scrapes
    evaluate_seconds: float = 5.0  # between two evaluations of the rules
    lookback_seconds: float = 300.0  # for how long a series that is no longer scraped is still shown
    resend_seconds: float = 60.0  # after which an alert that still fires is sent again


class Rules(Struct, frozen=True):
    """Rule files, and who gets their alerts."""

    files: Mapping[str, str] = field(default_factory=dict)  # name -> text
    alertmanager: str | None = None  # host:port; None: nobody


class Past(Struct, frozen=True):
    """What was recorded before it starts."""

    promtool: str  # the program that makes blocks of it
    openmetrics: str  # series with timestamps in seconds; "# EOF" at the end


_PACE, _NO_RULES = Pace(), Rules()


class Prometheus(Child):
    """The program `prometheus` as a child process that scrapes one target, "host:port", and evaluates rules.

    Raises as `Child`; ChildError too where promtool refuses the past.
    """

    def __init__(
        self,
        program: str,
        target: str,
        port: int = 9090,
        pace: Pace = _PACE,
        rules: Rules = _NO_RULES,
        cancelled: threading.Event | None = None,
        past: Past | None = None,
    ) -> None:
        def prepare(folder: Path, address: str) -> list[str]:
            if past is not None and not (folder / "data").exists():
                _take_in(past, folder)
            for name, text in rules.files.items():
                (folder / name).write_text(text, encoding="utf-8")
            config = folder / "prometheus.yml"
            config.write_text(prometheus_config(target, pace, rules), encoding="utf-8")
            return [
                program,
                f"--config.file={config}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--storage.tsdb.retention.time={_RETENTION}",
                f"--query.lookback-delta={_milliseconds(pace.lookback_seconds)}",
                f"--rules.alert.resend-delay={_milliseconds(pace.resend_seconds)}",
                f"--web.listen-address={address}",
                "--log.level=warn",
            ]

        super().__init__("prometheus", prepare, port, cancelled)

    def graph_url(self, expression: str, span: str = "15m") -> str:
        """The address of its graph page with `expression` drawn over the last `span`."""
        return f"{self.url}/graph?g0.expr={quote(expression, safe='')}&g0.tab=0&g0.range_input={span}"


def _take_in(past: Past, folder: Path) -> None:
    source = folder / "past.om"
    source.write_text(past.openmetrics, encoding="utf-8")
    # promtool reads the text once for each block: one block for all of it
    command = [past.promtool, "tsdb", "create-blocks-from", "--max-block-duration=240h", "openmetrics"]
    try:
        done = subprocess.run(  # noqa: S603  # a program found on PATH, arguments of ours, no shell
            [*command, str(source), str(folder / "data")],
            capture_output=True,
            text=True,
            timeout=_PAST_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ChildError(f"promtool took longer than {_PAST_SECONDS:.0f} s for the week before") from None
    source.unlink()
    if done.returncode:
        raise ChildError(f"promtool: {(done.stderr.strip().splitlines() or ['no reason given'])[-1]}")


def prometheus_config(target: str, pace: Pace, rules: Rules) -> str:
    """prometheus.yml: one job with one target, the rule files beside it."""
    document: dict[str, object] = {
        "global": {
            "scrape_interval": _milliseconds(pace.scrape_seconds),
            "scrape_timeout": _milliseconds(pace.scrape_seconds),
            "evaluation_interval": _milliseconds(pace.evaluate_seconds),
        },
        "rule_files": list(rules.files),
        "scrape_configs": [
            {"job_name": "llm-serving-exporter", "honor_labels": True, "static_configs": [{"targets": [target]}]}
        ],
    }
    if rules.alertmanager is not None:
        document["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [rules.alertmanager]}]}]}
    return yaml.safe_dump(document, sort_keys=False)


def _milliseconds(seconds: float) -> str:
    return f"{max(1, round(seconds * 1000))}ms"
