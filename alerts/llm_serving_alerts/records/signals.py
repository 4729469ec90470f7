"""Signals that a workload has lost: some of its replicas lack what all of them had."""

from __future__ import annotations

from llm_serving_alerts.external import KUBE_REPLICAS
from llm_serving_alerts.promql import MINUTE, TARGETS, WORKLOAD, Dialect, clauses, one_of, series
from llm_serving_alerts.rules import Group, Record, write_records
from llm_serving_alerts.settings import Settings
from llm_serving_exporter.clients.stored_labels import take_exported

# --- Which workload each target belongs to, how many of its replicas answer, and how many are wanted.
#
# A workload is what lasts while pods come and go: the same model, role, runtime and workload of the same fleet. Hosts without Kubernetes
# have no workload; there it is the model, role and runtime.

WORKLOADS = "target:llm_serving_workload:info"
ANSWERING = "workload:llm_serving_answering_replicas:count"
WANTED = "workload:llm_serving_wanted_replicas:sum"
# the version of the exporter that reads it: what another version can read may be more or less
READER = "reader"
# what lasts is looked at once a minute
INTERVAL_SECONDS = MINUTE
_BELONGS = ("workload", "workload_kind", "namespace")


def workloads(dialect: Dialect, settings: Settings) -> Group:
    """Targets that answer with their workload, and workloads with their replicas."""
    by_workload = dialect.labels(*WORKLOAD)
    return Group(
        "llm-serving.workloads",
        write_records(f"""
            ## 1 for a target that is ready, 0 for one whose answer nobody can read, with its workload; reader: the exporter's version
            {WORKLOADS} = {_info(dialect)}
            ## replicas of a workload that answer
            {ANSWERING} = count by ({by_workload}) ({WORKLOADS})
            ## pods that kube-state-metrics says are wanted of a workload that has replicas
            {WANTED} = sum by ({by_workload}) ({_wanted(dialect)})
        """),
        INTERVAL_SECONDS,
    )


# what is known of a target, from the most to the least
_KNOWN_BEST = ('model_name!="",version!=""', 'model_name!=""', "")


def _info(dialect: Dialect) -> str:
    of_target, of_exporter = dialect.key("target"), dialect.key("instance", "job")
    build = take_exported(series("exporter_build_info"), "version")
    version = f'label_replace({build}, "{READER}", "$1", "version", "(.+)")'
    reader = f"topk by ({of_exporter}) (1, max by ({dialect.key('instance', 'job', READER)}) ({version}))"
    labels = dialect.key("target", "runtime", "version", "model_name", "role", READER)
    # of several exporters one that has read it, and knows the most; without the exporter's own series nobody knows who reads
    known = f" or on ({of_target}) ".join(
        f"({info} * on ({of_exporter}) group_left ({READER}) ({reader}) or on ({of_exporter}, target) {info})"
        for info in (series("target_info", matchers) for matchers in _KNOWN_BEST)
    )
    one = f"topk by ({of_target}) (1, max by ({labels}) ({known}))"
    placed = ", ".join(dict.fromkeys((*dialect.own, *_BELONGS)))
    return clauses(
        ("what it is, and who reads it", f"({one})"),
        ("what it belongs to", f"* on ({of_target}) group_left ({placed}) {TARGETS}"),
        ("whether it answers", f"* on ({of_target}) group_left () ({_answers(dialect)})"),
    )


def _answers(dialect: Dialect) -> str:
    """1 for a target that somebody reads, 0 for one that answers and that nobody can read any more."""
    of_target = dialect.key("target")
    ready, unknown = (dialect.bare(series("target_state", state=state), "target") for state in ("ready", "unknown"))
    read_before = series("signal_available", reason="target_down")
    return f"{ready} == 1 or on ({of_target}) ({unknown} == 1) * 0 and on ({of_target}) {read_before}"


def _wanted(dialect: Dialect) -> str:
    """Of each kind that kube-state-metrics has in its default configuration, by namespace and name; one that is scraped without
    `honor_labels` has the namespace as exported_namespace."""
    of_object = dialect.key("namespace", "workload")
    by_kind = []
    for kind, (wanted, name) in KUBE_REPLICAS.items():
        named = f'label_replace({take_exported(wanted, "namespace")}, "workload", "$1", "{name}", "(.+)")'
        ours = f'max by ({dialect.labels(*WORKLOAD, "workload_kind", "namespace")}) ({WORKLOADS}{{workload_kind="{kind}"}})'
        by_kind.append(f"{ours} * 0 + on ({of_object}) group_left () max by ({of_object}) ({named})")
    return " or ".join(by_kind)


# --- Signals that a workload has lost: some of its replicas lack what all of them had.
#
# Kept by workload, so that pods under new names and half of an upgrade are seen. A line for each signal that is absent is all that is
# read: what has none, of a target that was looked at, is available.

LOST = "workload:llm_serving_lost_signals:count"
_SEEN = "workload:llm_serving_answering:bool"
_BROKEN = "workload:llm_serving_signal_broken:bool"
WHOLE = "workload:llm_serving_signal_whole:count"
# why a GPU has no price, as the exporter says it; other reasons are not about prices
UNPRICED = ("no_price", "price_ambiguous", "gpu_claimed_twice")
# not lost: there is no work (an engine may say nothing then, which looks stale), too little time has passed, it was switched off, or the
# question has no answer at this batch, on this role or on a GPU of several engines; prices have an alert of their own
NOT_LOST = (
    "idle",
    "stale",
    "warming_up",
    "not_configured",
    "other_role",
    "no_ridge",
    "no_decode",
    "target_down",
    "gpu_shared",
    *UNPRICED,
)
# a moment is every five minutes: for half an hour all replicas must have had what is called lost
MOMENT_SECONDS, MOMENTS = 5 * MINUTE, 6
# a record of these moments lasts from one to the next, and over one that was missed
_KEPT_SECONDS = 3 * MOMENT_SECONDS


def signals(dialect: Dialect, settings: Settings) -> tuple[Group, ...]:
    """What was there, and what of it is lost now."""
    return _memory(dialect, settings), _lost(dialect)


def _lost(dialect: Dialect) -> Group:
    was_whole = dialect.apply_over_time("last_over_time", WHOLE, _KEPT_SECONDS)
    of_signal = dialect.labels(*WORKLOAD, "signal")
    return Group(
        "llm-serving.signals",
        write_records(f"""
            ## replicas that lack a signal which all of the workload had, by version and reason
            {LOST} =
              # lacking now
              {_count_lacking(dialect, "version", "signal", "reason")}
              # all replicas had it
              and on ({of_signal}) {was_whole}
        """),
        INTERVAL_SECONDS,
    )


def _memory(dialect: Dialect, settings: Settings) -> Group:
    by, of_signal = dialect.labels(*WORKLOAD, READER), dialect.labels(*WORKLOAD, READER, "signal")
    of_target = dialect.key("target")
    read = series("target_state", 'state=~"ready|unknown"')
    replicas = f"count by ({by}) ({WORKLOADS} and on ({of_target}) {read} == 1)"
    absent = _by_all_readers(dialect, series("signal_available", 'reason!=""'))
    everywhere = (
        f"count by ({of_signal}) ({_of_workload(dialect, absent, READER)}) == on ({by}) group_left () {replicas}"
    )
    seen, broken = (
        dialect.apply_over_time("count_over_time", name, settings.memory_seconds) for name in (_SEEN, _BROKEN)
    )
    whole = f"sum by ({dialect.labels(*WORKLOAD, 'signal')}) ({seen} - on ({by}) group_right () {broken}) >= {MOMENTS}"
    return Group(
        "llm-serving.signals.memory",
        (
            *write_records(f"""
                ## 1 at each moment at which replicas of a workload answer, by the version of the exporters that read them
                {_SEEN} = {replicas} > bool 0
                ## 1 at each moment at which a replica of a workload lacks a signal, 0 at which nobody has it for a reason that is none
                {_BROKEN} =
                  # a replica lacks it
                  {_count_lacking(dialect, READER, "signal")} > bool 0
                  # no replica has it: nothing to do, or not asked for
                  or on ({of_signal}) ({everywhere}) * 0
            """),
            Record(
                WHOLE,
                clauses(
                    # a version of the exporter for which nothing was ever broken may not have known the signal: it says nothing of it
                    ("moments at which it was not broken", whole),
                    ("lacking now", f"and on ({dialect.labels(*WORKLOAD, 'signal')}) {_BROKEN} == 1"),
                ),
                "moments within the memory at which all replicas of a workload had a signal that one lacks now, six or more",
            ),
        ),
        MOMENT_SECONDS,
    )


def _count_lacking(dialect: Dialect, *by: str) -> str:
    """How many replicas lack a signal for a reason that counts, by workload and these labels."""
    labels = dialect.labels(*WORKLOAD, *by)
    return f"count by ({labels}) ({_of_workload(dialect, _lacking(dialect), *by)})"


def _of_workload(dialect: Dialect, by_target: str, *added: str) -> str:
    """Series by target with the labels of its workload, and those of these that are the target's."""
    labels = (*dialect.own, *WORKLOAD, *(name for name in ("version", READER) if name in added))
    joined = ", ".join(dict.fromkeys(labels))
    return f"({by_target}) + on ({dialect.key('target')}) group_left ({joined}) {WORKLOADS}"


def _lacking(dialect: Dialect) -> str:
    """A series for each target, signal and reason: what no exporter that reads the target has. A server that answers what nobody can
    read, such as a login page, lacks all of them; one that does not answer is down, which is another alert's."""
    of_signal, shown = dialect.key("target", "signal"), ("target", "signal", "reason")
    reasons = series("signal_available", one_of("reason", ("", *NOT_LOST), negated=True))
    lines = dialect.bare(f"{reasons} == 0", *shown)
    unread = dialect.bare(f"{series('signal_available', reason='target_down')} == 0", *shown)
    return clauses(
        ("no exporter that reads it has it", f"{lines} and on ({of_signal}) {_by_all_readers(dialect, reasons)}"),
        ("nobody can read what it answers", f"or {unread} and on ({dialect.key('target')}) {WORKLOADS} == 0"),
    )


def _by_all_readers(dialect: Dialect, lines: str) -> str:
    """Targets and signals of which every exporter that reads the target has such a line."""
    of_target = dialect.key("target")
    readers = f"count by ({of_target}) ({series('target_state', state='ready')} == 1)"
    said = f"count by ({dialect.key('target', 'signal')}) ({lines} == 0)"
    return f"({said} == on ({of_target}) group_left () {readers})"
