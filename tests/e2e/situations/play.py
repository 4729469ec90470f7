"""Plays situations: simulated minute by minute, read by exporters, judged by the rules, told by an Alertmanager's configuration.

All stand in one database, each in a cluster of its own, which is an identity label of the rules; what has no cluster (the Watchdog, no
exporter at all) is nobody's. A situation in which every exporter of the world goes needs a world of its own.
"""

import hashlib
import tempfile
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path

import yaml

from llm_serving_alerts.render import groups_text
from llm_serving_alerts.routes import alertmanager_files
from llm_serving_alerts.settings import Settings, Workload
from llm_serving_alerts.settings_file import default_settings, read_settings
from llm_serving_exporter.model.record import replace
from llm_serving_simulator.fleet.fleet import Fleet
from llm_serving_simulator.fleet.history import Sample, Watch
from llm_serving_simulator.fleet.pages import labels_text
from llm_serving_simulator.fleet.scenario import History
from llm_serving_simulator.fleet.workload import DAY_SECONDS
from tests.e2e.replay import read_by, rules_in_order, steps
from tests.e2e.situations import kube
from tests.e2e.situations.situation import MINUTE, Exporter, Situation
from tests.support.alertmanager_groups import AlertKey, Config, Sent, read_config, send
from tests.support.servers.victoriametrics import VictoriaMetrics, replay

# a Wednesday at 9:00 UTC
BEGIN_UNIX_SECONDS = 1_704_272_400.0
# before the first sample: batches and caches are warm, and engines have run for a while
WARM_SECONDS = 600.0
# of a series that is there now and then it would go by what is between its samples; a scrape marks the end of each, the simulation does not
LOOK_BACK = "-search.maxStalenessInterval=5m"
CLUSTER, JOB = "cluster", "llm-serving"
PREFIX = "LLMServing"
PAGER, TICKETS = "pagerduty", "tickets"
THRESHOLDS = {"ttft": 2.5}


@dataclass(frozen=True)
class Told:
    """What was told of a situation. `timeline`: by second of the scenario, what fired; `sent`: notifications, in order of time."""

    situation: Situation
    timeline: tuple[tuple[float, frozenset[AlertKey]], ...]
    sent: tuple[Sent, ...]

    def opened(self, receiver: str) -> list[Sent]:
        """Incidents that somebody was called for, or tickets that were opened."""
        return [one for one in self.sent if one.receiver == receiver and one.opens]

    def fired(self) -> dict[AlertKey, tuple[float, float | None]]:
        """Of each alert when it first fired and when it last ended; None: it fires still. Without the Watchdog."""
        found: dict[AlertKey, tuple[float, float | None]] = {}
        last: frozenset[AlertKey] = frozenset()
        for at, firing in self.timeline:
            for alert in firing:
                found[alert] = (found[alert][0] if alert in found else at, None)
            for alert in last - firing:
                found[alert] = (found[alert][0], at)
            last = firing
        return found


def alert_name(alert: AlertKey) -> str:
    """Without the prefix."""
    return dict(alert)["alertname"].removeprefix(PREFIX)


def settings_for(situations: Collection[Situation]) -> Settings:
    """The defaults at a sample a minute, with the cluster as identity and the situations' workloads."""
    settings = default_settings()
    slo = {
        name: replace(one, threshold_seconds=THRESHOLDS.get(name, one.threshold_seconds))
        for name, one in settings.slo.items()
    }
    workloads = tuple(
        Workload(
            model_name=one.name,
            namespace=kube.NAMESPACE,
            kind=one.kube,
            name=one.name,
            role="unified",
            pods_per_replica=1,
        )
        for one in situations
        if one.kube
    )
    return replace(
        _retiring(settings, [one for one in situations if one.retired_until]),
        scrape_interval_seconds=MINUTE,
        identity_labels=(CLUSTER,),
        external_labels=(CLUSTER,),
        slo=slo,
        node_loss=replace(settings.node_loss, workloads=workloads),
    )


def _retiring(settings: Settings, retired: Collection[Situation]) -> Settings:
    """With the models that are retired, where the rules know such a setting."""
    if not retired or "retired" not in {one.name for one in fields(Settings)}:
        return settings
    listed = [{"model_name": one.name, "until": one.retired_until} for one in retired]
    with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
        yaml.safe_dump({"identity_labels": [CLUSTER], "retired": listed}, file)
        file.flush()
        read, _warnings = read_settings(file.name)
    return replace(settings, retired=read.retired)


def play(situations: Collection[Situation], folder: Path, *, processes: int = 2) -> dict[str, Told]:
    """Plays them in one world."""
    settings = settings_for(situations)
    groups = rules_in_order(settings)
    config = read_config(alertmanager_files(settings)["alertmanager.yml"])
    end = BEGIN_UNIX_SECONDS + max(one.seconds for one in situations)
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="victoria-", dir=folder) as own,
        VictoriaMetrics(Path(own), LOOK_BACK) as database,
    ):
        work = partial(write_lines, folder=folder, wanted=read_by(groups))
        # the longest first, so that no process is left alone with it
        ordered = sorted(situations, key=lambda one: -one.seconds * len(one.scenario.replicas))
        if processes > 1:
            with ProcessPoolExecutor(processes) as pool:
                for made in pool.map(work, ordered):
                    database.take_file(made)
        else:
            for one in ordered:
                database.take_file(work(one))
        database.flush()
        for number, together in enumerate(steps(groups)):
            file = Path(own) / f"rules-{number}.yml"
            file.write_text(groups_text(together))
            replay(Path(own), database, [file], BEGIN_UNIX_SECONDS, end)
        firing = database.export('ALERTS{alertstate="firing"}')
    by_cluster: dict[str, dict[float, set[AlertKey]]] = defaultdict(lambda: defaultdict(set))
    for labels, stamps, _values in firing:
        shown = {name: text for name, text in labels.items() if name not in ("__name__", "alertstate") and text}
        for stamp in stamps:
            by_cluster[labels.get(CLUSTER, "")][stamp].add(tuple(sorted(shown.items())))
    return {one.name: told(one, config, by_cluster.get(one.name, {})) for one in situations}


def told(situation: Situation, config: Config, firing: Mapping[float, Collection[AlertKey]]) -> Told:
    """Of what fired, by Unix seconds of the evaluation."""
    moments = int(situation.seconds / MINUTE)
    timeline = tuple(
        (minute * MINUTE, frozenset(firing.get(BEGIN_UNIX_SECONDS + minute * MINUTE, ()))) for minute in range(moments)
    )
    return Told(situation, timeline, tuple(send(config, timeline, situation.seconds)))


def write_lines(situation: Situation, folder: Path, wanted: frozenset[str]) -> Path:
    """The situation's samples, as VictoriaMetrics imports them. Those of an earlier play in the same folder, of the same series, are taken
    again."""
    of = hashlib.sha256(" ".join(sorted(wanted)).encode()).hexdigest()[:12]
    path = folder / f"{situation.name}.{of}.lines"
    if not path.exists():
        unfinished = path.with_suffix(".part")
        with unfinished.open("w") as out:
            out.writelines(lines(situation, wanted))
        unfinished.rename(path)
    return path


def lines(situation: Situation, wanted: frozenset[str]) -> Iterator[str]:
    """A sample a minute of everything that is scraped."""
    scenario = situation.scenario
    settled = replace(scenario, history=History(WARM_SECONDS / DAY_SECONDS))
    fleet = settled.fleet(with_history=True, epoch_unix_seconds=BEGIN_UNIX_SECONDS - WARM_SECONDS)
    for at, act in situation.acts:
        fleet.call_at(WARM_SECONDS + at, partial(act, fleet))
    pods = kube.Pods(situation, fleet)
    watches: dict[str, Watch] = {}
    fleet.advance(WARM_SECONDS)
    for minute in range(int(situation.seconds / MINUTE)):
        seconds = minute * MINUTE
        fleet.advance(WARM_SECONDS + seconds)
        stamp = f"{(BEGIN_UNIX_SECONDS + seconds) * 1000:.0f}"
        for exporter in situation.exporters:
            scraped = {"job": JOB, "instance": f"{exporter.name}.{situation.name}:10077", CLUSTER: situation.name}
            for name, labels, value in exported(situation, exporter, fleet, pods, watches, seconds, wanted):
                yield f"{name}{labels_text({**labels, **scraped})} {value!r} {stamp}\n"
        others: list[Sample] = [
            ("alertmanager_notifications_failed_total", {"integration": "pagerduty", "job": "alertmanager"}, 0.0),
            ("alertmanager_notifications_total", {"integration": "pagerduty", "job": "alertmanager"}, 1.0),
        ]
        if situation.kube:
            others += [
                (name, {"job": "kube-state-metrics", "instance": f"ksm.{situation.name}:8080", **labels}, value)
                for name, labels, value in kube.samples(situation, fleet, pods, seconds)
            ]
        if situation.more is not None:
            others += situation.more(fleet, seconds)
        for name, labels, value in others:
            yield f"{name}{labels_text({**labels, CLUSTER: situation.name})} {value!r} {stamp}\n"


def exported(
    situation: Situation,
    exporter: Exporter,
    fleet: Fleet,
    pods: kube.Pods,
    watches: dict[str, Watch],
    seconds: float,
    wanted: frozenset[str],
) -> Iterator[Sample]:
    """What a scrape of an exporter yields now, `up` included; nothing where Prometheus does not know it any more."""
    outages = [one for one in exporter.outages if one.begin_seconds <= seconds < one.end_seconds]
    if outages:
        # what it counted dies with it
        watches.pop(exporter.name, None)
        if all(one.scraped for one in outages):
            yield "up", {}, 0.0
        return
    scenario = situation.scenario
    watch = watches.get(exporter.name)
    if watch is None:
        watch = watches[exporter.name] = Watch(
            fleet,
            interval_seconds=MINUTE,
            wanted=wanted,
            slo=scenario.slo,
            expected_replicas=scenario.expected_replicas,
            gpus=situation.gpus,
            replicas=exporter.replicas,
            identities=kube.identities(situation),
            discovers=pods.exist if situation.discovers else None,
        )
    yield from watch.samples()
    ended = [one.end_seconds for one in exporter.outages if one.end_seconds <= seconds]
    yield "up", {}, 1.0
    yield "llm_serving_exporter_build_info", {"version": "1.0.0"}, 1.0
    yield "llm_serving_exporter_config_reload_success", {}, 1.0
    yield "process_start_time_seconds", {}, BEGIN_UNIX_SECONDS + max(ended, default=-DAY_SECONDS)
