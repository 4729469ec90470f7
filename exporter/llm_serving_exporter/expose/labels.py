"""Labels of series. What many series share is put in order and escaped once, which is most of what rendering a page costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from llm_serving_exporter.catalogue.spec import Metric
from llm_serving_exporter.model.text import escape_label_value

# derived labels that are kept for the next page: engines and models of one target, whose names may change without end
MOST_KEPT = 256


class Pieces(NamedTuple):
    """The text between a series' name and its number, around the values of its own labels."""

    # one more than there are own labels: before the first, between two, after the last; with the braces and the blank behind them; for a
    # template, in which "%" is doubled
    texts: tuple[str, ...]
    # places of the own labels' values, in the order in which they stand in the text
    order: tuple[int, ...]


class SharedLabels(Mapping[str, str]):
    """Labels that many series have in common; of a series that has no more, all of its labels."""

    __slots__ = ("_more", "_pairs", "pieces", "text", "unchanged")

    def __init__(self, pairs: Mapping[str, str]) -> None:
        self._pairs = dict(pairs)
        # what `cut` has found, by the names of a series' own labels
        self.pieces: dict[tuple[str, ...], Pieces] = {}
        # by the labels that they have more
        self._more: dict[tuple[tuple[str, str], ...], SharedLabels] = {}
        # lines that were written for the last page, by metric, with what they were written from; None: there are none to be used again
        self.unchanged: tuple[object, tuple[tuple[Metric, str], ...]] | None = None
        # between the name and the number of a series that has no more, for a template
        self.text = self.cut(()).texts[0]

    def with_labels(self, **own: str) -> SharedLabels:
        """These and more, for series that share those too; one of the same name takes the place of the old one."""
        key = tuple(own.items())
        found = self._more.get(key)
        if found is None:
            if len(self._more) >= MOST_KEPT:
                self._more.clear()
            found = self._more[key] = SharedLabels({**self._pairs, **own})
        return found

    def cut(self, own: tuple[str, ...]) -> Pieces:
        """The exposition formats' text of these labels, in the order of their names, cut where the values of the labels `own` stand.

        A label of `own` takes the place of a shared one of its name.
        """
        found = self.pieces.get(own)
        if found is None:
            shared = {name: text for name, text in self._pairs.items() if name not in own}
            texts, order = [""], []
            for name in sorted((*shared, *own)):
                start = f'{texts[-1]},{name}="' if texts[-1] else f'{name}="'
                if name in shared:
                    texts[-1] = f'{start}{escape_label_value(shared[name]).replace("%", "%%")}"'
                else:
                    texts[-1] = start
                    texts.append('"')
                    order.append(own.index(name))
            if own or shared:
                texts[0], texts[-1] = f"{{{texts[0]}", f"{texts[-1]}}} " if own else f"{{{texts[0]}}} "
            else:
                texts = [" "]
            found = self.pieces[own] = Pieces(tuple(texts), tuple(order))
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
