"""Targets out of an element of `targets:`, a flag, or a group of a list from elsewhere, each over the defaults that hold for it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from llm_serving_exporter.model.cost import PriceBook, PriceStatement, Rate, RateKind, Scope
from llm_serving_exporter.model.record import name_fields, replace
from llm_serving_exporter.model.target import ExpectedReplicas, HttpSettings, Identity, Role, Target
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.settings import keys, kinds
from llm_serving_exporter.settings.checks import Placed
from llm_serving_exporter.settings.config import TARGET, TARGET_GPU_COUNT, TARGET_GPU_MODEL, TARGET_GPU_PRICE
from llm_serving_exporter.settings.facts import MODEL_NAME, check_gpu_model
from llm_serving_exporter.settings.http import NO_SECRETS, PROMETHEUS_HINTS, Auth, Tls, plain_headers
from llm_serving_exporter.settings.identity import (
    FLEET_KEYS,
    build_identity,
    choose_name,
    keep_own_labels,
    place_locally,
    read_own_labels,
)
from llm_serving_exporter.settings.kinds import URL, Kind, ServerAddress
from llm_serving_exporter.settings.options import ConfigFile, Context, Host, Settings, TargetKey
from llm_serving_exporter.settings.problems import Node, Place, Scalar, shown
from llm_serving_exporter.settings.target_keys import AUTO, ROLE, TARGET_KEYS, TARGET_URL, TargetSettings

if TYPE_CHECKING:
    from llm_serving_exporter.settings.discovery import HttpSdSettings
    from llm_serving_exporter.settings.endpoints import DcgmSettings, DeviceExporterSettings, OtlpSettings

# the sections that say how a server is asked
Asked: TypeAlias = "DcgmSettings | DeviceExporterSettings | OtlpSettings | HttpSdSettings"
IN_DEFAULTS = {attribute: key for attribute, key in TARGET_KEYS.items() if key.in_defaults}
# what users of Prometheus, or of other exporters, would write
_HINTS = {
    **dict.fromkeys(
        ("bearer_token", "api_key"), f"{NO_SECRETS} auth: {{bearer_token_file: …}} or {{bearer_token_env: …}}."
    ),
    **PROMETHEUS_HINTS,
    "bearer_token_env": "Write it below auth: auth: {bearer_token_env: …}.",
    "password": f"{NO_SECRETS} auth: {{basic: {{username: …, password_file: …}}}}.",
    "scheme": "The scheme is part of the URL: url: https://….",
    "scrape_interval": "Write interval.",
    "scrape_timeout": "Write timeout.",
    "scrape": "Write interval, timeout, max_series or max_body_bytes directly.",
    "tp": "Write tensor_parallel_size.",
    "pp": "Write pipeline_parallel_size.",
    "gpu": "Write gpus: [0, 1] for which GPUs, gpu_model: for what they are where NVML does not show them.",
}


def read_target(node: Node, place: Place, context: Context) -> TargetSettings | None:
    """One element of `targets:`: a mapping, or just a URL. None where it has no usable URL, which is then reported."""
    if isinstance(node, Scalar) and node.kind == "text":
        return read_target_url(node.text, place)
    section = keys.mapping(node, place, keys.names_of(TARGET_KEYS), _HINTS)
    if "url" not in section:
        if isinstance(node, dict):
            place.refuse("url is missing", "Write one such as url: http://localhost:8000.")
        elif isinstance(node, Scalar) and node.kind == "nothing":
            place.refuse("the element is empty", "Write url: http://localhost:8000, or remove the dash.")
        return None
    settings = _read_settings(TARGET_KEYS, section, place, context)
    if settings.address is None:
        return None
    path = settings.address.path
    if path and settings.metrics_path and path != settings.metrics_path:
        place.refuse("the path of url and metrics_path differ", "Keep one of them.")
    return replace(settings, metrics_path=settings.metrics_path or path)


def read_target_url(url: str, place: Place) -> TargetSettings | None:
    """What a URL alone sets for a target; None where it is not usable, which is then reported."""
    address = TARGET_URL.read(url, place)
    return None if address is None else TargetSettings(address=address, metrics_path=address.path)


def read_defaults(node: Node | None, place: Place, context: Context) -> TargetSettings:
    """`target_defaults:` or `defaults:` of a section of discovery: every setting but name, url and GPUs by name."""
    hints = _HINTS | dict.fromkeys(("name", "url"), "Only a target itself can have it.")
    settings = _read_settings(IN_DEFAULTS, keys.mapping(node, place, keys.names_of(IN_DEFAULTS), hints), place, context)
    if settings.gpus:
        place.key("gpus").refuse("defaults cannot claim GPUs", "A GPU belongs to one target: write gpus there.")
    return settings


def _read_settings(
    declared: Mapping[str, TargetKey], section: Mapping[str, Node], place: Place, context: Context
) -> TargetSettings:
    settings = TargetSettings(**keys.read_keys(declared, section, place, context))
    if "node" in section and "nodes" in section:
        place.refuse("both node and nodes are given", "Keep one of them.")
    return settings if settings.node is None else replace(settings, node=None, nodes=(settings.node,))


def read_section_defaults(
    node: Node | None, place: Place, under: TargetSettings, context: Context
) -> tuple[Placed, list[str]]:
    """`defaults:` of a section whose targets somebody else names (http_sd, Kubernetes), and what is odd about them.

    Credentials of `target_defaults` (`under`) do not go to such targets: a section has to give them in `defaults` of its own.
    """
    inherited = replace(
        under,
        auth=None,
        headers=None if under.headers is None else plain_headers(under.headers),
        tls=None if under.tls is None else replace(under.tls, cert_file=None, key_file=None),
    )
    at = place.key("defaults")
    stated = read_defaults(node, at, context)
    warnings = [
        f"{place}: credentials in target_defaults.{name} do not go to the targets of this section; write them in its own defaults"
        for name in ("auth", "headers", "tls")
        if getattr(under, name) != getattr(inherited, name) and getattr(stated, name) is None
    ]
    return Placed(build_target(stated.completed_by(inherited), at, context.host), at), warnings


# --- settings of several places -> one target --------------------------------------------------------------------------

TIMEOUT_SHARE = 0.8  # of the interval, that one scrape may take by default
LONGEST_DEFAULT_TIMEOUT_SECONDS = 10.0
# a target takes these over as they are; its name and its nodes depend on its address too
CARRIED = {*name_fields(TargetSettings)} & {*name_fields(Target)} - {"name", "nodes"}


def build_target(settings: TargetSettings, place: Place, host: Host) -> Target:
    """The target of complete settings. Without an address (a block of defaults) its name and URL are ""."""
    interval = settings.interval_seconds
    # the process's own settings are the last in line and have both
    assert interval is not None
    assert settings.max_body_bytes is not None
    if settings.gpus is not None and settings.gpu_count is not None and len(settings.gpus) != settings.gpu_count:
        what = f"gpus names {count_nouns(len(settings.gpus), 'GPU')}, gpu_count says {settings.gpu_count}"
        place.refuse(what, "Remove gpu_count where gpus is given.")
    auth, headers = settings.auth or Auth(), settings.headers or ()
    if (auth.bearer_token or auth.basic_username) and any(name.lower() == "authorization" for name, _ in headers):
        place.refuse("both auth and a header Authorization are given", "Keep one of them.")
    address = settings.address
    stated = settings.stated
    identity = place_locally(build_identity(stated), address, host)
    return Target(
        name=settings.name or (choose_name(identity, address, host) if address else ""),
        url=address.url if address else "",
        identity=identity,
        nodes=choose_nodes(settings.nodes, address, host),
        http=HttpSettings(
            timeout_seconds=settings.timeout_seconds or min(TIMEOUT_SHARE * interval, LONGEST_DEFAULT_TIMEOUT_SECONDS),
            max_body_bytes=settings.max_body_bytes,
            headers=headers,
            **_by_name(auth),
            **_by_name(settings.tls or Tls()),
        ),
        **select_target_fields(stated),
    )


def build_server(
    section: Asked,
    address: ServerAddress | None,
    interval_seconds: float,
    place: Place,
    context: Context,
    *,
    max_body_bytes: int,
    max_series: int | None = None,
) -> Target:
    """A server that is no target and is asked as one is. The limits are those of its answers."""
    settings = TargetSettings(
        address=address,
        interval_seconds=interval_seconds,
        timeout_seconds=section.timeout_seconds,
        auth=section.auth,
        headers=section.headers,
        tls=section.tls,
        max_body_bytes=max_body_bytes,
        max_series=max_series,
    )
    return build_target(settings, place, context.host)


def _by_name(settings: Auth | Tls) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in name_fields(settings)}


def select_target_fields(stated: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a Target that settings set as they are. `stated`: what they set, by field."""
    fields = {name: content for name, content in stated.items() if name in CARRIED}
    if fields.get("runtime") == AUTO:
        fields["runtime"] = None
    return fields


def choose_nodes(configured: tuple[str, ...] | None, address: ServerAddress | None, host: Host) -> tuple[str, ...]:
    """The nodes of a target: as configured, else the exporter's node for a local server, else () = unknown."""
    if configured:
        return configured
    return (host.node,) if address is not None and address.is_local(host.name) else ()


# --- groups of a list, from a file or a server -------------------------------------------------------------------------

_ADDRESS = Kind("an address such as host:8000", str, is_text=True)
# the scheme is part of a target's URL, so that it is no key of a target
_SCHEME = keys.Key(name="__scheme__", field="scheme", reads=kinds.choice("scheme", ("http", "https")))
_LABEL_KEYS: keys.Keys = {
    "scheme": _SCHEME,
    **{
        attribute: keys.Key(name=key.label, field=attribute, reads=key.label_reads or key.reads)
        for attribute, key in TARGET_KEYS.items()
        if key.label
    },
}
GROUP_LABELS = frozenset(key.name for key in _LABEL_KEYS.values())


def read_group(
    node: Node, place: Place, defaults: Target, host: Host, runtimes: Collection[str], notes: dict[str, None]
) -> list[Target]:
    """The targets of one group {targets, labels}. Why a label of it has no effect is added to `notes`, each sentence once."""
    if not isinstance(node, dict):
        place.refuse("must be a mapping {targets: […], labels: {…}}", "Write targets: and labels:.")
        return []
    section = keys.mapping(node, place, ("targets", "labels"))
    if keys.is_empty(section.get("targets")):
        place.refuse("targets is missing", 'Write targets: ["host:8000"], or [] for none.')
    where = place.key("labels")
    labels = _read_labels(section.get("labels"), where, Context(host, {}, runtimes), notes)
    identity = build_identity(labels, defaults.identity)
    shared = replace(defaults, **select_target_fields(labels))
    nodes = (labels["node"],) if "node" in labels else defaults.nodes
    addresses = list(section.elements("targets", "addresses such as host:8000"))
    if "name" in labels and len(addresses) > 1:
        where.key("name").refuse("the group has several targets", "A name is for a group of one target.")
    targets = []
    for element, at in addresses:
        address = _read_address(keys.value(element, at, _ADDRESS), labels.get("scheme", "http"), at)
        if address is not None:
            local = place_locally(identity, address, host)
            name = labels.get("name") or choose_name(local, address, host)
            its_nodes = choose_nodes(nodes, address, host)
            targets.append(replace(shared, name=name, url=address.url, identity=local, nodes=its_nodes))
    return targets


def _read_labels(node: Node | None, place: Place, context: Context, notes: dict[str, None]) -> dict[str, Any]:
    """What the labels of a group set, by field of a target's settings; `labels` are those of the target's own."""
    if node is None or keys.is_empty(node):
        return {}
    labels = keys.free_mapping(node, place, "Known here: model_name.")
    texts: dict[str, Node] = {}
    added: list[tuple[str, str]] = []
    for name, content in labels.items():
        if name.startswith("__param_"):
            place.key(name).refuse(
                "query parameters are part of the path", "Write __metrics_path__: /metrics?NAME=VALUE."
            )
        elif not isinstance(content, Scalar):
            place.key(name).refuse("must be a text", "A label has a single value.")
        elif content.kind != "nothing" and content.text and not name.startswith("__meta_"):
            # as Prometheus, which takes `group: 7` as text too, and an empty label as unset
            if name in GROUP_LABELS:
                texts[name] = Scalar(content.text, "text")
            else:
                added.append((name, content.text))
    values = keys.read_keys(_LABEL_KEYS, texts, place, context)
    values["labels"] = keep_own_labels(added, notes.setdefault)
    return values


def _read_address(text: str | None, scheme: str, place: Place) -> ServerAddress | None:
    if text is None:
        return None
    if "/" in text:
        place.refuse(
            f"{shown(text)} is not host:port" if "@" not in text else "this is not host:port",
            "Set the scheme and the path by the labels __scheme__ and __metrics_path__.",
        )
        return None
    return URL.read(f"{scheme}://{text}", place)


# --- what flags say of the GPUs of the servers that --target names -----------------------------------------------------

# of a price that a flag states: that of a price file which names none
_STATED_RATE = Rate(RateKind.ON_DEMAND.value, RateKind.ON_DEMAND)


def price_stated_gpus(settings: Settings, targets: Sequence[Placed]) -> PriceBook | None:
    """The prices that --gpu-price states, a server each; None where it is not given."""
    if TARGET_GPU_PRICE.name not in settings:
        return None
    usd = settings[TARGET_GPU_PRICE.name].value
    statements = (PriceStatement(Scope.TARGET, item.target.name, usd, _STATED_RATE.name) for item in targets)
    return PriceBook(tuple(statements), (_STATED_RATE,))


def refuse_stated_gpus(settings: Settings, context: Context) -> None:
    """Refuses a GPU that nobody knows, what says something of no server, and beside a price file what only one of them can say."""
    if TARGET_GPU_MODEL.name in settings:
        model = settings[TARGET_GPU_MODEL.name]
        check_gpu_model(model.value, model.place, context)
    for option in (TARGET_GPU_MODEL, TARGET_GPU_COUNT, TARGET_GPU_PRICE):
        if option.name in settings and TARGET.name not in settings:
            fix = f"Give {TARGET.flag} too, or set targets[] and cost.price_file in the configuration file."
            settings[option.name].place.refuse(f"it is about the servers of {TARGET.flag}, and there are none", fix)
    if TARGET_GPU_PRICE.name in settings and "cost.price-file" in settings:
        fix = "Leave one of them out; the price file can state what the GPUs of a target cost."
        settings[TARGET_GPU_PRICE.name].place.refuse("there is a price file as well", fix)


# --- the lists of the file ---------------------------------------------------------------------------------------------

_EXPECTED = keys.table(
    model_name=keys.Key(MODEL_NAME, required=True),
    role=ROLE,
    replicas=keys.Key(kinds.integer(0, 1_000_000), required=True),
    labels=read_own_labels,
    **FLEET_KEYS,
)
_OF_REPLICAS = dict.fromkeys(
    ("pod", "container", "node", "nodes", "target", "name"),
    "Replicas come and go: say which are meant by namespace, workload, workload_kind, region or labels.",
)


def read_configured_targets(
    settings: Settings, file: ConfigFile, defaults: TargetSettings, context: Context
) -> list[Placed]:
    """The targets that are configured one by one: those of --target where it is given, else those of the file."""
    entries = [(read_target(node, at, context), at) for node, at in keys.elements(*file.find_key("targets"), "targets")]
    if "target" in settings:
        place = settings["target"].place
        flags = {"gpu_model": TARGET_GPU_MODEL, "gpu_count": TARGET_GPU_COUNT}
        stated = {field: settings[flag.name].value for field, flag in flags.items() if flag.name in settings}
        servers = (read_target_url(url, place) for url in settings["target"].value)
        entries = [(replace(entry, **stated), place) for entry in servers if entry is not None]
    return [
        Placed(build_target(entry.completed_by(defaults), at, context.host), at)
        for entry, at in entries
        if entry is not None
    ]


def read_expected_replicas(file: ConfigFile) -> tuple[ExpectedReplicas, ...]:
    """How many replicas of each model, role and identity are meant to run."""
    expected: dict[tuple[str, str, Identity], ExpectedReplicas] = {}
    example = "Write {model_name: …, role: unified, replicas: 2}."
    for node, at in keys.elements(*file.find_key("expected_replicas"), "mappings such as {model_name: …, replicas: 2}"):
        is_sound = at.watch()
        read = keys.read_complete(_EXPECTED, node, at, example, hints=_OF_REPLICAS)
        if read is None or not is_sound():
            continue
        model_name, role, identity = read["model_name"], read.get("role", Role.UNIFIED), build_identity(read)
        if (model_name, role, identity) in expected:
            what = f"the model {shown(model_name)} with the role {role} is given twice"
            at.refuse(what, "Keep one of them, or say by namespace, workload or labels which replicas are meant.")
        else:
            expected[model_name, role, identity] = ExpectedReplicas(model_name, str(role), read["replicas"], identity)
    return tuple(expected.values())
