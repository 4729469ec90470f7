"""The configuration of an exporter beside a served fleet."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from llm_serving_exporter.settings.kinds import format_duration
from llm_serving_simulator.fleet.scenario import Scenario


def exporter_config(scenario: Scenario, urls: Mapping[str, str], *, interval_seconds: float | None = None) -> str:
    """YAML text: a target a replica with its nodes and GPUs, the scenario's SLO and expected replicas.

    `urls` by replica. `interval_seconds`: None leaves the default.
    """
    targets = []
    for replica in scenario.replicas:
        engine = replica.engine
        targets.append(
            {
                "name": replica.name,
                "url": urls[replica.name],
                "nodes": list(replica.nodes),
                "gpu_count": engine.gpus,
                "gpu_model": engine.gpu_spec.name,
            }
        )
    slo = {
        name: format_duration(seconds)
        for name, seconds in (("ttft", scenario.slo.ttft), ("itl", scenario.slo.itl), ("e2e", scenario.slo.e2e))
        if seconds is not None
    }
    document: dict[str, object] = {"targets": targets, "gpu": {"enabled": False}}
    if slo:
        document["slo"] = slo
    if interval_seconds is not None:
        document["scrape"] = {"interval": format_duration(interval_seconds)}
    if scenario.expected_replicas is not None:
        models = sorted({replica.engine.served_name for replica in scenario.replicas})
        document["expected_replicas"] = [
            {"model_name": model, "replicas": scenario.expected_replicas} for model in models
        ]
    head = f"# written by llm-serving-exporter simulate --scenario {scenario.name}\n"
    return head + yaml.safe_dump(document, sort_keys=False)
