"""docs/runtimes.md: the support matrix and what each runtime's page feeds each series with, made from the tables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from llm_serving_exporter.catalogue.serving import SERVING
from llm_serving_exporter.derive.batch import DECODING_FROM, FEWEST_READINGS, KV_BELOW, SPAN_SECONDS
from llm_serving_exporter.derive.window import (
    LAGGING_SECONDS,
    LONGEST_SECONDS,
    REFRESHES_IN_A_WINDOW,
    REQUESTS_IN_A_WINDOW,
)
from llm_serving_exporter.engines.check import formula
from llm_serving_exporter.engines.mapping import (
    FirstToken,
    Flags,
    PageKind,
    Row,
    Runtime,
    Version,
    parse_version,
    satisfies,
)
from llm_serving_exporter.engines.plan import may_be_silent
from llm_serving_exporter.model.record import Struct
from llm_serving_exporter.model.snapshot import Quality
from llm_serving_exporter.model.target import Role

_INTRO = f"""# What each runtime says

The same series whatever serves: this page says for each runtime which of them its metrics page can feed, how well, and why not where
not. It is made from the tables in `exporter/llm_serving_exporter/engines/tables`. A running exporter says the same of its own targets:
`llm_serving_signal_available{{signal,reason}}`, `llm_serving_signal_quality{{signal,quality}}`, and in sentences on the landing page.

| in the matrix | means |
|---|---|
| exact | passed through as the engine counts it, true to the moment of the page |
| lagging | exact over whole requests, booked when a request ends: rates are taken over a longer window, [below](#the-window) |
| slow | exact, but brought up to date every few seconds, or only while requests end |
| approx. | worked out from something near it; the runtime's own chapter says how |
| * | at best: less, or not at all, in older versions, without some flag or where an endpoint does not say it: its chapter says which |
| (empty) | the runtime does not say it; its chapter says why |

A chapter has for each series the samples that feed it (the link leads to where the runtime makes them), and what to know: versions and
quality where they are not "all" and "live", and caveats; a letter leads below the table. *As* another runtime: the same samples, versions
and caveats, but for what stands beside it. Of the rows of a series the first that the page allows is used. Sample names are read with `:`
and with `_`.

Traps and settings in words: [vLLM, Ray, NIM 2](vllm.md), [SGLang](sglang.md), [TensorRT-LLM and Triton](tensorrt-llm.md),
[llama.cpp](llamacpp.md), [Dynamo](dynamo.md), [servers without metrics](without-metrics.md); how a page is recognised:
[detection.md](detection.md); prefill and decode on replicas of their own: [roles.md](roles.md);
routers and gateways: [front-doors.md](front-doors.md); a table of your own:
[mapping.md](mapping.md).

A runtime whose versions "the recordings show" was recorded. Of real servers (vLLM 0.32, llama.cpp, Infinity, Dynamo in front of a
mocked engine) the totals are tested against what the load client counted. Of the runtimes' own metric collectors driven by a simulation
("simulated") names, types, labels and bucket edges are real, and totals are tested against the simulation. All others were written from
their sources and documents; what they have is tested on pages made from those, which shows that the table reads what it says, not that
such a server writes it.

## The window

Rates, means and quantiles cover the configured window (`--window`), and longer ones where that would show lumps: where tokens are booked at
a request's end, {REQUESTS_IN_A_WINDOW} times the p99 of requests' durations ({LAGGING_SECONDS / 60:g} minutes where the engine does not say
how long its requests take); where a page is brought up to date every few seconds, {REFRESHES_IN_A_WINDOW} times that;
{LONGEST_SECONDS / 60:g} minutes at most. Each signal has the window that its own inputs need: one counter
that is booked late makes no other signal's window longer. `llm_serving_target_window_seconds` is the longest that a target has.

## The batch limit

How many requests an engine runs at once is known from the first of these that says it; the label `source` of
`llm_serving_batch_limit_requests` names it.

| source | where it is said |
|---|---|
| `config` | `batch_limit_requests` of the target |
| `page` | the metrics page |
| `server_info` | a side endpoint: `/server_info`, `/v1/loads`, `/props`, `/info` |
| `pod` | the arguments of the pod's container, as Kubernetes discovery sees them |
| `command_line` | the engine's own command line, [where its process is on this host](#on-a-command-line) |
| `observed` | a level of running requests at which others wait, [while nothing else binds](#observed) |

### On a command line

That of what listens at the target's address, else of the one program that the driver lists on its GPUs. To see who listens takes the right
to read other users' open files (`CAP_SYS_PTRACE`). Processes of another PID or network namespace are not looked for. Of a command line, and
of a pod's arguments, only the flags in the chapters below are read, and of those only numbers.

### Observed

Over {FEWEST_READINGS} readings and {SPAN_SECONDS:g} s of decode the same number runs (a reading between two steps may show fewer) and
others wait. In each step {DECODING_FROM * 100:g} % of them decode, less than {KV_BELOW * 100:g} % of the KV cache is in use, nothing is
preempted, and nobody is held back for KV or an adapter. Each data-parallel rank counts for itself. What is observed is a lower bound. A
higher level raises it; when more requests run, or the engine restarts, it is forgotten.
"""
# best first
_WORDS = {Quality.LIVE: "exact", Quality.SLOW: "slow", Quality.LAGGING: "lagging", Quality.APPROXIMATE: "approx."}
NOT_SAID = ""
COLUMNS = 7  # runtimes in one matrix: wider tables do not fit a page
_SENTENCE_ENDS = re.compile(r"(?<=\.) (?=[A-Z])")
# a caveat that so many rows of a chapter have is a note of it
_OFTEN, _LETTERS = 3, "abcdefghijklmnopqrstuvwxyz"


def runtimes_md(runtimes: Sequence[Runtime], header: str) -> str:
    """The whole document. What an earlier chapter says of the same samples is not said again."""
    lines = [header, "", _INTRO, "## Support matrix", ""]
    for start in range(0, len(runtimes), COLUMNS):
        lines += [*_matrix(runtimes[start : start + COLUMNS]), ""]
    for number, runtime in enumerate(runtimes):
        lines += _chapter(runtime, runtimes[:number])
    return "\n".join(lines).rstrip() + "\n"


def support(runtime: Runtime, field: str) -> str:
    """One cell of the matrix."""
    words = list(_WORDS.values())
    rows = [row for row in runtime.rows if row.field == field]
    found = sorted({_WORDS[row.quality] for row in rows}, key=words.index)
    asked = any(field in endpoint.says for endpoint in runtime.endpoints)
    if not found:
        return f"{_WORDS[Quality.LIVE]} *" if asked else NOT_SAID
    oldest = _oldest(runtime.versions)
    always = oldest is None or any(satisfies(oldest, row.versions) for row in rows)
    return found[0] if len(found) == 1 and always and not asked else f"{found[0]} *"


def _oldest(versions: str) -> Version | None:
    """The first version that a table is made for; None where it names none."""
    clauses = (clause.strip() for clause in versions.split(","))
    return next((parse_version(clause.removeprefix(">=")) for clause in clauses if clause.startswith(">=")), None)


def _matrix(runtimes: Sequence[Runtime]) -> Iterator[str]:
    yield f"| signal | {' | '.join(f'[{one.title}](#{_anchor(one)})' for one in runtimes)} |"
    yield f"|---|{'---|' * len(runtimes)}"
    shown = [runtime.covered or "–" for runtime in runtimes]
    yield f"| *versions the recordings show* | {' | '.join(shown)} |"
    yield f"| *table made for* | {' | '.join(runtime.versions or 'all' for runtime in runtimes)} |"
    for metric in SERVING:
        cells = [support(runtime, metric.name) for runtime in runtimes]
        if any(cells):
            yield f"| `{metric.name}` | {' | '.join(cells)} |"


def _anchor(runtime: Runtime) -> str:
    kept = "".join(letter for letter in runtime.title.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


def _chapter(runtime: Runtime, earlier: Sequence[Runtime]) -> Iterator[str]:
    yield f"## {runtime.title}"
    yield ""
    yield from _facts(runtime)
    yield ""
    names = {metric.name for metric in SERVING}
    told = [row for row in map(partial(_tell, earlier=earlier), runtime.rows) if row.field in names]
    counts = Counter(sentence for row in told for sentence in row.caveats)
    often = (sentence for sentence, count in counts.items() if count >= _OFTEN)
    notes = dict(zip(often, _LETTERS, strict=False))
    if told:
        yield "| series | from | what to know |"
        yield "|---|---|---|"
    alike: dict[tuple[str, str], list[str]] = {}
    for row in told:
        # "as" another one: all series of which the same is to be known in one row
        series = alike.setdefault((row.samples, row.say(notes)), [])
        if f"`{row.field}`" not in series:
            series.append(f"`{row.field}`")
    for (samples, say), series in alike.items():
        yield f"| {' | '.join(map(cell, (', '.join(series), samples, say)))} |"
    if told:
        yield ""
    for sentence, letter in notes.items():
        yield f"- ({letter}) {sentence}"
    for endpoint in runtime.endpoints:
        yield f"- `GET {endpoint.path}`, at start and when the server restarts: {endpoint.summary}"
    for poll in runtime.polls:
        yield f"- `GET {poll.path}`, at each tick: {poll.says}"
    if runtime.flags:
        flags = ", ".join(f"`{flag}`" for flag in runtime.flags.batch_limit)
        where = "of its pod's arguments or its command line"
        yield f"- `batch_limit_requests`, where nothing else says it: {flags} {where}{_but(runtime.flags)}"
    if notes or runtime.endpoints or runtime.polls or runtime.flags:
        yield ""
    absent = [metric.name for metric in SERVING if support(runtime, metric.name) == NOT_SAID]
    if absent:
        yield "Not said:"
        yield ""
        by_reason: dict[str, list[str]] = {}
        for name in absent:
            by_reason.setdefault(_why(runtime, name), []).append(f"`{name}`")
        for why, fields in by_reason.items():
            yield f"- {', '.join(fields)}: {why}"
        yield ""


def _but(flags: Flags) -> str:
    """What beside the flags keeps them from being one engine's limit, and where they are described."""
    but = f", without {', '.join(f'`{flag}`' for flag in flags.unless)}" if flags.unless else ""
    return f"{but} ([source]({flags.source}))" if flags.source else but


def _why(runtime: Runtime, field: str) -> str:
    if runtime.kind is PageKind.NONE:
        return "the runtime publishes nothing about its work"
    return runtime.missing.get(field, "not on its page")


def _facts(runtime: Runtime) -> Iterator[str]:
    yield f"`runtime: {runtime.name}`"
    if runtime.fingerprints:
        yield "- recognised by its page"
        if may_be_silent(runtime):
            shown = f" or `GET {runtime.shows[0][0]}` shows it" if runtime.shows else ""
            yield f"- before its first request: idle, with an empty page too, where `runtime` is set{shown}"
    elif runtime.shows:
        yield f"- recognised by `GET {runtime.shows[0][0]}`, its page having nothing of its own"
    else:
        yield "- read only where `runtime` is set for the target"
    yield f"- page: {', '.join(f'`{path}`' for path in runtime.paths)}{_KINDS[runtime.kind]}"
    if runtime.versions:
        yield f"- versions: {runtime.versions}"
    yield f"- recorded: {runtime.covered or 'no; written from its sources'}"
    if runtime.significant_digits is not None:
        digits = runtime.significant_digits
        yield f"- prints numbers with {digits} significant digits: `llm_serving_signal_resolution` says how coarse a counter has become"
    if runtime.role is not None:
        yield f"- role: {runtime.role.value}"
    if runtime.role is Role.FRONTEND:
        yield f"- its time to first token: {_CLOCKS[runtime.first_token]}"


_CLOCKS = {
    FirstToken.CLIENT: "the client's side, of every request",
    FirstToken.CLIENT_OF_STREAMS: "the client's side, of streams only",
    FirstToken.UPSTREAM_OF_STREAMS: "the engine's side as it sees it, of streams only: objectives are not counted by it",
    None: "none, or nobody knows whose: objectives are not counted by it",
}
_KINDS = {PageKind.METRICS: "", PageKind.JSON: ", which is JSON", PageKind.NONE: ", asked only for whether it answers"}


class _RowText(Struct, frozen=True):
    """A row of a chapter: its series, the samples as a link, versions and quality, caveats by sentences."""

    field: str
    samples: str
    how: str
    caveats: tuple[str, ...]

    def say(self, notes: Mapping[str, str]) -> str:
        """What to know of it; a caveat of the chapter's notes by its letter."""
        alone = (sentence for sentence in self.caveats if sentence not in notes)
        letters = ", ".join(notes[sentence] for sentence in self.caveats if sentence in notes)
        return " ".join(filter(None, (self.how and f"*{self.how}*", *alone, letters and f"({letters})")))


def _tell(row: Row, earlier: Sequence[Runtime]) -> _RowText:
    """What a chapter says of a row. Where an earlier runtime reads the same of its page, what it says of that is not said again."""
    samples, caveats = formula(row, _code), _sentences(row)
    for runtime in earlier:
        for other in runtime.rows:
            alike = (other.field, other.versions, formula(other, _code)) == (row.field, row.versions, samples)
            if alike and set(_sentences(other)) <= set(caveats):
                link = f"as [{runtime.title}](#{_anchor(runtime)})"
                how = "" if _say_quality(row) == _say_quality(other) else _say_quality(row)
                more = tuple(sentence for sentence in caveats if sentence not in _sentences(other))
                return _RowText(row.field, link, how, more)
    how = "; ".join(filter(None, (row.versions, _say_quality(row))))
    return _RowText(row.field, f"[{samples}]({row.source})" if row.source else samples, how, caveats)


def _sentences(row: Row) -> tuple[str, ...]:
    return tuple(_SENTENCE_ENDS.split(row.caveat)) if row.caveat else ()


def _say_quality(row: Row) -> str:
    """Nothing where it is live."""
    parts = [] if row.quality is Quality.LIVE else [row.quality.value]
    if row.refresh_seconds:
        parts.append(f"every {row.refresh_seconds:g} s")
    if row.freezes:
        parts.append("while requests end")
    if row.decode_only:
        parts.append("as it decodes")
    return ", ".join(parts)


def cell(text: str) -> str:
    """Text for one cell of a table."""
    return text.replace("|", "\\|").replace("\n", " ")


def _code(text: str) -> str:
    return f"`{text}`"
