"""Flags, environment and file -> one frozen Config, or every reason why not."""

from __future__ import annotations

import argparse
import os
import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

from llm_serving_exporter.engines.mapping import Runtime
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.errors import ConfigError, Problem
from llm_serving_exporter.files.watched import KeyFileError, read_key_file
from llm_serving_exporter.model.record import replace
from llm_serving_exporter.model.tenants import SHORTEST_KEY_BYTES, TenantKind
from llm_serving_exporter.settings import checks, endpoints, kinds, sources
from llm_serving_exporter.settings.config import FILE_SD, SECTIONS, TARGET, Config, ScrapeConfig, TenantsConfig, hash_of
from llm_serving_exporter.settings.discovery import DISCOVERY_KEYS, read_discovery
from llm_serving_exporter.settings.document import read_bounded, read_document
from llm_serving_exporter.settings.facts import GPU_MODELS, check_models, read_gpu_models
from llm_serving_exporter.settings.http import check_file
from llm_serving_exporter.settings.identity import read_host, refuse_target_labels, resolve_shard
from llm_serving_exporter.settings.keys import free_mapping, is_empty, mapping, value
from llm_serving_exporter.settings.options import ConfigFile, Context, Setting, Settings, build_section, read_section
from llm_serving_exporter.settings.prices import PriceReading, look_at_prices
from llm_serving_exporter.settings.problems import Place, Scalar, nearest
from llm_serving_exporter.settings.runtimes import read_runtimes
from llm_serving_exporter.settings.target_keys import TargetSettings
from llm_serving_exporter.settings.targets import (
    build_target,
    price_stated_gpus,
    read_configured_targets,
    read_defaults,
    read_expected_replicas,
    refuse_stated_gpus,
)

# --- the file ----------------------------------------------------------------------------------------------------------

# keys that no option takes
LIST_KEYS = frozenset({"targets", "target_defaults", *DISCOVERY_KEYS, "expected_replicas", "runtimes", "gpu_models"})
# what users of Prometheus, or of other exporters, would write
_HINTS = {
    "static_configs": "Write targets: with one element per server.",
    "scrape_configs": "Write targets: with one element per server.",
    "target": "Write targets: with one element per server.",
    "file_sd_configs": "Write file_sd:.",
    "kubernetes_sd_configs": "Write kubernetes:, with one element per set of namespaces.",
    "http_sd_configs": "Write http_sd:, with hosts: for the servers that it may name.",
    "runtime": "Write it in an element of targets: or in target_defaults:; a table of your own in runtimes:.",
    "gpus": "Write gpu_models: to describe GPUs; which of them a server has stands in its element of targets:.",
    "gpu_model": "Write it in an element of targets: or in target_defaults:; a description of your own in gpu_models:.",
    "mappings": "Write runtimes: with one element per runtime.",
    "global": "Write scrape: {interval: 5s}.",
    "listen_address": "Write it below web: web: {listen_address: …}.",
    "interval": "Write it below scrape: scrape: {interval: …}.",
    "timeout": "Write it below scrape: scrape: {timeout: …}.",
}


def read_config_file(path: str | None, problems: list[Problem], read: Callable[[Path], str]) -> ConfigFile:
    """The file at `path`, or an empty one for None. What is wrong with it is reported."""
    if path is None:
        return ConfigFile({}, Place("configuration", "", problems), None)
    place = Place(path, "", problems)
    node = read_document(path, place, read)
    if isinstance(node, dict):
        return ConfigFile(mapping(node, place, sources.file_keys() | LIST_KEYS, _HINTS), place, path)
    if isinstance(node, Scalar) and node.kind == "nothing":
        place.refuse("the file is empty", "Write settings into it, or leave out --config.file.")
    elif node is not None:
        place.refuse("the file must be a mapping (key: value) at its top level", "Start with a line such as targets:.")
    return ConfigFile({}, place, path)


# --- `slo.file`: thresholds from the settings file of the alert rules --------------------------------------------------

_SLO_NAMES = ("ttft", "itl", "e2e")  # errors have no threshold: an answer is one or it is not
_FOR_RULES = {"errors", "period"}
_SLO_EXAMPLE = "Write slo: {ttft: {threshold: 2.5s}} into it, or do not give slo.file."


def read_thresholds(path: Setting, read: Callable[[Path], str], warnings: list[str]) -> dict[str, Setting]:
    """The thresholds of the file that `slo.file` names, by option name ("slo.ttft"); those that are not in it are left out.

    A key that is like one of ours is named in `warnings`: whoever wrote it meant a threshold, and the rules may know it.
    A file that cannot be used, has no section `slo`, or a threshold that is none, is reported at its place.
    """
    place = Place(path.value, "", path.place.problems)
    document = read_document(path.value, place, read)
    if document is None:
        return {}
    section = document.get("slo") if isinstance(document, dict) else None
    if section is None or is_empty(section):
        place.refuse(f"there is no section slo in this file, which {path.place} names", _SLO_EXAMPLE)
        return {}
    at, thresholds = place.key("slo"), {}
    objectives = free_mapping(section, at, _SLO_EXAMPLE)
    warnings += _name_slips(objectives.keys() - _SLO_NAMES - _FOR_RULES, _SLO_NAMES, at)
    for name in _SLO_NAMES:
        where, node = at.key(name), objectives.get(name)
        if node is None or is_empty(node):
            continue
        objective = free_mapping(node, where, f"Write {name}: {{threshold: 2.5s}}, or off for 2.5s.")
        if "threshold" not in objective:
            warnings += _name_slips(objective.keys() - {"objective"}, ("threshold",), where)
        elif (seconds := value(objective["threshold"], where.key("threshold"), kinds.THRESHOLD)) is not None:
            thresholds[f"slo.{name}"] = Setting(seconds, where.key("threshold"), from_file=True)
    return thresholds


def _name_slips(keys: Collection[str], names: Collection[str], place: Place) -> list[str]:
    near = {key: nearest(key, names) for key in sorted(keys)}
    return [
        f"{place.key(key)}: not read, because this key is not known; did you mean {name}?"
        for key, name in near.items()
        if name is not None
    ]


# --- `tenants:` --------------------------------------------------------------------------------------------------------

# on LiteLLM's page: whoever knows the hash of a key can tell whose key he holds
_HASHES_OF_KEYS = frozenset({"hashed_api_key"})


def read_tenants(settings: Settings, file: ConfigFile, context: Context) -> TenantsConfig:
    """The section. What is wrong is reported at its place: an unreadable key before anything is published without it."""
    config, _ = read_section("tenants", TenantsConfig, settings, file, context)
    if config.by is TenantKind.HEADER and config.label is None:
        fix = "Write tenants.label: the label of the gateway's page that names the tenant."
        settings["tenants.by"].place.refuse("header needs to know which label", fix)
    if config.by is not TenantKind.HEADER and config.label is not None:
        fix = "Write by: header beside it, or remove it."
        settings["tenants.label"].place.refuse(f"a label is not used by tenants.by: {config.by.value}", fix)
    if config.label in _HASHES_OF_KEYS:
        fix = "Write by: key, which counts by the key's alias."
        settings["tenants.label"].place.refuse("this label is the hash of a key", fix)
    if config.hmac_key_file is not None:
        try:
            read_key_file(config.hmac_key_file, SHORTEST_KEY_BYTES)
        except KeyFileError as error:
            fix = "Make one by: openssl rand -hex 32. The exporter's user must be able to read it."
            settings["tenants.hmac-key-file"].place.refuse(f"the key {error}", fix)
    return config


# --- the whole ---------------------------------------------------------------------------------------------------------

STALE_INTERVALS = 3
MOST_WARNINGS = 50
MOST_COMMON_RUNTIME = "vllm"  # whose buckets thresholds are held against where no target says its runtime


def load(
    arguments: argparse.Namespace | None,
    environ: Mapping[str, str],
    *,
    read: Callable[[Path], str] = read_bounded,
    host_name: str | None = None,
    runtimes: Mapping[str, Runtime] = RUNTIMES,
) -> Config:
    """The effective configuration: a flag wins over its variable, that over the file, that over the default.

    `arguments` come from a parser with `sources.add_flags`, or None. `read` yields the text of the configuration file, of
    slo.file and of the price file.
    `host_name`: the exporter's own (default: the system's). `runtimes`: the built-in tables, by name.
    Raises `ConfigError` with every problem found, but for those of the price file: without prices everything but cost works.
    """
    problems: list[Problem] = []
    given = sources.from_environment(environ, problems) | sources.from_flags(arguments, problems)
    file = read_config_file(given["config.file"].value if "config.file" in given else None, problems, read)
    own_name = host_name or socket.gethostname()
    host = read_host(environ, problems, own_name)
    configured = read_runtimes(file, runtimes)
    described_gpus = read_gpu_models(*file.find_key(GPU_MODELS))
    names = [name for spec in described_gpus for name in (spec.name, *spec.names)]
    context = Context(host, environ, configured.names.union(runtimes), file.folder, names)
    settings = _settings(given, file, context, problems, read)
    shard = resolve_shard(settings["shard"], context) if "shard" in settings else None

    under = _target_defaults(settings, file, context)
    targets = read_configured_targets(settings, file, under, context)
    discovery, discovered = read_discovery(settings, file, under, context)
    expected = read_expected_replicas(file)
    dcgm = endpoints.read_dcgm(settings, file, context)
    device_exporter = endpoints.read_device_exporter(settings, file, context)
    otlp = endpoints.read_otlp(settings, file, context)
    refuse_stated_gpus(settings, context)
    prices = PriceReading(price_stated_gpus(settings, targets), (), ())
    if "cost.price-file" in settings:
        prices = look_at_prices(settings["cost.price-file"].value, read, described_gpus)
    tenants = read_tenants(settings, file, context)
    everywhere = [*targets, *discovered]
    stale_after = _stale_after(settings, everywhere)

    if not _timing_in_doubt(problems):
        node, place = file.find_key("target_defaults")
        # as a target, so that what is wrong with them is reported once, where it stands
        shared = [] if node is None else [checks.Placed(build_target(under, place, context.host), place)]
        checks.refuse_timeouts(settings, [*shared, *everywhere])
        checks.refuse_window(settings, everywhere, stale_after)
        endpoints.refuse_device_timeouts(settings)
    checks.refuse_duplicates(targets)
    checks.refuse_too_many(targets, shard)
    if "target-labels" in settings:
        refuse_target_labels(settings["target-labels"].value, settings["target-labels"].place)
    sources.refuse_unknown_variables(environ, context.secret_variables, problems)
    if not targets and not discovery and not _servers_in_doubt(problems, file):
        fix = "Give --target http://localhost:8000, or targets: in a file named by --config.file."
        file.place.refuse("there is no server to read", fix)
    if problems:
        raise ConfigError(*problems)

    config = build_section(
        Config,
        settings,
        targets=tuple(item.target for item in targets),
        discovery=discovery,
        **{name: build_section(section, settings) for name, section in SECTIONS.items()},
        expected_replicas=expected,
        runtimes=configured.tables,
        gpu_models=described_gpus,
        dcgm=dcgm,
        device_exporter=device_exporter,
        otlp=otlp,
        tenants=tenants,
        prices=prices.book,
        price_problems=prices.problems,
        price_warnings=prices.warnings,
        file=file.path,
        shard=shard,
        stale_after_seconds=stale_after,
    )
    warnings = [
        *context.warnings,
        *_warn_of_unused(settings, file),
        *configured.warnings,
        *checks.unused_runtimes(configured.tables, everywhere, file.place.key("runtimes"), discovery),
        *_slo_warnings(config, everywhere, runtimes),
        *checks.target_warnings(everywhere, own_name),
        *endpoints.endpoint_warnings(config, settings, file, own_name),
    ]
    return replace(config, warnings=_bound(warnings), config_hash=hash_of(config))


def _slo_warnings(config: Config, targets: Sequence[checks.Placed], builtin: Mapping[str, Runtime]) -> Iterator[str]:
    """Against the buckets of each runtime that a target is said to have."""
    tables = {**builtin, **{table.name: table for table in config.runtimes}}
    declared = dict.fromkeys(item.target.runtime for item in targets if item.target.runtime is not None)
    for name in declared or (MOST_COMMON_RUNTIME,):
        if (table := tables.get(name)) is not None:
            yield from checks.slo_warnings(config.slo, table.default_edges, table.title)


def _settings(
    given: dict[str, Setting], file: ConfigFile, context: Context, problems: list[Problem], read: Callable[[Path], str]
) -> dict[str, Setting]:
    """Every option's value; paths of the file are resolved."""
    of_file = {
        name: replace(setting, value=context.resolve(setting.value))
        if sources.BY_NAME[name].reads is kinds.PATH
        else setting
        for name, setting in sources.from_file(file.tree, file.place).items()
    }
    explicit = of_file | given
    thresholds = read_thresholds(explicit["slo.file"], read, context.warnings) if "slo.file" in explicit else {}
    context.warnings.extend(
        f"{unused.place}: not used, because {explicit[name].place} takes its place"
        for name, unused in thresholds.items()
        if name in explicit
    )
    settings = sources.defaults(problems) | thresholds | explicit
    if "model-catalogue" in settings:
        check_models(settings["model-catalogue"].value, settings["model-catalogue"].place)
    if "report.settings-file" not in settings and explicit.get("report.run") is not None:
        context.warnings.append(f"{explicit['report.run'].place}: has no effect without report.settings-file")
    if "hf-cache" in settings and not os.path.isdir(cache := settings["hf-cache"].value):
        # it may be mounted later
        odd = f"{settings['hf-cache'].place}: {cache} is not a folder, so that no model is found in it"
        context.warnings.append(odd)
    if "web.config.file" in settings:
        # before anything listens: a web server without the TLS that was meant would be worse than none
        check_file(settings["web.config.file"].value, settings["web.config.file"].place)
    return settings


def _target_defaults(settings: Settings, file: ConfigFile, context: Context) -> TargetSettings:
    scrape = build_section(ScrapeConfig, settings)
    process = TargetSettings(
        interval_seconds=settings["scrape.interval"].value,
        timeout_seconds=scrape.timeout_seconds,
        max_series=scrape.max_series,
        max_body_bytes=scrape.max_body_bytes,
    )
    return read_defaults(*file.find_key("target_defaults"), context).completed_by(process)


def _timing_in_doubt(problems: Sequence[Problem]) -> bool:
    """Whether a time could not be read, so that to compare it with others would only report it again."""
    words = ("interval", "timeout", "window", "stale")
    places = [problem.path or problem.file for problem in problems]
    return any(word in place.rpartition(".")[2].lower() for place in places for word in words)


def _servers_in_doubt(problems: Sequence[Problem], file: ConfigFile) -> bool:
    """Whether servers were named, but not so that they could be used; then that is what is reported."""
    given = {word for option in (TARGET, FILE_SD) for word in (option.flag, option.variable)}
    named = any(problem.file.split(" ")[-1] in given for problem in problems)
    unusable = file.path is not None and any(problem.file == file.path and not problem.path for problem in problems)
    sections = [file.tree.get(key) for key in ("targets", *DISCOVERY_KEYS)]
    return named or unusable or any(not is_empty(node) and node != [] for node in sections)


def _stale_after(settings: Settings, targets: Sequence[checks.Placed]) -> float:
    if "scrape.stale-after" in settings:
        return float(settings["scrape.stale-after"].value)
    longest = max([settings["scrape.interval"].value, *(item.target.interval_seconds for item in targets)])
    return STALE_INTERVALS * float(longest)


def _warn_of_unused(settings: Settings, file: ConfigFile) -> Iterator[str]:
    """What the file sets without effect."""
    for option, key in (("target", "targets"), ("file-sd", "file_sd")):
        if option in settings and file.tree.get(key):
            yield f"{file.place.key(key)}: not used, because {settings[option].place} takes its place"


def _bound(warnings: Sequence[str]) -> tuple[str, ...]:
    distinct = list(dict.fromkeys(warnings))
    if len(distinct) <= MOST_WARNINGS:
        return tuple(distinct)
    return (*distinct[:MOST_WARNINGS], f"and {len(distinct) - MOST_WARNINGS} more warnings")
