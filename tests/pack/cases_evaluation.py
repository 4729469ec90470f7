"""When the alert on rules that are not evaluated as they should be fires and when it does not."""

from __future__ import annotations

from tests.pack.builders import Grows, counter, firing, held
from tests.pack.promtool import Case, Firing, Kind, Story, together

MINUTES = 45
KV, LOAD = "llm-serving.kv.alerts", "llm-serving.node-loss.load"


def _of_group(name: str, host: str, group: str, values: str) -> dict[str, str]:
    """A series by group as each server writes it: with the file before the group, or without."""
    label = f'group="{group}"' if name.startswith("vmalert") else f'rule_group="/etc/rules/r.yml;{group}"'
    return {f'{name}{{instance="{host}",job="rules",{label}}}': values}


def _firing(host: str, count: int, groups: str) -> tuple[Firing]:
    return (
        firing(
            "RulesFailing",
            "warning",
            "exporter",
            {"instance": host},
            f"{host}: groups of rules that fail or come too late: {count}",
            f"Again and again within the last 10m: {groups} - what these groups record is old or missing, and what they alert on is found late or "
            "not at all.",
            "read the rule's error on the rules page; look at its memory and CPU",
        ),
    )


# each minute until the thirtieth; the first two samples are there at minute 1
_AGAIN, _GOOD = counter(Grows(30, 1), Grows(15, 0)), counter(Grows(MINUTES, 0))
_FAILED, _MISSED = "prometheus_rule_evaluation_failures_total", "prometheus_rule_group_iterations_missed_total"

_RULES = together(
    "RulesFailing",
    "groups that fail or come too late",
    ("14m", "20m", "41m"),
    Story(
        (Kind.FIRES, Kind.NOT_YET, Kind.RECOVERY),
        {
            # one group both fails and comes late, another is late
            **_of_group(_FAILED, "prometheus:9090", LOAD, _AGAIN),
            **_of_group(_MISSED, "prometheus:9090", LOAD, _AGAIN),
            **_of_group(_MISSED, "prometheus:9090", KV, _AGAIN),
            **_of_group(_FAILED, "prometheus:9090", KV, _GOOD),
            # another team's
            **_of_group(_FAILED, "prometheus:9090", "kubernetes.rules", _AGAIN),
        },
        {"20m": _firing("prometheus:9090", 2, f"/etc/rules/r.yml;{KV} /etc/rules/r.yml;{LOAD}")},
    ),
    Story(
        (Kind.FIRES,),
        {
            **_of_group(f"cortex_{_FAILED}", "mimir-ruler-0:8080", KV, _AGAIN),
            **_of_group(f"cortex_{_MISSED}", "mimir-ruler-0:8080", KV, _GOOD),
        },
        {"20m": _firing("mimir-ruler-0:8080", 1, f"/etc/rules/r.yml;{KV}")},
    ),
    # 1.79 says whether a rule fails, newer ones count
    Story(
        (Kind.FIRES,),
        _of_group("vmalert_recording_rules_error", "vmalert:8880", LOAD, held((30, 1), (15, 0))),
        {"20m": _firing("vmalert:8880", 1, LOAD)},
    ),
    Story(
        (Kind.FIRES,),
        _of_group("vmalert_alerting_rules_errors_total", "vmalert-new:8880", KV, _AGAIN),
        {"20m": _firing("vmalert-new:8880", 1, KV)},
    ),
    # a single failure, and a single turn that was missed
    Story(
        (Kind.BELOW, Kind.LOW_TRAFFIC),
        {
            **_of_group(_FAILED, "once:9090", KV, counter(Grows(5, 0), Grows(1, 1), Grows(39, 0))),
            **_of_group(_MISSED, "once:9090", KV, counter(Grows(5, 0), Grows(1, 1), Grows(39, 0))),
        },
    ),
    # the server is restarted, its counters of old failures with it
    Story(
        (Kind.RESTART,),
        _of_group(_FAILED, "again:9090", KV, counter(Grows(5, 0), Grows(40, 0, reborn=True), start=900)),
    ),
    # rules of others only
    Story((Kind.ABSENT,), _of_group(_FAILED, "others:9090", "kubernetes.rules", _AGAIN)),
    doubled=False,
    records=False,
)

CASES: tuple[Case, ...] = (_RULES,)
