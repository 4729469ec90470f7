"""All that the collector knows of the product's modules. What a refactoring moves is changed here, in the commit that moves it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TextIO
from unittest.mock import patch

from prometheus_client.exposition import generate_latest

from llm_serving_alerts import generate as alerts
from llm_serving_dashboards import generate as dashboards
from llm_serving_exporter import logs
from llm_serving_exporter.daemon import jobs
from llm_serving_exporter.daemon.service import Service
from llm_serving_exporter.docgen import generate as docs
from llm_serving_exporter.expose.encode import encode
from llm_serving_exporter.model.record import replace
from tests.same.surroundings import CLOCK
from tests.support.builders.golden_cases import CASES
from tests.support.builders.golden_pages import golden_registry
from tests.support.logging_state import keep_logging

# name of a file below the root -> its text
Files = Mapping[Path, str]


def list_generators() -> list[Callable[[], Files]]:
    """Each makes some of the generated files; a later one may read what an earlier one has written."""
    from bench.accuracy import make_files
    from scripts import chart_readme, chart_schema, project_urls, sample_review

    return [
        lambda: {Path(name): make() for name, make in docs.FILES.items()},
        alerts.files,
        dashboards.render_files,
        lambda: {chart_schema.SCHEMA: chart_schema.render_schema()},
        lambda: {chart_readme.CHART / "README.md": chart_readme.render_readme()},
        project_urls.render,
        make_files,
        lambda: {sample_review.PAGE: sample_review.render_sample()},
    ]


def render_goldens() -> Iterator[tuple[str, str, str, str]]:
    """Of each golden case its name, the text that the golden holds, and what is served: as text and as OpenMetrics."""
    for name in CASES:
        registry = golden_registry(name)
        served = (encode(registry, accept)[0].decode() for accept in ("text/plain", "application/openmetrics-text"))
        yield name, generate_latest(registry).decode(), *served


def write_review(folder: Path) -> list[Path]:
    """The files of the sample review: page, CSV of the figures and of the hours, Markdown."""
    from llm_serving_review.command import write
    from tests.support.builders.samplereview import make_sample

    return write(make_sample(), folder, None)


@contextmanager
def forbid_daemon() -> Iterator[None]:
    """A configuration that is good after all raises instead of serving for ever."""

    def refuse(_self: Service) -> None:
        raise RuntimeError("the daemon starts: this input is not wrong")

    with patch.object(Service, "start", refuse):
        yield


class DrivenService:
    """A whole daemon on the stub clock: it reads its configuration as the command does, and serves over HTTP; `advance` runs its jobs."""

    def __init__(self, words: Iterable[str], *, log: TextIO, log_format: str = "logfmt") -> None:
        from llm_serving_exporter import cli
        from tests.support.builders.handschedule import HandSchedule
        from tests.support.servers.driven_exporter import quiet_machine

        self._logging = ExitStack()
        self._logging.enter_context(keep_logging())
        logs.set_up("debug", log_format, log)
        self._schedule = HandSchedule(CLOCK)
        arguments = cli._parser("run").parse_args([*words, "--web.listen-address", "127.0.0.1:0"])
        with ExitStack() as stack:
            stack.enter_context(patch.object(jobs, "ThreadSchedule", lambda **_more: self._schedule))
            host = jobs.TargetHost
            quiet = {"proc_root": quiet_machine()}
            stack.enter_context(patch.object(jobs, "TargetHost", lambda *given, **more: host(*given, **quiet, **more)))
            self._service = Service(
                cli._load(arguments),
                lambda: cli._load(arguments),
                lambda _config: _Gpus(),
                {"NODE_NAME": "node-a"},
                monotonic=CLOCK.elapsed,
            )
        self._service.start()
        self.url = self._service.url

    def advance(self, seconds: float) -> None:
        """Moves the clock on, and runs every job that becomes due meanwhile."""
        self._schedule.advance(seconds)

    def discover(self) -> None:
        """Has discovery look once, at no cost of time."""
        self._schedule.jobs["discovery"].run()

    def send_otlp(self) -> None:
        """Sends the series once, where a receiver is configured."""
        sender = self._service._otlp._sender
        if sender is None:
            raise ValueError("no receiver of OTLP is configured")
        sender.send()

    def close(self) -> None:
        """Ends it, and the logging that it has set up."""
        self._service.close()
        self._logging.close()


class _Gpus:
    """The two GPUs of the golden pages, 630 W each; one has been lost."""

    def read(self) -> Any:
        from llm_serving_exporter.model.gpu import GpuReadings
        from llm_serving_exporter.model.sample import Attempt, Stage
        from tests.support.builders.golden_pages import GPU, LOST_GPU

        passed = Attempt(Stage.GPU, None, "", CLOCK.wall(), 0.004)
        gpu = replace(GPU, energy_joules_total=630.0 * CLOCK.seconds)
        return GpuReadings(passed, "nvml", CLOCK.elapsed(), (gpu, LOST_GPU), "580.105.08")

    def close(self) -> None:
        pass
