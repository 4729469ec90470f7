"""Labels of series. Those that many series share are put in order and escaped once, which is most of what rendering a page costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from llm_serving_exporter.model.text import escape_label_value


class SharedLabels(Mapping[str, str]):
    """Labels that many series have in common; of a series that has no more, all of its labels."""

    __slots__ = ("_pairs", "_templates", "_text")

    def __init__(self, pairs: Mapping[str, str]) -> None:
        self._pairs = dict(pairs)
        self._text: str | None = None
        # by the names of a series' own labels: their values -> the text of all labels
        self._templates: dict[tuple[str, ...], Callable[..., str]] = {}

    def with_labels(self, **own: str) -> SharedLabels:
        """These and more, for series that share those too; one of the same name takes the place of the old one."""
        return SharedLabels({**self._pairs, **own})

    def as_text(self) -> str:
        """As they stand between braces in the exposition formats, in the order of their names."""
        if self._text is None:
            self._text = self.template(())()
        return self._text

    def template(self, own: tuple[str, ...]) -> Callable[..., str]:
        """What makes the text of these and of the labels that `own` names from the escaped values of those, in their order."""
        found = self._templates.get(own)
        if found is None:
            places = {name: f"{{{number}}}" for number, name in enumerate(own)}
            texts = {
                name: escape_label_value(text).replace("{", "{{").replace("}", "}}")
                for name, text in self._pairs.items()
            }
            pairs = sorted((texts | places).items())
            found = self._templates[own] = ",".join([f'{name}="{text}"' for name, text in pairs]).format
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


class SeriesLabels(Mapping[str, str]):
    """The labels of one series: shared ones and its own. An own label takes the place of a shared one of its name."""

    __slots__ = ("_names", "_shared", "_values")

    def __init__(self, shared: SharedLabels, names: tuple[str, ...], values: tuple[str, ...]) -> None:
        self._shared, self._names, self._values = shared, names, values

    def as_text(self) -> str:
        """As of `SharedLabels`."""
        return self._shared.template(self._names)(*map(escape_label_value, self._values))

    def __getitem__(self, name: str) -> str:
        return self._values[self._names.index(name)] if name in self._names else self._shared[name]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys((*self._shared, *self._names)))

    def __len__(self) -> int:
        return len({*self._shared, *self._names})

    def __repr__(self) -> str:
        return repr(dict(self))


Labels = SharedLabels | SeriesLabels
