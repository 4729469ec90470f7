"""Text exposition as prometheus_client writes it for the engines: labels sorted, values as floats."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from prometheus_client.utils import floatToGoString

from llm_serving_exporter.model.text import escape_label_value
from llm_serving_simulator.fleet.tally import Tally

# as the engines' own pages; the library leaves it unannotated
_number: Callable[[float], str] = floatToGoString


def labels_text(labels: Mapping[str, str]) -> str:
    """`{a="1",b="2"}` in order of names, "" without labels."""
    return _text(tuple(labels.items()))


@lru_cache(maxsize=8192)
def _text(labels: tuple[tuple[str, str], ...]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{escape_label_value(value)}"' for name, value in sorted(labels)) + "}"


def leave_out(page: bytes, families: Iterable[str]) -> bytes:
    """A page without some families: their names as in `# TYPE`, whatever suffixes their samples have."""
    names = "|".join(re.escape(name) for name in families)
    line = rf"^(?:# (?:HELP|TYPE) )?(?:{names})(?:_bucket|_count|_sum|_created)?[ {{].*\n"
    return re.sub(line.encode(), b"", page, flags=re.MULTILINE)


class Writer:
    """A page under construction. `created`: the time that `_created` series say, None for pages without them."""

    def __init__(self, labels: dict[str, str], created_unix_seconds: float | None = None) -> None:
        self._labels = labels
        self._of = labels_text(labels)
        self._created = None if created_unix_seconds is None else _number(created_unix_seconds)
        self._lines: list[str] = []

    def head(self, name: str, kind: str, what: str) -> None:
        """HELP and TYPE of a family."""
        self._lines.append(f"# HELP {name} {what}\n# TYPE {name} {kind}\n")

    def raw(self, line: str) -> None:
        """A sample as it is, without the page's own labels."""
        self._lines.append(line + "\n")

    def gauge(self, name: str, what: str, value: float, **more: str) -> None:
        """A gauge of one series."""
        self.head(name, "gauge", what)
        self.sample(name, value, **more)

    def sample(self, name: str, value: float, **more: str) -> None:
        """One series of the family that was begun last."""
        of = labels_text({**self._labels, **more}) if more else self._of
        self._lines.append(f"{name}{of} {_number(value)}\n")

    def counter(self, name: str, what: str, value: float, **more: str) -> None:
        """A counter of one series; `name` with its `_total`."""
        self.counters(name, what, [(more, value)])

    def counters(self, name: str, what: str, series: Iterable[tuple[Mapping[str, str], float]]) -> None:
        """A counter of several series, each with labels of its own beside the page's; none at all where there are none."""
        found = list(series)
        if not found:
            return
        self.head(name, "counter", what)
        for more, value in found:
            self.sample(name, value, **more)
        if self._created is not None:
            created = f"{name.removesuffix('_total')}_created"
            self.head(created, "gauge", what)
            for more, _ in found:
                self._lines.append(f"{created}{labels_text({**self._labels, **more})} {self._created}\n")

    def histogram(self, name: str, what: str, tally: Tally, **more: str) -> None:
        """A histogram of one series."""
        labels = tuple({**self._labels, **more}.items())
        of = _text(labels)
        self.head(name, "histogram", what)
        total = 0
        for text, count in zip(_bucket_labels(labels, tally.edges), tally.counts, strict=True):
            total += count
            self._lines.append(f"{name}_bucket{text} {total}.0\n")
        self._lines.append(f"{name}_count{of} {total}.0\n{name}_sum{of} {_number(tally.total)}\n")
        if self._created is not None:
            self.head(f"{name}_created", "gauge", what)
            self._lines.append(f"{name}_created{of} {self._created}\n")

    def page(self) -> bytes:
        """All of it."""
        return "".join(self._lines).encode()


@lru_cache(maxsize=4096)
def _bucket_labels(labels: tuple[tuple[str, str], ...], edges: tuple[float, ...]) -> tuple[str, ...]:
    """The labels of each bucket, with `le` where the order of names puts it."""
    return tuple(labels_text({**dict(labels), "le": _number(edge)}) for edge in (*edges, float("inf")))
