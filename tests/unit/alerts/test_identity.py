"""What rules, panels and runbooks read: labels that no scrape has renamed, series that are published; and that all they record is read."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from llm_serving_alerts.alerting import ALERTS
from llm_serving_alerts.promql_tree import Binary, Call, Leaf, Node, Noted, Unary, list_selectors, parse
from llm_serving_alerts.reference import record_labels
from llm_serving_alerts.render import RECORDS, every_rule, rule_groups
from llm_serving_alerts.rules import ALERT_PREFIX, AlertRule, Record
from llm_serving_alerts.runbook_texts import read_queries
from llm_serving_alerts.settings_file import read_settings
from llm_serving_exporter.catalogue.health import ASKED_WHETHER_LIVE
from llm_serving_exporter.catalogue.serving import HISTOGRAMS
from llm_serving_exporter.catalogue.spec import PLACE_LABELS, PREFIX
from tests.simweek.build import queries, week_settings
from tests.support.builders.panelqueries import filled
from tests.support.paths import ROOT, TESTS
from tests.support.renamed import find_renamed
from tests.support.rows import check_rows

# --- selectors of PromQL expressions, and the series of golden pages that they match ---


Labels = Mapping[str, str]

_MATCHER = re.compile(r'\s*(\w+)\s*(=~|!~|!=|=)\s*"((?:[^"\\]|\\.)*)"\s*,?')
# a word of a runbook that its reader replaces, such as MODEL and GPU-UUID
_PLACEHOLDER = re.compile(r"[A-Z][A-Z-]+")
# what a scrape puts on every series: the exporter does not say it
_OF_THE_SCRAPE = {"job", "instance"}
# before a label of the exporter's that a scrape without honor_labels has put its own in the place of
_RENAMED = "exported_"


@dataclass(frozen=True)
class Matcher:
    """A condition on one label."""

    label: str
    operator: str  # =, !=, =~ or !~
    value: str  # as it is written; of a runbook it may be a word that the reader is to replace by what is there

    def admits(self, labels: Labels) -> bool:
        """Whether series with these labels are chosen, as Prometheus chooses: a label that is not there is ""."""
        found = labels.get(self.label.removeprefix(_RENAMED), "")
        if _PLACEHOLDER.fullmatch(self.value):
            return found != ""
        holds = re.fullmatch(self.value, found) is not None if "~" in self.operator else found == self.value
        return holds is not self.operator.startswith("!")


@dataclass(frozen=True)
class Selector:
    """What an expression reads."""

    name: str  # of the series, or a regular expression for it
    matchers: tuple[Matcher, ...]

    def __str__(self) -> str:
        matchers = ",".join(f'{one.label}{one.operator}"{one.value}"' for one in self.matchers)
        return f"{self.name}{{{matchers}}}" if matchers else self.name

    def admits(self, labels: Labels) -> bool:
        """Whether series of its name with these labels are chosen; what the scrape says of them is left out."""
        return all(one.admits(labels) for one in self.matchers if one.label not in _OF_THE_SCRAPE)


def read_selectors(expression: str) -> Iterator[Selector]:
    """Every selector of an expression, as often as it stands there. Where a matcher lists names it is one for each of them, unless it looks
    for labels that a scrape has renamed: those it need not find on all."""
    for leaf in list_selectors(parse(expression)):
        name, _, rest = leaf.text.partition("{")
        found = [Matcher(*one) for one in _MATCHER.findall(rest.removesuffix("}"))]
        names = [name] if name else [one.value for one in found if one.label == "__name__"]
        own = tuple(one for one in found if one.label != "__name__")
        renamed = any(one.label.startswith(_RENAMED) for one in own)
        for each in names:
            yield from (Selector(part, own) for part in ([each] if renamed else each.split("|")))


@cache
def read_golden_series() -> Mapping[str, Sequence[Labels]]:
    """The labels of every series of all golden pages, by the series' name."""
    found: dict[str, list[Labels]] = {}
    for page in sorted((TESTS / "golden").glob("*.prom")):
        for family in text_string_to_metric_families(page.read_text()):
            for sample in family.samples:
                found.setdefault(sample.name, []).append(sample.labels)
    return found


def find_unmatched(selectors: Iterable[Selector]) -> set[Selector]:
    """Those of them that choose no series of any golden page."""
    pages = read_golden_series()
    return {
        one
        for one in set(selectors)
        if not any(
            one.admits(labels) for name, found in pages.items() if re.fullmatch(one.name, name) for labels in found
        )
    }


EVERYTHING = """
slo: {itl: {threshold: 100ms}, e2e: {threshold: 40s}}
drill: {max_age: 90d}
node_loss:
  tolerate_nodes: 2
  workloads: [{model_name: a, namespace: b, kind: deployment, name: c}]
"""
WITH_OWN = "identity_labels: [cluster, namespace, team]\n" + EVERYTHING.replace(
    "name: c}", "name: c, labels: {team: d}}"
)


def expressions(text: str, folder: Path) -> list[tuple[str, str]]:
    """Every expression of the rules, and every query of their texts, with the name of its rule."""
    path = folder / "my-rules.yml"
    path.write_text(text)
    found = []
    for rule in every_rule(rule_groups(read_settings(str(path))[0])):
        found.append((rule.alert if isinstance(rule, AlertRule) else rule.record, rule.expr))
        if isinstance(rule, AlertRule):
            texts = " ".join(rule.annotations.values())
            found += [(rule.alert, query) for query in re.findall(r"`([^`]*llm_serving[^`]*)`", texts)]
    return found


@pytest.mark.parametrize(
    ("text", "labels"), [("", PLACE_LABELS), (EVERYTHING, PLACE_LABELS), (WITH_OWN, (*PLACE_LABELS, "team"))]
)
def test_no_expression_reads_a_label_that_a_scrape_may_have_renamed(
    tmp_path: Path, text: str, labels: tuple[str, ...]
) -> None:
    every = expressions(text, tmp_path)
    # what LabelsRenamed looks for is the renamed one
    found = {
        name: renamed
        for name, expression in every
        if name != "LLMServingLabelsRenamed" and (renamed := find_renamed(expression, labels))
    }
    assert found == {}
    assert len(every) > 300


@check_rows(
    "expression",
    [
        "max by (target, node) (llm_serving_target_node_info)",
        'sum(llm_serving_requests_running{node="a"})',
        "count by (role) (count by (role, node) (llm_serving_target_node_info == 1 and on (target) target:llm_serving_ready:max))",
        "llm_serving_gpu_up * on (gpu, node) llm_serving_gpu_busy_ratio",
        'label_replace(llm_serving_gpu_up, "pod", "$1", "exported_pod", "(.+)") and on (node) x',
        "target:llm_serving_ready:max * on (target) group_left (node) llm_serving_target_node_info",
    ],
)
def test_the_reader_sees_one_that_does(expression: str) -> None:
    assert find_renamed(expression, ("node",)) == ["node"]


@check_rows(
    "expression",
    [
        'max by (target, node) (label_replace(llm_serving_target_node_info, "node", "$1", "exported_node", "(.+)"))',
        'max by (node) (label_replace(label_replace(llm_serving_gpu_up, "node", "$1", "exported_node", "(.+)"), "a", "b", "", ""))',
        "max by (gpu) (llm_serving_gpu_up) * on (gpu) group_left (gpu_name, node) gpu:llm_serving_gpu:info",
        "count by (role, node) (target:llm_serving_node:info and on (target) target:llm_serving_ready:max == 1)",
        "sum by (target) (llm_serving_requests_running)",
    ],
)
def test_the_reader_lets_others_pass(expression: str) -> None:
    assert find_renamed(expression, ("node",)) == []


@pytest.mark.parametrize("identity", ["[namespace]", "[cluster, namespace, team]", "[cluster, workload]"])
def test_every_record_of_a_target_or_a_model_has_the_identity_labels_and_no_other_has_what_is_the_targets(
    tmp_path: Path, identity: str
) -> None:
    path = tmp_path / "my-rules.yml"
    path.write_text(f"identity_labels: {identity}\n")
    settings = read_settings(str(path))[0]
    for name, labels in record_labels(rule_groups(settings)[RECORDS]).items():
        level, metric, _ = name.split(":")
        about_targets = (
            level not in ("fleet", "gpu", "scrape", "node", "job", "exporter", "kube")
            and metric != "llm_serving_claims"
        )
        # what an exporter states of a model
        about_targets |= metric == "llm_serving_expected_replicas"
        wanted = settings.identity_labels if about_targets else settings.external_labels
        # the record of targets has more of what is theirs
        own = set(settings.own_labels) & set(labels)
        assert set(wanted) <= set(labels), name
        # the place that Kubernetes gives its objects
        assert about_targets or not own or level == "kube", name


# --- every selector of rules, panels and runbooks chooses a series that the exporter really publishes ---
# A label or a value that no page has any more leaves a query empty, and nothing else says so.


_NO_FAULT = "every golden target takes connections; tests/unit/expose/test_faults.py reads it"
_NO_PART = "every golden target is a replica by itself; tests/unit/targets/test_replicas.py reads parts"
_NO_INSTANCE = "the goldens' GPU is a whole card; tests/unit/gpus reads instances"
_NOT_RENAMED = "what a scrape has made of the labels, which the exporter's own page cannot show"
_GPM_IS_SUSPECT = "of the sources only GPM says more than the peak on a golden page: vllm-0.32-spec"
_NO_TENANTS = "no golden page is a gateway's that counts by tenant; tests/unit/targets/test_tenants.py reads some"
# what no golden page has, and why not
_READABLE = "no golden page is of a server whose page alone fails"
NOT_ON_A_PAGE = {
    'llm_serving_target_last_failure_timestamp_seconds{reason="page_fails"}': _READABLE,
    'llm_serving_target_last_failure_timestamp_seconds{target="TARGET",reason="page_fails"}': _READABLE,
    "llm_serving_target_fault_info": _NO_FAULT,
    'llm_serving_target_fault_info{fault=~"silent|node_lost"}': _NO_FAULT,
    'llm_serving_target_fault_info{node="NODE"}': _NO_FAULT,
    'llm_serving_.+{exported_fault!=""}': _NO_FAULT,
    'llm_serving_target_replica_ranks{of="replica",replica_name!=""}': _NO_PART,
    'llm_serving_target_replica_ranks{of="target",replica_name!=""}': _NO_PART,
    'llm_serving_.+{exported_replica_name!=""}': _NO_PART,
    'llm_serving_.+{exported_of!=""}': _NO_PART,
    'llm_serving_.+{exported_tenant!=""}': _NO_TENANTS,
    "llm_serving_tenant_prompt_tokens_total": _NO_TENANTS,
    "llm_serving_tenant_decode_tokens_total": _NO_TENANTS,
    'llm_serving_.+{exported_mig_profile!=""}': _NO_INSTANCE,
    'llm_serving_.+{exported_parent!=""}': _NO_INSTANCE,
    'llm_serving_written_labels_info{namespace!="as written",exported_namespace=""}': _NOT_RENAMED,
    'llm_serving_written_labels_info{node!="as written",exported_node=""}': _NOT_RENAMED,
    'llm_serving_target_info{cluster!=""}': "a label of the scrape or of the Prometheus",
    'llm_serving_signal_suspect{signal="bandwidth_ceiling_ratio_dcgm"}': _GPM_IS_SUSPECT,
    'llm_serving_signal_suspect{signal="bandwidth_ceiling_ratio_model"}': _GPM_IS_SUSPECT,
}
# nobody reads its buckets by a query: LLMServingSLOBurn.md sends its reader there
_READ_BY_PEOPLE = {"request_generation_tokens"}


def _read_rules() -> Iterator[str]:
    yield from (rule.expr for rule in every_rule(rule_groups(week_settings())))


def _read_panels() -> Iterator[str]:
    yield from map(filled, queries(week_settings()))


def _read_runbooks() -> Iterator[str]:
    for alert in ALERTS:
        yield from read_queries(f"{ALERT_PREFIX}{alert.name}")


WHERE = {"rules": _read_rules, "panels": _read_panels, "runbooks": _read_runbooks}


@cache
def find_asked(where: str) -> frozenset[Selector]:
    """What is asked there of the exporter's series."""
    return frozenset(one for text in WHERE[where]() for one in read_selectors(text) if one.name.startswith(PREFIX))


def find_all_asked() -> frozenset[Selector]:
    return frozenset().union(*map(find_asked, WHERE))


@pytest.mark.parametrize("where", WHERE)
def test_every_selector_chooses_a_series_of_a_golden_page_or_is_a_listed_exception(where: str) -> None:
    asked = find_asked(where)
    assert len(asked) > 40
    assert {str(one) for one in find_unmatched(asked)} <= NOT_ON_A_PAGE.keys()


def test_every_exception_is_asked_for_and_on_no_page() -> None:
    assert {str(one) for one in find_unmatched(find_all_asked())} == NOT_ON_A_PAGE.keys()


@check_rows(
    ("expression", "found"),
    [
        # as rules once asked for it, when the reason stood on the counter
        ('sum by (reason) (increase(llm_serving_scrape_failures_total{reason="timeout"}[5m])) > 0', False),
        ('llm_serving_scrape_failures_total{stage=~"scrape|parse",target="TARGET"}', True),
        ('llm_serving_scrape_failures_total{stage=~"scrap|parser"}', False),
        ('llm_serving_scrape_failures_total{stage!~"scrape|parse|normalise"}', False),
        ('llm_serving_scrape_failures_total{stage!=""} offset 5m', True),
        # what is available has no line
        ('llm_serving_signal_available{reason=""} == 1', False),
        ("llm_serving_signal_availability == 0", False),
        ('{__name__=~"llm_serving_target_up|llm_serving_signals",instance="INSTANCE"}', True),
        ('{__name__=~"llm_serving_target_up|llm_serving_signal"}', False),
        ('llm_serving_target_info{exported_runtime!=""}', True),
        ('llm_serving_target_info{exported_color!=""}', False),
    ],
)  # fmt: skip
def test_a_selector_that_chooses_nothing_is_found(expression: str, found: bool) -> None:
    assert bool(find_unmatched(read_selectors(expression))) is not found


def test_live_is_said_of_the_signals_of_which_rules_ask_it() -> None:
    asked = {
        tuple(f"{m.label}{m.operator}{m.value}" for m in sorted(one.matchers, key=lambda m: m.label))
        for one in find_all_asked()
        if one.name == f"{PREFIX}signal_quality" and "live" in str(one) and "!=" not in str(one)
    }
    assert asked == {("quality=live", f"signal={signal}") for signal in ASKED_WHETHER_LIVE}


def test_finite_buckets_are_published_of_the_histograms_whose_buckets_are_read() -> None:
    read = {
        one.name.removeprefix(PREFIX).removesuffix("_bucket")
        for one in find_all_asked()
        if one.name.endswith("_bucket") and 'le="+Inf"' not in str(one)
    }
    assert {metric.name for metric in HISTOGRAMS if metric.finite_buckets} == read | _READ_BY_PEOPLE


# --- no rule takes a function over time of what has one name now and another then ---
# Prometheus drops the names, finds two series of one label set, and refuses the whole rule.


_COMPARES = ("==", "!=", ">=", "<=", ">", "<")
# of functions and aggregations, those whose result has the name that it had
_KEEP = ("", "topk", "bottomk", "limitk", "sort", "sort_desc", "label_replace", "label_join", "last_over_time")


def find_names(node: Node) -> set[str]:
    """The names that the series of an expression may have; "" for those without."""
    match node:
        case Leaf():
            return {node.text.split("{")[0]} if node.is_selector else set()
        case Noted():
            return find_names(node.operand)
        case Unary():
            return {""}
        case Call():
            function = node.head.split("(")[0].split(" ")[0]
            return set().union(*map(find_names, node.arguments)) if function in _KEEP else {""}
        case Binary(name="or"):
            return find_names(node.left) | find_names(node.right)
        case Binary(name=name, operator=operator):
            keeps = name in ("and", "unless") or (name in _COMPARES and "bool" not in operator)
            return find_names(node.left) if keeps else {""}


def find_mixed(node: Node) -> Iterator[tuple[str, set[str]]]:
    """Calls over the moments of a subquery whose series have several names."""
    match node:
        case Call():
            for argument in node.arguments:
                over_time = isinstance(argument, Call) and ":" in argument.tail and "[" in argument.tail
                if over_time and len(names := find_names(argument)) > 1:
                    yield node.head, names
                yield from find_mixed(argument)
        case Unary() | Noted():
            yield from find_mixed(node.operand)
        case Binary():
            yield from find_mixed(node.left)
            yield from find_mixed(node.right)


@check_rows(
    ("expression", "mixed"),
    [
        ("max_over_time((a or on (target) b)[10m:1m])", True),
        ("max_over_time((a > 1 or b:c unless d)[10m:1m])", True),
        ("max_over_time((max by (target) (a) or on (target) max by (target) (b))[10m:1m])", False),
        ("sum_over_time((a * 0 + 1 or b * 0)[10m:1m])", False),
        ("max_over_time((a or a)[10m:1m])", False),
    ],
)
def test_it_is_found(expression: str, *, mixed: bool) -> None:
    assert bool(list(find_mixed(parse(expression)))) == mixed


def test_no_rule_mixes_names_over_time() -> None:
    found = {
        rule.record if isinstance(rule, Record) else rule.alert: list(find_mixed(parse(rule.expr)))
        for groups in rule_groups(read_settings(None)[0]).values()
        for group in groups
        for rule in group.rules
    }
    assert len(found) > 100
    assert {name: mixed for name, mixed in found.items() if mixed} == {}


# --- every recorded series is read by somebody ---
# Every recorded series is read by somebody: an alert, a panel, a runbook, the exporter's drills and reviews, or a document that says what
# to ask. What only another record reads counts where that one is read.


_RECORD = re.compile(r"\b\w+:llm_serving_\w+:\w+")
# generated from the records themselves
_LISTS = {"records.md"}


def _readers() -> Iterator[str]:
    for rule in every_rule(rule_groups(week_settings())):
        if not isinstance(rule, Record):
            yield rule.expr
            yield from rule.annotations.values()
    yield from queries(week_settings())
    for folder, pattern in (("alerts/llm_serving_alerts/runbooks", "*.md"), ("docs", "*.md"), ("exporter", "**/*.py")):
        for path in (ROOT / folder).glob(pattern):
            if path.name not in _LISTS:
                yield path.read_text()


def unread(reads: Mapping[str, set[str]], first: set[str]) -> set[str]:
    """Records that are not among the first, nor read by what is. `reads`: by record, what it reads."""
    open_, found = list(first), set(first)
    while open_:
        more = reads.get(open_.pop(), set()) - found
        found |= more
        open_ += more
    return reads.keys() - found


def test_a_chain_that_nobody_reads_is_found() -> None:
    reads: dict[str, set[str]] = {"a": {"b"}, "b": set(), "c": {"d", "c"}, "d": {"b"}}
    assert unread(reads, {"a"}) == {"c", "d"}


def test_every_record_is_read() -> None:
    reads: dict[str, set[str]] = {}
    for rule in every_rule(rule_groups(week_settings())):
        if isinstance(rule, Record):
            reads.setdefault(rule.record, set()).update(_RECORD.findall(rule.expr))
    assert len(reads) > 100
    named = {name for text in _readers() for name in _RECORD.findall(text)}
    assert not unread(reads, named)
