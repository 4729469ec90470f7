"""Scenario files: YAML -> Scenario, or every fault with its place and what to do."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

from llm_serving_exporter.errors import ConfigError, Problem
from llm_serving_exporter.settings.document import parse_yaml
from llm_serving_exporter.settings.keys import mapping
from llm_serving_exporter.settings.problems import Place, did_you_mean, shown
from llm_serving_simulator.fleet.scenario import Scenario
from llm_serving_simulator.fleet.scenario_reader import SECTIONS, ScenarioReader

_LARGEST_FILE_BYTES = 1 << 20
_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def names() -> list[str]:
    """The scenarios that are shipped."""
    folder = files("llm_serving_simulator.fleet").joinpath("scenarios")
    return sorted(entry.name.removesuffix(".yml") for entry in folder.iterdir() if entry.name.endswith(".yml"))


def load(name_or_path: str) -> Scenario:
    """A shipped scenario by its name, or a file by its path. Raises ConfigError with every fault."""
    if name_or_path in names():
        entry = files("llm_serving_simulator.fleet").joinpath("scenarios", f"{name_or_path}.yml")
        return parse(entry.read_text(encoding="utf-8"), f"{name_or_path}.yml", name_or_path)
    path = Path(name_or_path)
    if not path.suffix and _NAME.fullmatch(name_or_path):
        raise ConfigError(
            Problem(
                "--scenario", "", f"there is no scenario {shown(name_or_path)}", did_you_mean(name_or_path, names())
            )
        )
    try:
        with path.open("rb") as file:
            body = file.read(_LARGEST_FILE_BYTES + 1)
        if len(body) > _LARGEST_FILE_BYTES:
            raise ConfigError(Problem(name_or_path, "", "the file is larger than 1 MiB", "Is it a scenario?"))
        text = body.decode()
    except OSError as error:
        raise ConfigError(
            Problem(
                name_or_path,
                "",
                f"cannot be read: {error.strerror}",
                "Check the path; --list shows those that are shipped.",
            )
        ) from None
    except UnicodeDecodeError:
        raise ConfigError(Problem(name_or_path, "", "this is not UTF-8 text", "Save the file as UTF-8.")) from None
    return parse(text, name_or_path, path.stem)


def load_story(name: str) -> Scenario:
    """A scenario that is shipped to be looked at (`stories/`), not to be measured by its alerts."""
    entry = files("llm_serving_simulator.fleet").joinpath("stories", f"{name}.yml")
    return parse(entry.read_text(encoding="utf-8"), f"{name}.yml", name)


def parse(text: str, file: str, name: str) -> Scenario:
    """A scenario's text. `file` is for messages. Raises ConfigError with every fault."""
    problems: list[Problem] = []
    top = Place(file, "", problems)
    tree = parse_yaml(text, top)
    found = ScenarioReader(mapping(tree, top, SECTIONS), top).scenario(name) if not problems else None
    if problems or found is None:
        raise ConfigError(*problems)
    return found
