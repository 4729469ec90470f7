"""What is stated of a model and does not say of which fleet, and targets that do not say to which fleet they belong: stored by several
scrapes, nothing false is said of either, and a ticket says what to write."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from llm_serving_exporter.catalogue.health import AS_WRITTEN, WRITTEN_LABELS
from llm_serving_exporter.catalogue.spec import IDENTITY_LABELS
from tests.pack.judging import ask, expect
from tests.pack.rulesets import PRESENCE
from tests.pack.test_conventions import groups_of
from tests.support.conventions import CONVENTIONS, FEW, Convention, Place

GROUPS = (
    "identity",
    "targets.replicas",
    "targets",
    *PRESENCE,
    "node-loss.present",
    "node-loss.demand",
    "exporter.alerts",
    "node-loss.alerts",
)
PLACE = Place("monitoring", "exporter-0", "exporter", "node-1", "10.0.0.1:10077")
SETTINGS = "drill: {max_age: 20m}\nalerts: {DrillOverdue: {for: 5m}}\n"
MINUTES = 40
ALERTS = [
    f"LLMServing{name}" for name in ("ReplicaLost", "LabelsRenamed", "DrillFailed", "DrillOverdue", "TargetsDown")
]
# by the labels of its own: how many replicas are ready of how many
Fleets = Mapping[str, tuple[int, int]]


def exported(model: str, name: str, value: object, **labels: str) -> tuple[str, dict[str, str], object]:
    return (
        f"llm_serving_{name}",
        {"model_name": model, "role": "unified", **dict.fromkeys(IDENTITY_LABELS, ""), **labels},
        value,
    )


def fleets(model: str, found: Fleets) -> Iterator[tuple[str, dict[str, str], object]]:
    for namespace, (ready, known) in found.items():
        for number in range(known):
            # one without a namespace is reached by an address
            name = f"{namespace}/{model}-{number}:8000" if namespace else f"{model}-{number}.example:8000"
            yield exported(model, "target_info", 1, target=name, namespace=namespace)
            for state in ("ready", "down"):
                labels = {"target": name, "state": state, "namespace": "", "pod": "", "container": "", "node": ""}
                yield "llm_serving_target_state", labels, int((state == "ready") == (number < ready))


def page() -> Iterator[tuple[str, dict[str, str], object]]:
    yield WRITTEN_LABELS.full_name, dict.fromkeys((*IDENTITY_LABELS, "team"), AS_WRITTEN), 1
    yield "llm_serving_exporter_build_info", {}, 1
    yield "llm_serving_installed_timestamp_seconds", {}, 0
    for model, wanted, found in (
        ("one-fleet", {"": 3}, {"search": (3, 3)}),
        ("one-is-lost", {"": 3}, {"search": (2, 3)}),
        ("two-fleets", {"": 5}, {"search": (3, 3), "chat": (2, 2)}),
        ("nobody", {"": 2}, {}),
        ("other-namespace", {"chat": 2}, {"search": (1, 1)}),
        ("bare-targets", {"prod": 2}, {"": (2, 2)}),
        ("bare-both", {"": 3}, {"": (2, 3)}),
        ("bare-among-others", {"prod": 2, "search": 1}, {"": (2, 2), "search": (1, 1)}),
        ("exact-and-all", {"": 4, "search": 3}, {"search": (3, 3)}),
        ("of-the-exporters", {"monitoring": 2}, {"monitoring": (1, 2), "chat": (1, 1)}),
    ):  # fmt: skip
        for namespace, number in wanted.items():
            yield exported(model, "expected_replicas", number, namespace=namespace)
        yield from fleets(model, found)
    for model, namespace, failed, found in (
        ("drilled", "", False, {"search": (1, 1)}),
        ("drilled-two", "", False, {"search": (1, 1), "chat": (1, 1)}),
        ("failed", "", True, {"search": (1, 1)}),
        ("failed-two", "", True, {"search": (1, 1), "chat": (1, 1)}),
        ("failed-other", "chat", True, {"search": (1, 1)}),
        ("drilled-other", "chat", False, {"search": (1, 1)}),
    ):  # fmt: skip
        yield from fleets(model, found)
        yield exported(model, "drill_last_run_timestamp_seconds", 60 * (MINUTES - 15), namespace=namespace)
        yield exported(model, "drill_last_verdict", int(failed), verdict="failed", namespace=namespace)
        if not failed:
            yield exported(model, "drill_last_success_timestamp_seconds", 60 * (MINUTES - 15), namespace=namespace)


# (alert, model, namespace, of)
FIRING = {
    ("ReplicaLost", "one-is-lost", "search", ""),
    ("LabelsRenamed", "two-fleets", "", "expected_replicas"),
    ("ReplicaLost", "nobody", "", ""),
    ("ReplicaLost", "other-namespace", "chat", ""),
    ("LabelsRenamed", "bare-targets", "prod", "expected_replicas"),
    ("ReplicaLost", "bare-both", "", ""),
    ("LabelsRenamed", "bare-among-others", "prod", "expected_replicas"),
    ("ReplicaLost", "of-the-exporters", "monitoring", ""),
    ("LabelsRenamed", "drilled-two", "", "drill"),
    ("DrillFailed", "failed", "search", ""),
    ("DrillOverdue", "failed", "search", ""),
    ("DrillFailed", "failed-two", "", ""),
    ("LabelsRenamed", "failed-two", "", "drill"),
    # neither passed one, whosever failed
    ("DrillOverdue", "failed-two", "search", ""),
    ("DrillOverdue", "failed-two", "chat", ""),
    ("DrillOverdue", "failed-other", "search", ""),
    ("DrillOverdue", "drilled-other", "search", ""),
}  # fmt: skip
DRILLED = {"drilled", "drilled-two", "failed", "failed-two", "failed-other", "drilled-other"}


def firing() -> dict[str, float]:
    """What fires by these labels."""
    found: dict[str, float] = {}
    for alert, model, namespace, of in FIRING:
        labels = {"alertname": f"LLMServing{alert}", "model_name": model, "namespace": namespace, "of": of}
        shown = ", ".join(f'{name}="{text}"' for name, text in labels.items() if text)
        found[f"{{{shown}}}"] = 1
    return found


# a scrape that keeps what the exporter says, and one that renames it
QUICK = ("plain", "kube-prometheus-stack, honor_labels off")


def _marks(one: Convention) -> tuple[pytest.MarkDecorator, ...]:
    """`make test` asks two, `make test-e2e` two more, `make test-soak` the others."""
    if one.name in QUICK:
        return ()
    return (pytest.mark.e2e if one in FEW else pytest.mark.soak,)


@pytest.mark.process
@pytest.mark.parametrize(
    ("one", "identity"),
    [
        *(pytest.param(one, "namespace", marks=_marks(one)) for one in CONVENTIONS),
        # what a second label adds does not hang on the scrape
        *(
            pytest.param(one, "namespace, team", marks=pytest.mark.e2e if one.name in QUICK else pytest.mark.soak)
            for one in CONVENTIONS
        ),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_nothing_false_is_said_where_a_label_is_not_stated(tmp_path: Path, one: Convention, identity: str) -> None:
    groups = groups_of(tmp_path, f"identity_labels: [{identity}]\n{SETTINGS}")
    files = {}
    for name, found in groups.items():
        kept = [group for group in found if group["name"] in [f"llm-serving.{wanted}" for wanted in GROUPS]]
        for group in kept:
            group["rules"] = [rule for rule in group["rules"] if "record" in rule or rule["alert"] in ALERTS]
        files[f"{name}.yml"] = kept
    stored = {}
    for name, labels, value in page():
        if "team" in identity and name != WRITTEN_LABELS.full_name:
            # the exporter knows the label, and nobody has it
            labels = {**labels, **({"team": ""} if "model_name" in labels else {})}
        shown = ",".join(f'{label}="{text}"' for label, text in one.store(labels, PLACE).items())
        stored[f"{name}{{{shown}}}"] = f"{value}+0x{MINUTES}"
    # what the scrape does to labels is asked in test_conventions
    every = 'ALERTS{alertstate="firing",how!~"renamed|overwritten|partly"}'
    # of models without a drill a reminder is due, and is not asked here
    others = f'ALERTS{{alertname="LLMServingDrillOverdue",model_name!~"{"|".join(sorted(DRILLED))}"}}'
    asked = f"count by (alertname, model_name, namespace, of) ({every} unless {others})"
    question = expect(asked, f"{MINUTES}m", firing())
    assert not ask(tmp_path, stored, [question], files, order=[f"llm-serving.{name}" for name in GROUPS])
