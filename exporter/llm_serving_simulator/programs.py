"""Programs of one's own, for the demos: Prometheus, Alertmanager, Grafana; each on loopback, in a temporary folder, gone when closed."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

import yaml

from llm_serving_exporter.errors import ListenError
from llm_serving_exporter.files.written import make_held_folder
from llm_serving_exporter.model.record import Struct, field
from llm_serving_exporter.terminal import print_line
from llm_serving_simulator.options import find_free_port, on_next_free_port, require_free, say_moved

# --- A server program as a child process: a temporary folder, a log, ready before it is used, gone when closed.


_READY_SECONDS = 15.0
_STOP_SECONDS = 3.0
# between the look for a free port and the program's own bind, another program may take the port
_TRIES = 3
_PORT_TAKEN = "address already in use"


class ChildError(Exception):
    """The program did not come up; the message carries its last words."""


class Child:
    """A program that answers GET `ready_path` on a loopback port, the asked one or the next free one (0: any).

    `prepare(folder, address)` writes its files into the folder and returns its command; address is "127.0.0.1:PORT". It has a process
    group of its own, so that a Ctrl-C meant for its parent does not reach it first, and is ended by its pid. Raises ChildError where it
    does not become ready or `cancelled` is set meanwhile, OSError where no port is free or it cannot be started.
    """

    def __init__(
        self,
        name: str,
        prepare: Callable[[Path, str], Sequence[str]],
        port: int = 0,
        cancelled: threading.Event | None = None,
        ready_path: str = "/-/ready",
        ready_seconds: float = _READY_SECONDS,
    ) -> None:
        self._ready_path, self._ready_seconds = ready_path, ready_seconds
        self._held: int | None
        self._folder, self._held = make_held_folder("llm-serving-demo-")
        self._log = self._folder / f"{name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        try:
            for tries_left in reversed(range(_TRIES)):
                try:
                    self._start(prepare, port, cancelled or threading.Event())
                    break
                except ChildError as error:
                    if not tries_left or _PORT_TAKEN not in str(error).lower():
                        raise
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return self._process.pid if self._process is not None else None

    def close(self) -> None:
        """End it, by force after three seconds, and remove its folder."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            try:
                process.wait(timeout=_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._folder, ignore_errors=True)
        held, self._held = self._held, None
        if held is not None:
            os.close(held)

    def _start(self, prepare: Callable[[Path, str], Sequence[str]], port: int, cancelled: threading.Event) -> None:
        chosen = on_next_free_port(lambda candidate: require_free("127.0.0.1", candidate), port)
        self.url = f"http://127.0.0.1:{chosen}"
        command = prepare(self._folder, f"127.0.0.1:{chosen}")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(  # noqa: S603  # a program found on PATH, arguments of ours, no shell
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
                pass_fds=()
                if self._held is None
                else (self._held,),  # if its parent is killed, it still holds its folder
            )
        self._wait_until_ready(self._process, cancelled)

    def _wait_until_ready(self, process: subprocess.Popen[bytes], cancelled: threading.Event) -> None:
        deadline = time.monotonic() + self._ready_seconds
        while time.monotonic() < deadline:
            if process.poll() is not None:
                break
            try:
                with urllib.request.urlopen(f"{self.url}{self._ready_path}", timeout=1):  # noqa: S310  # http on loopback
                    return
            except (urllib.error.URLError, OSError):
                if cancelled.wait(0.1):
                    raise ChildError("cancelled") from None
        words = self._log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise ChildError(words[-1] if words else f"not ready after {self._ready_seconds:.0f} s")


# --- A Prometheus of one's own, for the demos: loopback, a temporary folder, gone when closed.


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


def start_prometheus(
    program: str,
    exporter_url: str,
    asked_port: int,
    stack: ExitStack,
    cancelled: threading.Event,
    pace: Pace = _PACE,
    rules: Rules = _NO_RULES,
    past: Past | None = None,
) -> Prometheus | None:
    """One that scrapes the exporter, at the asked port or the next free one, and is closed with `stack`; None, and a line for the user,
    where it does not start."""
    try:
        free = find_free_port("127.0.0.1", asked_port, "--prometheus-port")
        running = Prometheus(program, exporter_url.removeprefix("http://"), free, pace, rules, cancelled, past)
    except (OSError, ListenError, ChildError) as error:
        print_line(f"Prometheus did not start, the demo runs without: {error}")
        return None
    stack.callback(running.close)
    say_moved("Prometheus", asked_port, running.url)
    return running


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


# --- An Alertmanager of one's own, for the demos: it routes, groups and inhibits as configured, and sends nothing to anybody.


# Debian's package calls the server prometheus-alertmanager
PROGRAMS = ("prometheus-alertmanager", "alertmanager")


def find_alertmanager() -> str | None:
    """Where Alertmanager is; None where it is not on PATH."""
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


def silence_receivers(config: str) -> str:
    """The same configuration whose receivers have names and no integrations: who would be told is known, and nobody is."""
    document = yaml.safe_load(config)
    document["receivers"] = [{"name": receiver["name"]} for receiver in document["receivers"]]
    # only integrations use them
    document.pop("templates", None)
    return yaml.safe_dump(document, sort_keys=False)


class Alertmanager(Child):
    """The program as a child process with that configuration, made harmless by `silence_receivers`. Raises as `Child`."""

    def __init__(self, program: str, config: str, port: int = 0, cancelled: threading.Event | None = None) -> None:
        def prepare(folder: Path, address: str) -> list[str]:
            file = folder / "alertmanager.yml"
            file.write_text(silence_receivers(config), encoding="utf-8")
            return [
                program,
                f"--config.file={file}",
                f"--storage.path={folder / 'data'}",
                f"--web.listen-address={address}",
                "--cluster.listen-address=",  # no cluster of one
                "--log.level=warn",
            ]

        super().__init__("alertmanager", prepare, port, cancelled)


# --- A Grafana of one's own, for the demo: anybody on this machine may look, nobody can change anything, gone when closed.


# where Debian's and RedHat's packages of grafana.com have it; a tarball has its own folder above bin/
_HOMES = (Path("/usr/share/grafana"),)
_GRAFANA_READY_SECONDS = 60.0


def find_grafana() -> tuple[str, Path] | None:
    """The program and its home folder; None where Grafana is not on PATH, or its home is not found."""
    program = shutil.which("grafana")
    if program is None:
        return None
    homes = (Path(program).resolve().parent.parent, *_HOMES)
    home = next((folder for folder in homes if (folder / "conf" / "defaults.ini").is_file()), None)
    return None if home is None else (program, home)


class Grafana(Child):
    """The program as a child process with these dashboards (texts by file name) and provisioning (texts by file name, in the folders that
    Grafana's `provisioning` has). `{dashboards}` in them is where the dashboards are. Raises as `Child`."""

    def __init__(
        self,
        program: str,
        home: Path,
        dashboards: Mapping[str, str],
        provisioning: Mapping[str, str],
        port: int = 3000,
        cancelled: threading.Event | None = None,
    ) -> None:
        def prepare(folder: Path, address: str) -> list[str]:
            shown = folder / "dashboards"
            shown.mkdir(exist_ok=True)
            for name, text in dashboards.items():
                (shown / name).write_text(text, encoding="utf-8")
            for name, text in provisioning.items():
                file = folder / "provisioning" / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text.replace("{dashboards}", str(shown)), encoding="utf-8")
            host, _, number = address.rpartition(":")
            settings = {
                "server.http_addr": host,
                "server.http_port": number,
                "paths.data": str(folder / "data"),
                "paths.logs": str(folder / "logs"),
                "paths.plugins": str(folder / "plugins"),
                "paths.provisioning": str(folder / "provisioning"),
                "auth.anonymous.enabled": "true",
                "auth.anonymous.org_role": "Viewer",
                "analytics.reporting_enabled": "false",
                "analytics.check_for_updates": "false",
                "analytics.check_for_plugin_updates": "false",
                "news.news_feed_enabled": "false",
                "log.mode": "console",
                "log.level": "warn",
            }
            given = [f"cfg:default.{name}={value}" for name, value in settings.items()]
            return [program, "server", f"--homepath={home}", *given]

        super().__init__(
            "grafana", prepare, port, cancelled, ready_path="/api/health", ready_seconds=_GRAFANA_READY_SECONDS
        )
