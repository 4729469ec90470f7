"""Who is notified of an alert: an Alertmanager configuration for these rules, by the settings' identity labels.

`alertmanager.template` and `alertmanager.tmpl` beside this file hold what does not depend on the settings.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources
from string import Template

import yaml

from llm_serving_alerts.promql import MODEL
from llm_serving_alerts.rules import ALERT_PREFIX, Check
from llm_serving_alerts.settings import Settings
from llm_serving_exporter.errors import ConfigError, Problem

_QUIETER, _EVERY = "warning|info", "critical|warning|info"
# of the template, beside those of the settings
_OTHER_RECEIVERS = ("nobody", "dead-man")
WATCHDOG = f"{ALERT_PREFIX}Watchdog"

# Labels of a group, which is one incident to whoever responds. Those that an alert lacks (a GPU has no model) count as empty. The severity
# is one of them so that a silence made of them, as the link in a ticket fills it in, never takes the page along.
INCIDENT = ("check", "severity", "model_name", "role", "slo", "node", "gpu")
# whatever these say of one model, or of one GPU, belongs into one ticket; alerts of the others, and of other packs, have one each
ONE_TICKET = (Check.PHASES, Check.TTFT, Check.KV, Check.TAIL, Check.NODE_LOSS, Check.GPU)
# PagerDuty gets one deduplication key a group: what joins one that pages already rings nobody. Only a card's troubles have one cause.
ONE_PAGE = (Check.GPU,)
OWN_TICKET = ("alertname", "instance", "integration")
# a second stuck engine is one more; of the tickets about many targets one is enough
OWN_PAGE = (*OWN_TICKET, "target")


@dataclass(frozen=True, slots=True)
class Inhibition:
    """While `cause` pages, Alertmanager notifies nobody of `effects` with the same labels `equal`.

    What says less about the same thing is silenced, and never where it is critical: a page too many is a nuisance, one too few an outage.
    Only what is itself the cause of several pages may silence these (`of_pages`): they would all say the same.
    """

    cause: str  # the alert that pages, without its prefix
    effects: tuple[str, ...]  # the alerts that it silences, without their prefix
    why: str  # for the reader of the configuration
    # labels that cause and effects all carry; an alert without one of them silences nothing
    equal: tuple[str, ...] = MODEL
    of_pages: bool = False  # whether it silences critical alerts too


# alerts that carry the node by whose loss they are explained, where one is
OF_A_NODE = ("TargetDown", "TargetsDown", "ReplicaLost", "N1Critical", "GPUFailed", "TTFTBurn", "SLOBurn")
_BLIND = "nobody reaches them, and they would all say so"

INHIBITIONS = (
    Inhibition(
        "ThroughputBelowBaseline", ("ThroughputBelowBaseline",), "below the lower threshold is below the upper one"
    ),
    Inhibition("TTFTBurn", ("TTFTBurn",), "the same budget, spent faster"),
    Inhibition("SLOBurn", ("SLOBurn",), "the same budget, spent faster", (*MODEL, "slo")),
    Inhibition(
        "N1Critical",
        ("N1Insufficient", "ReplicaLost"),
        "a replica is lost and the others cannot carry the load: it says both",
    ),
    Inhibition("TargetsDown", ("TargetDown", "ReplicaLost"), "more than half of them are down, this one included"),
    Inhibition("NodeLost", OF_A_NODE, "they went with the node", ("node",), of_pages=True),
    Inhibition(
        "FleetUnreachable",
        ("NodeLost", "TargetDown", "TargetsDown", "ReplicaLost", "N1Critical"),
        _BLIND,
        (),
        of_pages=True,
    ),
)


def alertmanager_files(settings: Settings) -> dict[str, str]:
    """The configuration and its templates by the path that each has below the configuration's folder."""
    return {
        "alertmanager.yml": alertmanager_config(settings),
        "templates/llm-serving.tmpl": _packaged("alertmanager.tmpl"),
    }


def alertmanager_config(settings: Settings) -> str:
    """alertmanager.yml for Alertmanager 0.25 and newer, commented; groups and inhibitions know the settings' identity labels.

    Raises ConfigError where two of its receivers would have one name.
    """
    named = (settings.receivers.critical, settings.receivers.warning, *_OTHER_RECEIVERS)
    if len({*named}) < len(named):
        what = f"alertmanager.yml describes the receivers {', '.join(named)}, and two of them have one name"
        raise ConfigError(
            Problem("the rules' settings", "receivers", what, "Give pages and tickets names of their own.")
        )
    incident = (*settings.identity_labels, *INCIDENT)
    group = " ".join(f"{{{{ .CommonLabels.{name} }}}}" for name in settings.identity_labels)
    return Template(_packaged("alertmanager.template")).substitute(
        watchdog=WATCHDOG,
        prometheus=_list(settings.identity_labels or ("alertname",)),
        incident=_list(incident),
        own_ticket=_list((*incident, *OWN_TICKET)),
        own_page=_list((*incident, *OWN_PAGE)),
        one_ticket="|".join(ONE_TICKET),
        one_page="|".join(ONE_PAGE),
        group=group or "llm-serving",
        page=_text(settings.receivers.critical),
        ticket=_text(settings.receivers.warning),
        inhibitions="\n".join(_inhibition(one, settings) for one in INHIBITIONS),
    )


def compared(one: Inhibition, settings: Settings) -> tuple[str, ...]:
    """The labels that cause and effects must have, and have alike: a node, as a whole fleet, is of no namespace or team."""
    about = {*one.equal} & {*MODEL}
    return (*(settings.identity_labels if about else settings.external_labels), *one.equal)


def _inhibition(one: Inhibition, settings: Settings) -> str:
    equal = compared(one, settings)
    # Alertmanager takes a label that both sides lack for equal
    carried = [f'{name}=~".+"' for name in equal]
    effects = "|".join(f"{ALERT_PREFIX}{name}" for name in one.effects)
    source = [f'alertname="{ALERT_PREFIX}{one.cause}"', 'severity="critical"', *carried]
    target = [f'alertname=~"{effects}"', f'severity=~"{_EVERY if one.of_pages else _QUIETER}"', *carried]
    return (
        f"  # {one.cause}: {one.why}\n"
        f"  - source_matchers: {_quoted(source)}\n"
        f"    target_matchers: {_quoted(target)}\n"
        f"    equal: {_list(equal)}"
    )


def _text(name: str) -> str:
    """A name as YAML reads it back: null, true and the like are no text there without quotes."""
    return name if yaml.safe_load(name) == name else f'"{name}"'


def _list(names: tuple[str, ...]) -> str:
    return f"[{', '.join(names)}]"


def _quoted(matchers: list[str]) -> str:
    return _list(tuple(f"'{matcher}'" for matcher in matchers))


def _packaged(name: str) -> str:
    return resources.files("llm_serving_alerts").joinpath(name).read_text(encoding="utf-8")
