"""Who is lost: nodes, replicas of a model, exporters; and which node took which replicas along."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from llm_serving_alerts.external import NODE_CLOSED, SCRAPE_SECONDS, UP
from llm_serving_alerts.promql import DAY, HOUR, MINUTE, MODEL, NODES, REPLICA, Dialect, clauses, one_of, series
from llm_serving_alerts.records.history import (
    ALIVE,
    EACH_NODE,
    EXPORTERS,
    HAD,
    MOST,
    NODE_ANSWERED,
    NODE_READY,
    NODE_SERVED,
    ON_NODE,
    SEEN_EXPORTERS,
    SEEN_TARGETS,
    STATED,
    UNWANTED,
    not_ready,
    of_replica,
)
from llm_serving_alerts.records.node_loss import PRESENT
from llm_serving_alerts.records.rollouts import excused
from llm_serving_alerts.records.targets import DESIRED, DOWN, WANTED_NOW
from llm_serving_alerts.rules import Group, Record, write_records
from llm_serving_alerts.settings import Retired, Settings
from llm_serving_exporter.clients.stored_labels import take_exported
from llm_serving_exporter.model.text import escape_label_value

# --- How the memory of what was there ends before its horizon: by what the settings say is retired.


def unless_retired(
    dialect: Dialect, settings: Settings, expression: str, select: Callable[[str], str], *level: str
) -> str:
    """The expression without what is retired. `select`: matchers -> series of the same level that are there as long as the expression may
    hold; an entry of the settings chooses among them."""
    on = dialect.labels(*level)
    for one in settings.retired:
        now = f"unless on ({on}) ({select(_matchers(one))}) * 0 + time() < {one.until_unix_seconds:.0f}"
        expression = f"{expression}\n{clauses(('the settings say that it is retired until then', now))}"
    return expression


def _matchers(one: Retired) -> str:
    labels = {"model_name": one.model_name, **({"role": one.role} if one.role else {}), **one.labels}
    return ",".join(f'{name}="{escape_label_value(text)}"' for name, text in labels.items())


EXPORTERS_OF_JOB = "job:llm_serving_exporters:count"
LOST_NODES = "node:llm_serving_lost:bool"
LOST_REPLICAS = "model_node:llm_serving_lost_replicas:count"
DOWN_RATIO = "model:llm_serving_down:ratio"
OF_TARGETS = "model:llm_serving_wanted_targets:sum"
VANISHED = "model:llm_serving_vanished_targets:sum"
MISSING = "model:llm_serving_missing_replicas:sum"
UNREACHED = "fleet:llm_serving_unreached:ratio"
LOST_SHARE = "model_node:llm_serving_lost_replicas:ratio"
DOWN_ALONE = "target:llm_serving_down_alone:min"
SIDECAR = "sidecar"
# an exporter whose mode is not known may be on a node
OFF_NODE = one_of("mode", (SIDECAR, "central"), negated=True)
NOT_IN_POD = f'mode!="{SIDECAR}"'
# what was there for so long after the last replica had left was not lost with it
_LEFT_SECONDS = 15 * MINUTE
# a host that is there refuses a connection at once; one that is not lets the scrape wait
_WAITED_SECONDS = 1.0


def exporters(dialect: Dialect, settings: Settings) -> Group:
    """Exporters as they are scraped. Before anything that is remembered of them."""
    by = dialect.key("job", "instance")
    stated = f"max by ({dialect.key('job', 'instance', 'mode', 'node')}) ({take_exported(series('exporter_mode_info'), 'node')})"
    return Group(
        "llm-serving.exporters",
        write_records(f"""
            ## 1 for each exporter that is scraped, with its mode and its node
            {EXPORTERS} = topk by ({by}) (1, {stated}) or on ({by}) max by ({by}) ({series("exporter_build_info")})
            ## exporters of a job that are scraped, but for those in the pods of their engines
            {EXPORTERS_OF_JOB} = count by ({dialect.key("job", "mode")}) ({EXPORTERS}{{{NOT_IN_POD}}})
        """),
    )


def presence(dialect: Dialect, settings: Settings) -> Group:
    """What is lost now."""
    return Group("llm-serving.presence", (*_nodes(dialect), *_models(dialect, settings)))


def known_exporters(dialect: Dialect, matchers: str = NOT_IN_POD) -> str:
    """Exporters that were scraped within a day."""
    return dialect.apply_over_time("last_over_time", f"{SEEN_EXPORTERS}{{{matchers}}}", DAY)


def no_answer(dialect: Dialect) -> str:
    """Scrapes that have failed for five minutes, whoever makes them: of a pair of Prometheus whose samples one store holds, one may be cut
    off."""
    up = dialect.apply_over_time("max_over_time", UP, 5 * MINUTE)
    return f"{dialect.bare(up, 'job', 'instance')} == 0"


def somebody_looks(dialect: Dialect) -> str:
    """Fleets of which an exporter is left, or had none but those in the pods that are gone: of others ExporterAbsent tells."""
    by, sidecars = dialect.key(), known_exporters(dialect, f'mode="{SIDECAR}"')
    return f"({EXPORTERS} or on ({by}) ({sidecars} unless on ({by}) {known_exporters(dialect)}))"


def _nodes(dialect: Dialect) -> Iterator[Record]:
    of_target, of_node = dialect.key("target"), dialect.key("node")
    of_exporter = dialect.key("job", "instance")
    faults = take_exported(series("target_fault_info", 'fault=~"silent|node_lost"'), "node")
    down = f"(max by ({of_target}) ({DOWN}) == 1)"
    silent = f"max by ({dialect.key('target', 'node')}) (({faults}) and on ({of_target}) {down})"
    # one that spans nodes may fail by another one's loss; one that serves has all of its own. Whether it is there is said by the same page
    # as its fault: a record may be older
    several = f"count by ({of_target}) ({NODES}) > 1"
    answers = f"({dialect.bare(series('target_up'), 'target')} unless on ({of_target}) ({faults}))"
    alone = f"({NODES} and on ({of_target}) {answers} unless on ({of_target}) ({several}))"
    serves = f"({NODES} and on ({of_target}) target:llm_serving_ready:max == 1)"
    nobody = f"max by ({of_node}) ({silent})"
    closed = f"(max by ({of_node}) ({take_exported(NODE_CLOSED, 'node')}) == 1)"

    def unless_meant(last_there: str) -> str:
        # somebody closed it, or its replicas had left it before
        left = f"({NODE_SERVED} >= on ({of_node}) ({last_there} - {dialect.length(_LEFT_SECONDS)}))"
        return f"unless on ({of_node}) {closed} and on ({of_node}) {left}"

    called = f"({not_ready(dialect)} {unless_meant(NODE_READY)})"
    waited = f"min by ({of_exporter}) ({dialect.apply_over_time('min_over_time', SCRAPE_SECONDS, 5 * MINUTE)})"
    own = known_exporters(dialect, EACH_NODE)
    silenced = (
        f"({own} and on ({of_exporter}) ({no_answer(dialect)}) and on ({of_exporter}) ({waited} > {_WAITED_SECONDS:g}))"
    )
    gone = f"({silenced} {unless_meant(NODE_ANSWERED)})"
    lost = f"max by ({of_node}) ({nobody} or {called} or {gone}) * 0 + 1 and on ({of_node}) {ON_NODE}"
    yield from write_records(f"""
        ## 1 for a node that had ready replicas and has none now, and does not answer or is not ready for Kubernetes; 0 for another
        {LOST_NODES} = ({lost}) unless on ({of_node}) {alone} unless on ({of_node}) {serves}
          or on ({of_node}) max by ({of_node}) ({ON_NODE}) * 0
        ## replicas of a model that a lost node had, 0 for a node that is there
        {LOST_REPLICAS} = {ON_NODE} * on ({of_node}) group_left () {LOST_NODES}
    """)


def _models(dialect: Dialect, settings: Settings) -> Iterator[Record]:
    by_model, of_target = dialect.labels(*MODEL), dialect.key("target")
    gone = f"{HAD} unless on ({by_model}) {ALIVE} unless on ({by_model}) {UNWANTED} == 1 unless on ({by_model}) {DESIRED} == 0"
    looked = f"{gone} and on ({dialect.key()}) {somebody_looks(dialect)}"
    # a server that loads its weights refuses connections: what never answered is not there yet, but is not lost; what has been down for
    # longer was read once, as long as its exporter remembers
    up = dialect.apply_over_time("max_over_time", SEEN_TARGETS, DAY)
    was_up = f"max by ({of_target}) ({up})"
    read = f"{dialect.bare(series('target_start_time_seconds'), 'target')} * 0 + 1"
    never = f"{dialect.bare(series('target_up'), 'target')} * 0"
    was = f" or on ({of_target}) ".join((f"{was_up} > 0", read, never))
    each = of_replica(dialect, f"{DOWN} * on ({of_target}) group_left () ({was})")
    lost = f"sum by ({by_model}) (max by ({dialect.labels(*REPLICA)}) ({each}))"
    # likewise the replicas that scaling up asks for need a while to come; a model that was taken out is no longer wanted
    # of one that nobody shows or wants any more there is only what is remembered
    known = f"({ALIVE} or on ({by_model}) {WANTED_NOW})"
    least = dialect.apply_over_time("min_over_time", DESIRED, HOUR / 2)
    asked = f"({least} and on ({by_model}) {DESIRED} and on ({by_model}) {known})"
    # those that never were there at once wait for capacity, or are a first deployment: nothing was lost (ReplicaLost tells of them)
    wanted = f"({asked} <= on ({by_model}) {MOST} or on ({by_model}) ({MOST} and on ({by_model}) {asked}))"
    yield from write_records(f"""
        ## targets of a model that is gone with all of them
        {VANISHED} = {unless_retired(dialect, settings, looked, lambda matchers: f"{HAD}{{{matchers}}}", *MODEL)}
        ## targets of a model that should be there: wanted, known and once up, or gone
        {OF_TARGETS} = ({wanted} or on ({by_model}) {ALIVE} + on ({by_model}) {lost} or on ({by_model}) {VANISHED}) > 0
    """)


def missing(dialect: Dialect, settings: Settings) -> Group:
    """How many replicas and targets are missing, but for those that a rollout excuses."""
    by_model = dialect.labels(*MODEL)
    left = f"({ALIVE} or on ({by_model}) {OF_TARGETS} * 0)"
    if rolling := excused(dialect, settings, OF_TARGETS):
        left = f"({left} + on ({by_model}) {rolling})"
    return Group(
        "llm-serving.missing",
        (
            Record(
                DOWN_RATIO,
                f"clamp_min(1 - {left} / on ({by_model}) {OF_TARGETS}, 0)",
                "share of a model's targets that is down or gone",
            ),
            Record(MISSING, _missing(dialect, settings), "replicas that are wanted and neither ready nor asleep"),
            *_causes(dialect, settings),
        ),
    )


def lasting(dialect: Dialect, record: str, settings: Settings, alert: str) -> str:
    """The least value of a record within the time that the alert which is made of it waits: what comes and goes explains nothing."""
    return dialect.apply_over_time("min_over_time", record, settings.alerts[alert].for_seconds)


def _causes(dialect: Dialect, settings: Settings) -> Iterator[Record]:
    by_model, of_target, of_node = dialect.labels(*MODEL), dialect.key("target"), dialect.key("node")
    lost = lasting(dialect, LOST_REPLICAS, settings, "NodeLost")
    yield from write_records(f"""
        ## share of a fleet's targets that is down or gone for another reason than a lost node
        {UNREACHED} = {_unreached(dialect, settings)}
        ## share of a model's targets that went with a lost node and that nothing has replaced
        {LOST_SHARE} = {lost} / on ({by_model}) group_left () {OF_TARGETS} > 0 and on ({by_model}) {DOWN_RATIO} > 0
    """)
    nodes = f"{NODES} and on ({of_node}) {lasting(dialect, LOST_NODES, settings, 'NodeLost')} == 1"
    fleets = f"{lasting(dialect, UNREACHED, settings, 'FleetUnreachable')} > {_most_unreached(settings):g}"
    yield Record(
        DOWN_ALONE,
        # VictoriaMetrics would fill gaps of the first from an `or on` of the second: both have the same labels
        f"{DOWN} unless on ({of_target}) ({nodes}) unless on ({dialect.key()}) ({fleets}) or {DOWN} * 0",
        "1 for a target that is down and neither its node nor its whole fleet is, 0 for another",
    )


def _most_unreached(settings: Settings) -> float:
    return settings.alerts["FleetUnreachable"]["above"]


def _unreached(dialect: Dialect, settings: Settings) -> str:
    fleet, by_model, above = dialect.key(), dialect.labels(*MODEL), _most_unreached(settings)
    all_ = f"sum by ({fleet}) ({OF_TARGETS})"
    lost = f"sum by ({fleet}) ({DOWN_RATIO} * on ({by_model}) {OF_TARGETS})"
    # one lost node is NodeLost's, however much of the fleet it was
    nodes = f"count by ({fleet}) ({LOST_NODES} == 1)"
    node = f"(max by ({fleet}) (sum by ({dialect.key('node')}) ({LOST_REPLICAS})) and on ({fleet}) {nodes} == 1 or on ({fleet}) {all_} * 0)"
    several = f"(count by ({fleet}) ({DOWN_RATIO} > {above:g}) > 1 or on ({fleet}) {nodes} > 1)"
    return clauses(
        ("what is down or gone, but for one lost node", f"({lost} - on ({fleet}) {node}) / on ({fleet}) {all_}"),
        ("of several models or nodes", f"and on ({fleet}) {several}"),
    )


def _missing(dialect: Dialect, settings: Settings) -> str:
    by_model = dialect.labels(*MODEL)
    # of a model that is wanted and that no exporter shows, none is there; unless there is no exporter at all
    unknown = f"unless on ({by_model}) model:llm_serving_targets:count"
    remembered = f"unless on ({by_model}) ({STATED} unless on ({by_model}) {WANTED_NOW})"
    nobody = f"{DESIRED} * 0 {unknown} {remembered} and on ({dialect.key()}) {somebody_looks(dialect)}"
    # each that an autoscaler asks for has the alert's own time to come
    patience = max(settings.alerts["ReplicaLost"].for_seconds, 5 * MINUTE)
    wanted = dialect.apply_over_time("min_over_time", DESIRED, patience)
    missing = f"{wanted} - on ({by_model}) ({PRESENT} or on ({by_model}) {nobody})"
    rolling = excused(dialect, settings, DESIRED)
    return f"{missing} - on ({by_model}) {rolling}" if rolling else missing
