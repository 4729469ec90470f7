"""Loads configurations for tests as the command does: real flags, a real file, an environment of the test's own."""

import argparse
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from llm_serving_exporter.errors import ConfigError
from llm_serving_exporter.settings.config import Config
from llm_serving_exporter.settings.load import load
from llm_serving_exporter.settings.sources import add_flags

HOST_NAME = "pod-7"


def arguments(*flags: str) -> argparse.Namespace:
    return _make_parser().parse_args(flags)


@cache
def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_flags(parser)
    return parser


def load_flags(*flags: str, environ: Mapping[str, str] | None = None, **settings: Any) -> Config:
    return load(arguments(*flags), environ or {}, **{"host_name": HOST_NAME, **settings})


def load_text(
    folder: Path, text: str, *flags: str, environ: Mapping[str, str] | None = None, **settings: Any
) -> Config:
    path = folder / "config.yml"
    path.write_text(text)
    return load_flags("--config.file", str(path), *flags, environ=environ, **settings)


def problems_of(folder: Path, text: str, *flags: str, environ: Mapping[str, str] | None = None) -> list[str]:
    """The messages for a broken file, its path cut off."""
    with pytest.raises(ConfigError) as caught:
        load_text(folder, text, *flags, environ=environ)
    return [str(problem).removeprefix(f"{folder / 'config.yml'}: ") for problem in caught.value.problems]


def problems_of_flags(*flags: str, environ: Mapping[str, str] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_flags(*flags, environ=environ)
    return [str(problem) for problem in caught.value.problems]
