"""Labels of series. What many series share is put in order and escaped once, which is most of what rendering a page costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from llm_serving_exporter.catalogue.spec import Metric
from llm_serving_exporter.model.text import escape_label_value

# derived labels that are kept for the next page: engines and models of one target, whose names may change without end
MOST_KEPT = 256
# stands between the lines of two metrics while they are put together, and so in no label's value
SEPARATOR = "\0"


def write_label_value(value: str) -> str:
    """A label's value as it stands in a line."""
    return escape_label_value(value).replace(SEPARATOR, "\N{REPLACEMENT CHARACTER}")


class SharedLabels(Mapping[str, str]):
    """Labels that many series have in common; of a series that has no more, all of its labels."""

    __slots__ = ("_more", "_pairs", "pieces", "unchanged")

    def __init__(self, pairs: Mapping[str, str]) -> None:
        self._pairs = dict(pairs)
        # what `cut` has found, by the names of a series' own labels
        self.pieces: dict[tuple[str, ...], tuple[str, ...]] = {}
        # by the labels that they have more
        self._more: dict[tuple[tuple[str, str], ...], SharedLabels] = {}
        # lines that were written for the last page, by metric, with what they were written from; None: there are none to be used again
        self.unchanged: tuple[object, tuple[tuple[Metric, str], ...]] | None = None

    def with_labels(self, **own: str) -> SharedLabels:
        """These and more, for series that share those too; one of the same name takes the place of the old one."""
        key = tuple(own.items())
        found = self._more.get(key)
        if found is None:
            if len(self._more) >= MOST_KEPT:
                self._more.clear()
            found = self._more[key] = SharedLabels({**self._pairs, **own})
        return found

    def cut(self, own: tuple[str, ...]) -> tuple[str, ...]:
        """The exposition formats' text of these labels, in the order of their names, cut where the values of the labels `own` stand.

        One more than there are own labels, in the order of their names: before the first value, between two, after the last; with the
        braces and the blank behind them. A label of `own` takes the place of a shared one of its name.
        """
        found = self.pieces.get(own)
        if found is None:
            shared = {name: text for name, text in self._pairs.items() if name not in own}
            texts = [""]
            for name in sorted((*shared, *own)):
                start = f'{texts[-1]},{name}="' if texts[-1] else f'{name}="'
                if name in shared:
                    texts[-1] = f'{start}{write_label_value(shared[name])}"'
                else:
                    texts[-1] = start
                    texts.append('"')
            if own or shared:
                texts[0], texts[-1] = f"{{{texts[0]}", f"{texts[-1]}}} " if own else f"{{{texts[0]}}} "
            else:
                texts = [" "]
            found = self.pieces[own] = tuple(texts)
        return found

    def __getitem__(self, name: str) -> str:
        return self._pairs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._pairs)

    def __len__(self) -> int:
        return len(self._pairs)

    def __repr__(self) -> str:
        return repr(self._pairs)


NO_LABELS = SharedLabels({})
