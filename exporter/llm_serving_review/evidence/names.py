"""What the review asks Prometheus for, by name: the exporter's counters, and the rule pack's hourly records where those are gone.

The rules are a package of their own that the exporter does not import; a test checks each name against what they render. In every
expression pairs of exporters and duplicate scrapes count once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from llm_serving_exporter.catalogue import BY_NAME, cost
from llm_serving_exporter.catalogue.spec import IDENTITY_LABELS, NODE_LABELS, PLACE_LABELS
from llm_serving_exporter.clients.stored_labels import escape_regex, loose_matchers, take_exported
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.text import escape_label_value

TARGET = ("target", "model_name", "role")
MODEL = ("model_name", "role")

REQUIRED = "model:llm_serving_required_replicas:ceil"
PRESENT = "model:llm_serving_present_replicas:sum"
RESERVES = ("none", "nodes")
MODEL_RECORDS = (REQUIRED, PRESENT)
# what the alerts of a check come to; absent where nobody knows
VERDICT = "model:llm_serving_check:verdict"
VERDICTS = {"fine": 0, "ticket": 1, "page": 2}

ALERT_PREFIX = "LLMServing"
WATCHDOG = f"{ALERT_PREFIX}Watchdog"
PAGE, TICKET = "critical", "warning"

# what an upkeep of the scrape or of a pair of rule evaluators adds, and does not make another alert of it
_SCRAPE_LABELS = (
    "instance",
    "job",
    "pod",
    "replica",
    "prometheus",
    "prometheus_replica",
    "endpoint",
    "container",
    "service",
)


class Quantity(Struct, frozen=True):
    """A counter whose growth the review adds up by hour."""

    name: str  # the field of `Usage` that holds it
    counter: str  # the exporter's counter, without prefix
    of: tuple[str, ...]  # labels that are kept, besides those of the target
    record: str  # the rule pack's hourly record of the same growth; "": there is none
    alike: tuple[str, ...] = ("engine",)  # labels that tell the series of one target apart; they are added up
    where: str = ""  # matchers that choose the record's series; "" for all


COST = Quantity("cost", cost.COST.name, ("phase", "rate", "method"), "target:llm_serving_cost_usd:increase1h")
GPU_SECONDS = Quantity(
    "gpu_seconds", cost.GPU_SECONDS.name, ("state", "rate"), "target:llm_serving_gpu_seconds:increase1h"
)
PREFILL = Quantity(
    "prefill_tokens", "prefill_tokens_total", (), "target:llm_serving_phase_tokens:increase1h", where='phase="prefill"'
)
DECODE = Quantity(
    "decode_tokens", "decode_tokens_total", (), "target:llm_serving_phase_tokens:increase1h", where='phase="decode"'
)
PROMPT = Quantity("prompt_tokens", "prompt_tokens_total", (), "target:llm_serving_prompt_tokens:increase1h")
CACHED = Quantity(
    "cached_tokens", "cached_prompt_tokens_total", (), "target:llm_serving_cached_prompt_tokens:increase1h"
)
REQUESTS = Quantity(
    "requests", "requests_finished_total", (), "target:llm_serving_requests_finished:increase1h", ("engine", "reason")
)
ENERGY = Quantity("energy_joules", cost.ENERGY.name, (), "target:llm_serving_energy_joules:increase1h")
ENERGY_COST = Quantity("energy_cost", cost.ENERGY_COST.name, (), "target:llm_serving_energy_cost_usd:increase1h")
CARBON = Quantity("carbon_grams", cost.CARBON.name, (), "target:llm_serving_carbon_grams:increase1h")
SAVINGS = Quantity("savings", cost.SAVINGS.name, (), "target:llm_serving_prefix_cache_savings_usd:increase1h")
SLO = Quantity(
    "slo",
    "slo_events_total",
    ("slo", "outcome"),
    "target:llm_serving_slo_events:increase1h",
    ("engine", "source", "threshold"),
)
QUANTITIES = (COST, GPU_SECONDS, PREFILL, DECODE, PROMPT, CACHED, REQUESTS, ENERGY, ENERGY_COST, CARBON, SAVINGS, SLO)
RECORDS = tuple(dict.fromkeys(quantity.record for quantity in QUANTITIES))
COUNTERS = tuple(quantity.counter for quantity in QUANTITIES)

# gauges and info series, without prefix, as the catalogue has them
PRICE, RATE_INFO, COMMITTED, BUDGET = cost.PRICE.name, cost.RATE_INFO.name, cost.COMMITTED_GPUS.name, cost.BUDGET.name
ATTRIBUTION = cost.ATTRIBUTION.name
TARGET_GPUS, NODE_INFO, TARGET_INFO, HELD_TARGETS = "target_gpus", "target_node_info", "target_info", "exporter_targets"
BANDWIDTH, BATCH = "bandwidth_ceiling_ratio", "batch_utilization_ratio"
GAUGES = (PRICE, RATE_INFO, COMMITTED, BUDGET, ATTRIBUTION, TARGET_GPUS, NODE_INFO, TARGET_INFO, BANDWIDTH, BATCH)

# what kube-state-metrics says of nodes; the second only where its --metric-labels-allowlist names the labels
KUBE_INFO, KUBE_LABELS = "kube_node_info", "kube_node_labels"
KUBE_PLACES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    KUBE_INFO: {"provider_id": ("provider_id",)},
    # label_ and the name of the node's label with underscores, the old names behind the new ones
    KUBE_LABELS: {
        "region": ("label_topology_kubernetes_io_region", "label_failure_domain_beta_kubernetes_io_region"),
        "zone": ("label_topology_kubernetes_io_zone", "label_failure_domain_beta_kubernetes_io_zone"),
        "instance_type": ("label_node_kubernetes_io_instance_type", "label_beta_kubernetes_io_instance_type"),
    },
}


def exported(name: str) -> str:
    """The full name of a series of the exporter. Raises KeyError where the catalogue has none of that name."""
    return BY_NAME[name].full_name


class Asking(Struct, frozen=True):
    """Writes the queries."""

    identity: tuple[str, ...] = ()  # labels that tell fleets apart
    by: tuple[str, ...] = ()  # further labels that the bill is split by

    @property
    def extra(self) -> tuple[str, ...]:
        """Labels that the scrape adds and the review keeps."""
        return (*self.identity, *(label for label in self.by if label not in self.identity))

    @property
    def scraped_by(self) -> tuple[str, ...]:
        """Labels that `up` has too and that tell one fleet's scrapes from another's: a scrape, or what stores it, adds them to all
        series. What a target has of its own, such as its namespace, is another one on the exporter's own series."""
        return tuple(label for label in self.identity if label not in IDENTITY_LABELS)

    def increase(self, quantity: Quantity, seconds: float) -> str:
        """Growth of a counter in the last `seconds` by target, else what was recorded where the counter is gone."""
        labels, target = _join_labels(*self.extra, *TARGET, *quantity.of), _join_labels(*self.extra, "target")
        counter = exported(quantity.counter)
        grown = f"sum by ({labels}) ({take_exported(f'increase({counter}[{_write_range(seconds)}])', *self.extra)})"
        # pairs count the same second side by side, a replaced exporter and its successor one after the other: all of it is added up, and
        # divided by how many there were at a time in the mean. A second less than the hour: its first moment belongs to the one before
        places = _join_labels("model_name", "role", *quantity.alike, *quantity.of)
        span = f"[{round(seconds) - 1}s:1m]"
        seen = f"count_over_time((max by ({target}) ({take_exported(counter, *self.extra)})){span})"
        by_each = take_exported(f"count_over_time((max without ({places}) ({counter})){span})", *self.extra)
        raw = f"{grown} * on ({target}) group_left () ({seen} / on ({target}) sum by ({target}) ({by_each}))"
        if seconds != 3600 or not quantity.record:
            return raw
        # records know the identity labels alone, so that a match by all labels would count an hour twice
        known = _join_labels(*self.identity, *TARGET, *quantity.of)
        return f"{raw} or on ({known}) {self.recorded(quantity)}"

    def recorded(self, quantity: Quantity) -> str:
        """Growth of a counter in the hour as the rule pack recorded it. Records know the identity labels alone."""
        known = _join_labels(*self.identity, *TARGET, *quantity.of)
        where = f"{{{quantity.where}}}" if quantity.where else ""
        return f"max by ({known}) ({quantity.record}{where})"

    def presence(self) -> str:
        """Whether a scrape had a target's GPU time in the last minutes. Without timestamp(), which takes Prometheus 17 times as long."""
        counter = take_exported(exported(GPU_SECONDS.counter), *self.identity)
        return f"max by ({_join_labels(*self.identity, 'target', 'job', 'instance')}) ({counter})"

    def samples(self, labels: Sequence[tuple[str, str]], seconds: float) -> str:
        """The samples themselves of one target's GPU time in the last `seconds`."""
        return f"{exported(GPU_SECONDS.counter)}{{{_match_target(labels)}}}[{_write_range(seconds)}]"

    def over_hour(self, name: str, labels: Sequence[str], seconds: float, function: str = "max_over_time") -> str:
        """A gauge of the exporter over the last `seconds`, one value per identity and these labels."""
        places = (label for label in labels if label in (*PLACE_LABELS, *NODE_LABELS))
        stored = take_exported(f"{function}({exported(name)}[{_write_range(seconds)}])", *self.identity, *places)
        return f"max by ({_join_labels(*self.identity, *labels)}) ({stored})"

    def cluster_nodes(self, name: str, seconds: float) -> str:
        """Nodes as kube-state-metrics had them in the last `seconds`, with the labels that say where they stand."""
        labels = (label for names in KUBE_PLACES[name].values() for label in names)
        stored = take_exported(f"max_over_time({name}[{_write_range(seconds)}])", "node")
        return f"max by ({_join_labels(*self.scraped_by, 'node', *labels)}) ({stored})"

    def mean_by_model(self, name: str, labels: Sequence[str], seconds: float) -> str:
        """A gauge's mean over a model's engines and the minutes of the last `seconds` in which it is above 0: the idle have no batch."""
        each = _join_labels(*self.identity, *TARGET, "engine", *labels)
        mean = take_exported(f"avg_over_time(({exported(name)} > 0)[{_write_range(seconds)}:1m])", *self.identity)
        engine = f"max by ({each}) ({mean})"
        return f"avg by ({_join_labels(*self.identity, *MODEL, *labels)}) ({engine})"

    def replicas(self, record: str, matchers: str, function: str, seconds: float) -> str:
        """A record by model over the last `seconds`."""
        selector = f"{record}{{{matchers}}}" if matchers else record
        return f"max by ({_join_labels(*self.identity, *MODEL)}) ({function}({selector}[{_write_range(seconds)}]))"

    def verdicts(self, value: int, seconds: float) -> str:
        """Hours of the last `seconds` in which a check had this verdict, by model, role and check."""
        # the first moment of an hour belongs to the one before
        minutes = f"sum_over_time(({VERDICT} == bool {value})[{round(seconds) - 1}s:1m])"
        return f"max by ({_join_labels(*self.identity, *MODEL, 'check')}) ({minutes}) / 60"

    def alerts(self) -> str:
        """Alerts of the rule pack that fire."""
        which = f'ALERTS{{alertname=~"{ALERT_PREFIX}.*",alertname!="{WATCHDOG}",alertstate="firing",severity!="none"}}'
        return f"max without ({_join_labels(*(label for label in _SCRAPE_LABELS if label not in self.identity))}) ({which})"

    @staticmethod
    def watchdog() -> str:
        """The alert that always fires: where it is not, nothing evaluates the rules."""
        return f'max(ALERTS{{alertname="{WATCHDOG}",alertstate="firing"}})'

    def answers(self, scrapes: Sequence[tuple[str, ...]]) -> str:
        """By job, instance and fleet: 1 where an exporter answered its scrape, 0 where the scrape failed, nothing where there was none.
        Its own series say that it answered where `up` is not kept."""
        which = _match_scrapes(scrapes)
        own = f'{exported(HELD_TARGETS)}{{state="held",{which}}} >= bool 0'
        by = _join_labels("job", "instance", *self.scraped_by)
        return f"max by ({by}) ({own} or on ({by}) up{{{which}}})"

    def uncounted(self, scrapes: Sequence[tuple[str, ...]]) -> str:
        """Targets that an exporter has without counting their GPU time."""
        info = f"{exported(TARGET_INFO)}{{{_match_scrapes(scrapes)}}}"
        by = _join_labels("job", "instance", *self.scraped_by, "target")
        return f"max by ({by}) ({info} unless on ({by}) {exported(GPU_SECONDS.counter)})"

    def scraped_jobs(self, jobs: Sequence[str]) -> str:
        """Jobs of each fleet of which anything is scraped, whatever comes of it."""
        return f"count by ({_join_labels('job', *self.scraped_by)}) (up{{job=~{_match_any(jobs)}}})"

    def scraped_at_all(self) -> str:
        """Whether anything of a fleet is scraped."""
        return f"count by ({_join_labels(*self.scraped_by)}) (up)"

    def everything_of(self, labels: Sequence[tuple[str, str]]) -> str:
        """All counters, prices and GPUs of one target as they stand, whoever says it."""
        names = "|".join(exported(name) for name in (*COUNTERS, TARGET_GPUS, PRICE))
        return f'{{__name__=~"{names}",{_match_target(labels)}}}'


def quote_label(value: str) -> str:
    """A label's value as PromQL writes it."""
    return f'"{escape_label_value(value)}"'


def _match_target(labels: Sequence[tuple[str, str]]) -> str:
    """Matchers for the series of a target, by its name and labels that tell fleets apart."""
    known = dict(labels)
    return ",".join(filter(None, (f"target={quote_label(known.pop('target', ''))}", loose_matchers(known))))


def _match_scrapes(scrapes: Sequence[tuple[str, ...]]) -> str:
    jobs, instances = (sorted({scrape[at] for scrape in scrapes}) for at in (0, 1))
    return f"job=~{_match_any(jobs)},instance=~{_match_any(instances)}"


def _match_any(values: Sequence[str]) -> str:
    return quote_label("|".join(escape_regex(value) for value in values))


def _join_labels(*labels: str) -> str:
    return ", ".join(dict.fromkeys(labels))


def _write_range(seconds: float) -> str:
    return "1h" if seconds == 3600 else f"{max(1, round(seconds))}s"
