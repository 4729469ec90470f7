"""What a row reads, as one would say it: for `check-config` and for docs/runtimes.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from llm_serving_exporter.engines.mapping import Aggregate, Reads, Row

Quote = Callable[[str], str]
_SAID = {Aggregate.MAX: "largest", Aggregate.ONE: "only"}


def formula(row: Row, quote: Quote = str) -> str:
    """One line: how the value is worked out and from which samples. `quote` marks what stands on the page, as in Markdown."""
    match row.reads:
        case Reads.HISTOGRAM:
            text = f"histogram {_sum(row, quote)}"
        case Reads.MEAN:
            text = f"mean {quote(row.samples[0])} / {quote(row.samples[1])}"
        case Reads.LABELS | Reads.TEXT:
            text = f"label {' × '.join(map(quote, row.labels))} of {_sum(row, quote)}"
            text += " / engines on the page" if row.shared_by_engines else ""
            text += " × decode_context_parallel_size × prefill_context_parallel_size" if row.of_a_context_part else ""
        case Reads.PRESENCE:
            text = f"1 where there is {_sum(row, quote)}"
        case Reads.VALUE:
            text = _value(row, quote)
    if row.scale != 1.0:
        text += f" × {row.scale:g}"
    return ", ".join((text, *_narrowed(row, quote)))


def _value(row: Row, quote: Quote) -> str:
    text = _sum(row, quote)
    if row.aggregate in _SAID:
        text = f"{_SAID[row.aggregate]} {text}"
    if row.times_label is not None and not row.minus:
        text = f"{_factor(row.samples, quote)} × {_labelled(row.times_label, quote)}"
    if row.minus:
        factor = f" × {_labelled(row.times_label, quote)}" if row.times_label is not None else ""
        taken = _factor(row.minus, quote) + factor
        # brackets only where something is multiplied with the difference
        text = f"({text} - {taken})" if row.times or row.over or row.scale != 1.0 else f"{text} - {taken}"
    elif len(row.samples) > 1 and (row.times or row.over or row.scale != 1.0):
        text = f"({text})"
    text = " × ".join((text, *map(quote, row.times)))
    return f"{text} / {_factor(row.over, quote)}" if row.over else text


def _sum(row: Row, quote: Quote) -> str:
    named = {sample: f" as {key}" for sample, key in row.named.items()}
    return " + ".join(f"{quote(sample)}{named.get(sample, '')}" for sample in row.samples)


def _factor(samples: Sequence[str], quote: Quote) -> str:
    text = " + ".join(map(quote, samples))
    return f"({text})" if len(samples) > 1 else text


def _labelled(pair: tuple[str, str], quote: Quote) -> str:
    return quote(f"{pair[0]}{{{pair[1]}}}")


def _narrowed(row: Row, quote: Quote) -> Iterator[str]:
    """Which samples count, and when the row does."""
    for label, allowed in row.where.items():
        yield f"{quote(label)} {' or '.join(value or 'none' for value in sorted(allowed))}"
    if row.by is not None:
        yield f"by {quote(row.by)}"
    if row.agrees is not None:
        yield f"where {quote(row.agrees)} says the same"
    for name, condition in (("when", row.when), ("unless", row.unless)):
        if condition is not None:
            sample, label, value = condition
            text = f'{sample}{{{label}="{value}"}}'
            yield f"{name} {quote(text)}"
