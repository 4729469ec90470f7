"""Every option, and what sets it: flags, environment variables, the YAML file."""

from __future__ import annotations

import argparse
import re
from collections.abc import Collection, Iterable, Mapping
from functools import partial
from typing import Any

from llm_serving_exporter.errors import Problem
from llm_serving_exporter.settings import config, kinds
from llm_serving_exporter.settings.endpoints import DcgmSettings, DeviceExporterSettings, OtlpSettings
from llm_serving_exporter.settings.keys import mapping, names_of, one_or_several, value
from llm_serving_exporter.settings.kinds import Kind
from llm_serving_exporter.settings.options import ENVIRONMENT_PREFIX, Option, Setting, options_of, plain_keys
from llm_serving_exporter.settings.problems import Node, Place, did_you_mean

# Kubernetes gives every pod such variables for each Service of its namespace, so a Service called
# llm-serving-exporter makes variables with our prefix (kubernetes.io, "Accessing the Service", environment variables).
_SERVICE_LINK = re.compile(
    r"([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)"
)
# whose fields are options
_DECLARING = (
    config.WebConfig, config.LogConfig, config.Config, config.ScrapeConfig, config.GpuConfig, DcgmSettings, DeviceExporterSettings,
    OtlpSettings, config.SloConfig, config.LimiterConfig, config.CostConfig, config.TenantsConfig,
)  # fmt: skip


def _by_section(options: Iterable[Option]) -> tuple[Option, ...]:
    """As they come, options of one section side by side."""
    sections: dict[str, list[Option]] = {}
    for option in options:
        sections.setdefault(option.keys[0], []).append(option)
    return tuple(option for section in sections.values() for option in section)


OPTIONS = _by_section(
    [*config.FLAGS, *(option for declaring in _DECLARING for option in options_of(declaring)), config.SLO_FILE]
)
BY_NAME = {option.name: option for option in OPTIONS}
# by top-level key: what its section has beside the options
PLAIN_NAMES = {
    options_of(declaring)[0].keys[0]: names for declaring in _DECLARING if (names := names_of(plain_keys(declaring)))
}


def add_flags(parser: argparse._ActionsContainer) -> None:
    """Adds every option as a flag to a parser or a group of one. Values stay text: `load` checks them and reports all problems together.

    The parser should be made with `allow_abbrev=False`, so that a later flag never changes what a short form means.
    """
    for option in OPTIONS:
        stated = f" Default: {option.default}." if option.default else ""
        description = f"{option.help}{stated} [{option.variable}]".replace("%", "%%")
        add = partial(parser.add_argument, dest=option.attribute)
        if option.repeatable:
            add(option.flag, action="append", metavar="VALUE", help=f"{description} Repeatable.")
        elif option.reads is kinds.BOOLEAN:
            add(option.flag, nargs="?", const="true", metavar="true|false", help=description)
            add(f"--no-{option.name}", action="store_const", const="false", help=argparse.SUPPRESS)
        else:
            add(option.flag, metavar="VALUE", help=description)


def from_flags(arguments: argparse.Namespace | None, problems: list[Problem]) -> dict[str, Setting]:
    """What the flags set, by option name; a repeatable option's value is a tuple of texts."""
    settings = {}
    for option in OPTIONS:
        given = getattr(arguments, option.attribute, None)
        if given is not None:
            texts = given if option.repeatable else [given]
            settings.update(_parse_texts(option, texts, Place(f"flag {option.flag}", "", problems)))
    return settings


def from_environment(environ: Mapping[str, str], problems: list[Problem]) -> dict[str, Setting]:
    """What the environment sets, by option name. An empty variable sets nothing."""
    settings = {}
    for option in OPTIONS:
        given = environ.get(option.variable, "")
        if given:
            texts = [part.strip() for part in given.split(",") if part.strip()] if option.repeatable else [given]
            settings.update(_parse_texts(option, texts, Place(f"environment variable {option.variable}", "", problems)))
    return settings


def _parse_texts(option: Option, texts: Iterable[str], place: Place) -> dict[str, Setting]:
    values = [option.reads.read(text, place) for text in texts]
    good = tuple(item for item in values if item is not None)
    return {option.name: Setting(good if option.repeatable else good[0], place)} if good else {}


def refuse_unknown_variables(environ: Mapping[str, str], expected: Collection[str], problems: list[Problem]) -> None:
    """Reports variables with our prefix that nothing reads. `expected`: those that the configuration names."""
    variables = {option.variable for option in OPTIONS}
    for name in sorted(environ):
        if not name.startswith(ENVIRONMENT_PREFIX) or name in variables or name in expected:
            continue
        if _SERVICE_LINK.fullmatch(name.removeprefix(ENVIRONMENT_PREFIX)):
            continue
        near = did_you_mean(name, variables)
        fix = near if near.startswith("Did") else "Unset it, or see --help for the variables there are."
        Place(f"environment variable {name}", "", problems).refuse("no option has this name", fix)


def file_keys() -> frozenset[str]:
    """The top-level YAML keys that options take."""
    return frozenset(option.keys[0] for option in OPTIONS if option.in_file)


def from_file(tree: Mapping[str, Node], place: Place) -> dict[str, Setting]:
    """What the file sets, by option name. `tree`: its top-level keys."""
    settings: dict[str, Setting] = {}
    for key in [key for key in tree if key in file_keys()]:
        options = {option.keys[1:]: option for option in OPTIONS if option.in_file and option.keys[0] == key}
        _read_options(tree[key], place.key(key), options, settings, PLAIN_NAMES.get(key, ()))
    return settings


def _read_options(
    node: Node,
    place: Place,
    options: Mapping[tuple[str, ...], Option],
    settings: dict[str, Setting],
    elsewhere: Collection[str] = (),
) -> None:
    if () in options:
        option = options[()]
        item = _read_repeated(node, place, option.reads) if option.repeatable else value(node, place, option.reads)
        if item is not None:
            settings[option.name] = Setting(item, place, from_file=True)
        return
    # web: {config_file: …} is what the flag --web.config.file suggests
    nested = [keys for keys in options if len(keys) > 1]
    hints = {"_".join(keys): f"Write it nested: {': {'.join(keys)}: …{'}' * (len(keys) - 1)}." for keys in nested}
    section = mapping(node, place, {keys[0] for keys in options} | set(elsewhere), hints)
    for key, child in section.items():
        if key in elsewhere:
            continue
        below = {keys[1:]: option for keys, option in options.items() if keys[0] == key}
        _read_options(child, place.key(key), below, settings)


def _read_repeated(node: Node, place: Place, kind: Kind[Any]) -> tuple[Any, ...] | None:
    """The values of a list, or a single one; None where there is none to use, which is then reported."""
    if node == []:
        place.refuse("the list is empty", f"Write {kind.expects}, or remove the line.")
    values = (value(element, at, kind) for element, at in one_or_several(node, place, kind.expects))
    return tuple(content for content in values if content is not None) or None


def defaults(problems: list[Problem]) -> dict[str, Setting]:
    """The defaults of the options that have one."""
    return {
        option.name: Setting(option.parsed_default(), Place("default", option.name, problems))
        for option in OPTIONS
        if option.default
    }
