"""Identity labels on the page: real where they are named, "" where they are not known, so that a scrape fills in nothing of its own."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from llm_serving_exporter.catalogue.derived import CONTEXT_TOKENS_MEAN
from llm_serving_exporter.catalogue.roofline import BANDWIDTH_RATIO
from llm_serving_exporter.catalogue.spec import IDENTITY_LABELS, NODE_LABELS, PLACE_LABELS
from llm_serving_exporter.daemon.store import Store
from llm_serving_exporter.derive.figures import given as given_figure
from llm_serving_exporter.derive.signals import Row, Series
from llm_serving_exporter.expose.collector import Setup, ViewCollector
from llm_serving_exporter.expose.encode import encode
from llm_serving_exporter.expose.families import MOST_KEPT, Families, LabelBook, SharedLabels
from llm_serving_exporter.expose.serving import add_figures
from llm_serving_exporter.model.cost import PriceBook
from llm_serving_exporter.model.derived import EngineDerived
from llm_serving_exporter.model.reading import DrillResult, DrillVerdict
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.target import ExpectedReplicas, Identity, NodePlace, Role, Target
from tests.support.builders.snapshots import snapshot_of
from tests.support.builders.target_readings import change_reading

PAGE = 'vllm:num_requests_running{engine="0",model_name="m"} 3\n'
IDENTITY = Identity(
    "prod", "chat-0", "uid-1", "vllm", "chat", "Deployment", "i-0", "eu", "p5", (("team", "search"), ("tier", "gold"))
)
KNOWN = Target("prod/chat-0:8000", "http://10.0.0.7:8000", identity=IDENTITY, nodes=("n1",), gpu_count=1)
UNKNOWN = Target("b", "http://10.0.0.8:8000")


def samples(
    *target_labels: str,
    targets: tuple[Target, ...] = (KNOWN, UNKNOWN),
    prices: PriceBook | None = None,
    expected: tuple[ExpectedReplicas, ...] = (),
    drills: tuple[DrillResult, ...] = (),
) -> list[Sample]:
    store, registry = Store(), CollectorRegistry()
    for target in targets:
        store.put_target(
            change_reading(
                store.add_target(target),
                snapshot=snapshot_of(PAGE, at=100.0),
                uuids=("GPU-1",),
                origin="configured",
            )
        )
    store.put_values(drills=drills)
    setup = Setup(15.0, 20.0, "exporters-node", expected, prices=prices, target_labels=target_labels)
    registry.register(ViewCollector(store.view, lambda: setup, lambda: 101.0))
    served = encode(registry, "")[0]
    assert served == generate_latest(registry)
    return [sample for family in text_string_to_metric_families(served.decode()) for sample in family.samples]


def of_target(found: list[Sample], target: Target) -> list[Sample]:
    return [sample for sample in found if sample.labels.get("target") == target.name]


def test_chosen_labels_stand_on_every_series_of_a_target() -> None:
    found = samples("namespace", "node", "team")
    known, unknown = of_target(found, KNOWN), of_target(found, UNKNOWN)
    assert len({sample.name for sample in known}) == 11
    chosen = {"namespace": "prod", "node": "n1", "team": "search"}
    assert all(chosen.items() <= sample.labels.items() for sample in known)
    assert all(dict.fromkeys(chosen, "").items() <= sample.labels.items() for sample in unknown)


def test_places_that_are_not_chosen_are_there_without_a_value() -> None:
    for sample in of_target(samples("team"), KNOWN):
        if sample.name not in ("llm_serving_target_info", "llm_serving_target_node_info"):
            assert {name: sample.labels[name] for name in PLACE_LABELS} == dict.fromkeys(PLACE_LABELS, "")


def test_the_info_series_shows_the_whole_identity_and_the_nodes() -> None:
    found = samples()
    (info,) = (sample for sample in of_target(found, KNOWN) if sample.name == "llm_serving_target_info")
    whole = {
        "namespace": "prod", "pod": "chat-0", "container": "vllm", "node": "n1", "workload": "chat", "workload_kind": "Deployment",
        "provider_id": "i-0", "region": "eu", "instance_type": "p5", "team": "search", "tier": "gold",
    }  # fmt: skip
    assert whole.items() <= info.labels.items()
    assert "uid-1" not in str(found)
    (node,) = (sample for sample in of_target(found, KNOWN) if sample.name == "llm_serving_target_node_info")
    assert node.labels["node"] == "n1"
    (bare,) = (sample for sample in of_target(found, UNKNOWN) if sample.name == "llm_serving_target_info")
    assert {name: bare.labels[name] for name in IDENTITY_LABELS} == dict.fromkeys(IDENTITY_LABELS, "")


def test_each_node_shows_where_it_stands_by_whoever_is_believed_first() -> None:
    spread = replace(
        KNOWN,
        nodes=("n1", "n2", "n3"),
        node_places=(("n1", NodePlace("", "eu-a", "p4", "")), ("n2", NodePlace("us", "us-b", "g6", "i-2"))),
    )
    # the price file knows better what n1 is, and is the only one that knows of n3
    prices = PriceBook((), (), nodes=(("n1", NodePlace(instance_type="p5e")), ("n3", NodePlace("ap", "ap-c"))))
    # a label that stands on every series of a target, too, gives way to that of the node
    for chosen in ((), ("region", "instance_type")):
        found = samples(*chosen, targets=(spread,), prices=prices)
        shown = {
            sample.labels["node"]: tuple(sample.labels[name] for name in NODE_LABELS)
            for sample in found
            if sample.name == "llm_serving_target_node_info"
        }
        assert shown == {
            # discovery before the target's own region and provider_id, which are those of its first node
            "n1": ("eu", "eu-a", "p5e", "i-0"),
            "n2": ("us", "us-b", "g6", "i-2"),
            "n3": ("ap", "ap-c", "", ""),
        }


def test_a_replica_of_several_nodes_is_on_none_of_them_alone() -> None:
    spread = replace(KNOWN, nodes=("n1", "n2"))
    assert Families(("node",)).of_target(spread)["node"] == ""
    assert Families().of_target_info(spread)["node"] == ""


def test_replicas_of_a_model_carry_the_identity_that_is_stated() -> None:
    identity = Identity("prod", workload="chat", labels=(("team", "a"),))
    drill = DrillResult("m", Role.UNIFIED, 1.0, 1.0, DrillVerdict.PASSED, identity)
    expected = (ExpectedReplicas("m", "unified", 2, identity), ExpectedReplicas("m", "unified", 3))
    found = samples("team", "tier", expected=expected, drills=(drill,))
    stated = {"namespace": "prod", "workload": "chat", "team": "a", "tier": "", "pod": "", "node": "", "container": ""}
    first, second = (sample for sample in found if sample.name == "llm_serving_expected_replicas")
    assert stated.items() <= first.labels.items()
    assert {"namespace": "", "team": "", "tier": ""}.items() <= second.labels.items()
    drills = [sample for sample in found if sample.name.startswith("llm_serving_drill_")]
    assert len(drills) == 5
    assert all(stated.items() <= sample.labels.items() for sample in drills)


def test_what_is_about_the_exporter_has_no_identity() -> None:
    """Its pod is what a scrape says of it."""
    for sample in samples("namespace", "team"):
        if sample.name.startswith("llm_serving_exporter_") or sample.name == "llm_serving_dcgm_up":
            assert not {*IDENTITY_LABELS, "team"} & set(sample.labels), sample


NAMES = st.sampled_from(["a", "le", "model_name", "namespace", "target", "z"])
TEXTS = st.text(st.sampled_from('ab"\\\n{}%é'), max_size=6)


@given(st.dictionaries(NAMES, TEXTS), st.dictionaries(NAMES, TEXTS))
def test_the_text_of_labels_is_that_of_the_mapping_that_they_are(shared: dict[str, str], own: dict[str, str]) -> None:
    def written(labels: dict[str, str]) -> str:
        escaped = {
            name: text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"") for name, text in labels.items()
        }
        return ",".join(f'{name}="{text}"' for name, text in sorted(escaped.items()))

    common, gauge = SharedLabels(shared), CONTEXT_TOKENS_MEAN
    families = Families()
    families.add_value(gauge, common, 0.5)
    families.add_values(gauge, common, tuple(own), [tuple(own.values())], [0.5])
    name = gauge.full_name
    (family,) = families
    start, line = family.read_text().splitlines(keepends=True)
    assert start == (f"{name}{{{written(shared)}}} 0.5\n" if shared else f"{name} 0.5\n")
    whole = {**shared, **own}
    assert line == (f"{name}{{{written(whole)}}} 0.5\n" if whole else f"{name} 0.5\n")
    assert common.with_labels(**own) == whole


def test_a_row_whose_values_do_not_fit_its_labels_is_refused() -> None:
    row: Row[float] = Row(given_figure("too much"), series=(Series(BANDWIDTH_RATIO, ("gpm", "extra")),))
    with pytest.raises(ValueError, match="bandwidth_ceiling_ratio has the labels"):
        add_figures(Families(), EngineDerived("m", "0", figures={row: 0.5}), SharedLabels({}))


def test_what_is_kept_of_labels_is_forgotten_with_its_target_and_bounded() -> None:
    book, target = LabelBook(), Target("a", "http://a:1", identity=Identity(namespace="one"))
    first = book.of_target(target, ("namespace",))
    assert book.of_target(target, ("namespace",)) is first
    assert book.of_target(target, ()) == {"target": "a", **dict.fromkeys(PLACE_LABELS, "")}
    relabelled = replace(target, identity=Identity(namespace="two"))
    assert book.of_target(relabelled, ("namespace",))["namespace"] == "two"
    kept = book.of_target_info(relabelled, ())
    book.forget_others({"b"})
    assert book.of_target_info(relabelled, ()) is not kept
    for number in range(3 * MOST_KEPT):  # a server with a new name for each request
        assert first.with_labels(model_name=f"m{number}")["model_name"] == f"m{number}"
    assert len(first._more) <= MOST_KEPT
