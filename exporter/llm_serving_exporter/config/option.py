"""An option: a key of the process as a whole, which a flag and an environment variable can set too."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llm_serving_exporter.schema.keys import Key, declare
from llm_serving_exporter.schema.kinds import Kind

ENVIRONMENT_PREFIX = "LLM_SERVING_EXPORTER_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Option(Key):
    """A key whose `name` is the flag without "--": "web.listen-address"."""

    reads: Kind[Any]  # how its text becomes a value, with bounds and messages
    # the flag may be given again, the variable holds a comma-separated list, the file a list
    repeatable: bool = False
    # False: a flag and a variable alone; the file has a richer form of its own, or none
    in_file: bool = True
    # what the configuration holds instead of the kind's value, such as None for a threshold of "off"
    becomes: Callable[[Any], Any] | None = None

    @property
    def flag(self) -> str:
        """`--web.listen-address`."""
        return f"--{self.name}"

    @property
    def variable(self) -> str:
        """`LLM_SERVING_EXPORTER_WEB_LISTEN_ADDRESS`."""
        return ENVIRONMENT_PREFIX + re.sub(r"[.-]", "_", self.name).upper()

    @property
    def keys(self) -> tuple[str, ...]:
        """The path of YAML keys: ("web", "listen_address")."""
        return tuple(part.replace("-", "_") for part in self.name.split("."))

    @property
    def attribute(self) -> str:
        """The attribute of the argparse namespace."""
        return re.sub(r"[.-]", "_", self.name)

    def parsed_default(self) -> Any:
        """The value of the default, as one that is set; None where the option has no default."""
        if not self.default:
            return None
        content = self.reads.parse(self.default)
        return (content,) if self.repeatable else content

    def default_value(self) -> Any:
        """What the configuration holds where nobody sets the option; None where it has no default."""
        return self.kept(self.parsed_default()) if self.default else None

    def kept(self, content: Any) -> Any:
        """What the configuration holds for a value that is set."""
        return content if self.becomes is None else self.becomes(content)


def option(
    name: str,
    kind: Kind[Any],
    help_text: str,
    *,
    default: str = "",
    repeatable: bool = False,
    unset: Any = None,
    becomes: Callable[[Any], Any] | None = None,
) -> Any:
    """A field of a dataclass that an option sets. Without a value the field has the default, else `unset`."""
    declared = Option(name=name, reads=kind, help=help_text, default=default, repeatable=repeatable, becomes=becomes)
    return declare(declared, unset)
