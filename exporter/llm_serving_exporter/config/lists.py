"""The lists of the configuration: targets, expected replicas."""

from __future__ import annotations

from llm_serving_exporter.config.build import build_target
from llm_serving_exporter.config.checks import Placed
from llm_serving_exporter.config.file import ConfigFile
from llm_serving_exporter.config.identity import FLEET_KEYS, build_identity, read_own_labels
from llm_serving_exporter.config.options import Settings
from llm_serving_exporter.config.stated_gpus import complete_stated_gpus
from llm_serving_exporter.config.target import read_target, read_target_url
from llm_serving_exporter.config.target_keys import TargetSettings
from llm_serving_exporter.config.target_kinds import MODEL_NAME, ROLE
from llm_serving_exporter.model.identity import Identity
from llm_serving_exporter.model.target import ExpectedReplicas, Role
from llm_serving_exporter.schema import kinds
from llm_serving_exporter.schema.context import Context
from llm_serving_exporter.schema.keys import Key, read_complete, table
from llm_serving_exporter.schema.problems import shown
from llm_serving_exporter.schema.reading import elements

_EXPECTED = table(
    model_name=Key(reads=MODEL_NAME, required=True),
    role=Key(reads=ROLE),
    replicas=Key(reads=kinds.integer(0, 1_000_000), required=True),
    labels=Key(reads=read_own_labels),
    **{name: Key(reads=kind) for name, kind in FLEET_KEYS.items()},
)
_OF_REPLICAS = dict.fromkeys(
    ("pod", "container", "node", "nodes", "target", "name"),
    "Replicas come and go: say which are meant by namespace, workload, workload_kind, region or labels.",
)


def read_configured_targets(
    settings: Settings, file: ConfigFile, defaults: TargetSettings, context: Context
) -> list[Placed]:
    """The targets that are configured one by one: those of --target where it is given, else those of the file."""
    found = [(read_target(node, at, context), at) for node, at in elements(*file.find_key("targets"), "targets")]
    if "target" in settings:
        place = settings["target"].place
        named = (read_target_url(url, place) for url in settings["target"].value)
        found = [(complete_stated_gpus(own, settings), place) for own in named if own is not None]
    return [
        Placed(build_target(own.completed_by(defaults), at, context.host), at) for own, at in found if own is not None
    ]


def read_expected_replicas(file: ConfigFile) -> tuple[ExpectedReplicas, ...]:
    """How many replicas of each model, role and identity are meant to run."""
    found: dict[tuple[str, str, Identity], ExpectedReplicas] = {}
    example = "Write {model_name: …, role: unified, replicas: 2}."
    for node, at in elements(*file.find_key("expected_replicas"), "mappings such as {model_name: …, replicas: 2}"):
        before = len(at.problems)
        read = read_complete(_EXPECTED, node, at, example, hints=_OF_REPLICAS)
        if read is None or len(at.problems) > before:
            continue
        model_name, role, identity = read["model_name"], read.get("role", Role.UNIFIED), build_identity(read)
        if (model_name, role, identity) in found:
            what = f"the model {shown(model_name)} with the role {role} is given twice"
            at.refuse(what, "Keep one of them, or say by namespace, workload or labels which replicas are meant.")
        else:
            found[model_name, role, identity] = ExpectedReplicas(model_name, str(role), read["replicas"], identity)
    return tuple(found.values())
