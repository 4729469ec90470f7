"""Targets out of files and URLs, in Prometheus' own form: file_sd and http_sd."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Collection, Iterable
from urllib.parse import urlsplit

from llm_serving_exporter.clock import LONGEST_WAIT_SECONDS, elapsed_seconds
from llm_serving_exporter.discovery.section import SectionReading, Source, read_list
from llm_serving_exporter.engines.registry import RUNTIMES
from llm_serving_exporter.errors import ConfigError, Problem
from llm_serving_exporter.fetch.http import HttpClient
from llm_serving_exporter.fetch.waits import drive
from llm_serving_exporter.files.watched import Watched
from llm_serving_exporter.model.record import Struct, replace
from llm_serving_exporter.model.sample import Refusal
from llm_serving_exporter.model.target import Target
from llm_serving_exporter.model.text import count_nouns
from llm_serving_exporter.settings.discovery import (
    MOST_FILES,
    AllowedHosts,
    FileDiscovery,
    HttpDiscovery,
    is_glob,
    list_files,
)
from llm_serving_exporter.settings.document import MOST_NODES, parse_json, read_document
from llm_serving_exporter.settings.http import sends_secret
from llm_serving_exporter.settings.options import Host
from llm_serving_exporter.settings.problems import Node, Place, listed, shown
from llm_serving_exporter.settings.target_keys import FoundBy

# --- Prometheus file_sd: files of target groups -> targets. The caller says when to read.
#
# A file that cannot be used keeps its last good targets.


class SectionFiles:
    """The files of one section of `file_sd` over time. Used by one thread at a time. `host`: the exporter's own."""

    def __init__(self, section: FileDiscovery, host: Host) -> None:
        self._section, self._host = section, host
        self._runtimes: Collection[str] = RUNTIMES
        # path -> the file; None before the first reading
        self._files: dict[str, Watched[Source | None]] | None = None

    def have_changed(self) -> bool:
        """Whether a file differs from when it was last read, or another set of files matches."""
        if self._files is None or _matching_paths(self._section)[:MOST_FILES] != list(self._files):
            return True
        return any(file.has_changed() for file in self._files.values())

    def read(self, runtimes: Collection[str] = RUNTIMES) -> SectionReading:
        """Reads every file. Never raises; what is wrong with a file stands in its result.

        A file that cannot be used keeps the targets that it had, as in Prometheus; the targets of a file that is gone are gone.
        `runtimes`: names of those that have a table.
        """
        self._runtimes = runtimes
        problems: list[Problem] = []
        for pattern in self._section.files:
            if not is_glob(pattern) and not os.path.exists(pattern):
                place = Place(pattern, "", problems)
                place.refuse("the file does not exist (yet)", "Check file_sd, or write the file.")
        paths = _matching_paths(self._section)
        if len(paths) > MOST_FILES:
            what = f"file_sd matches more than {MOST_FILES} files, the rest is not read"
            Place(paths[-1], "", problems).refuse(what, "Put more targets into one file.")
        watched = self._files or {}
        self._files = {path: watched.get(path) or self._watch(path) for path in paths[:MOST_FILES]}
        for file in self._files.values():
            file.reread()
        return SectionReading(tuple(_result(file) for file in self._files.values()), tuple(problems))

    def close(self) -> None:
        """Nothing runs in the background."""

    def _watch(self, path: str) -> Watched[Source | None]:
        def read() -> Source:
            return read_list(
                path,
                lambda place: read_document(path, place),
                self._section.defaults,
                self._host,
                self._runtimes,
                by=FoundBy.FILE_SD,
                what="the file",
            )

        return Watched(path, read, None)


def _matching_paths(section: FileDiscovery) -> list[str]:
    """At most `MOST_FILES` + 1."""
    distinct = dict.fromkeys(path for pattern in section.files for path in list_files(pattern))
    return list(distinct)[: MOST_FILES + 1]


def _result(file: Watched[Source | None]) -> Source:
    problems = file.problem.problems if isinstance(file.problem, ConfigError) else ()
    value = file.value or Source(file.path, None)
    return replace(value, problems=problems or value.problems)


# --- Prometheus http_sd: a server that lists target groups as JSON -> targets. It is asked in a thread of its own.
#
# Whatever the server does, the targets of its last good answer stay, and what is wrong is said.


log = logging.getLogger("llm_serving_exporter.discovery")

# after a failure the server is asked again sooner than after an answer, then more and more seldom
FIRST_RETRY_SECONDS = 5.0
_WHAT = "the answer"
# of the hosts that are not allowed
_MOST_NAMED = 5


def start_thread(name: str, job: Callable[[], None]) -> None:
    """Runs a job in a thread that does not keep the process alive."""
    threading.Thread(target=job, name=name, daemon=True).start()


class _State(Struct, frozen=True):
    """What is known of the server; replaced whole by the thread that asks it."""

    body: bytes = b""  # of the last good answer; b"": there has been none
    runtimes: Collection[str] = ()  # that `listed` was read with
    listed: Source | None = None  # what that answer says; None: it has not been good yet
    refused: tuple[Problem, ...] = ()  # why the last answer could not be used
    # why `body` cannot be read with `runtimes`, so that `listed` is from a reading before
    unread: tuple[Problem, ...] = ()


class SectionHttp:
    """One section of `http_sd` over time. Its thread starts with the first reading. `earlier`: sections whose place it takes, of which the
    first that asks for the same list has the answer that it begins with. `start` runs a job without an end beside everything else."""

    def __init__(
        self,
        section: HttpDiscovery,
        host: Host,
        *,
        earlier: Iterable[SectionHttp] = (),
        start: Callable[[str, Callable[[], None]], object] = start_thread,
        monotonic: Callable[[], float] = elapsed_seconds,
    ) -> None:
        self._section, self._host, self._start, self._monotonic = section, host, start, monotonic
        self._allowed = AllowedHosts(section.hosts)
        self._client: HttpClient | None = None
        self._started = False
        self._closing, self._wake = threading.Event(), threading.Event()
        self._runtimes: Collection[str] = ()
        # failed requests since the last good answer
        self._failed = 0
        same = (each for each in earlier if (each._section.url, each._section.path) == (section.url, section.path))
        self._state: _State = _State(next((each._state.body for each in same), b""))
        # the state that was read last; None before the first reading
        self._said: _State | None = None

    def have_changed(self) -> bool:
        """Whether the server has answered, or failed to, since the last reading."""
        return self._said is not self._state

    def read(self, runtimes: Collection[str]) -> SectionReading:
        """What the server said last. Never raises, never waits for it. `runtimes`: names of those that have a table."""
        if not self._started and not self._closing.is_set():
            self._started, self._runtimes = True, runtimes
            if self._state.body:
                self._read_again()
            self._start(f"http_sd {self._section.name}", self._run)
        elif runtimes != self._runtimes:
            self._runtimes = runtimes
            self._wake.set()
        state = self._said = self._state
        value = state.listed or Source(self._section.name, None)
        return SectionReading((replace(value, problems=state.refused or state.unread or value.problems),))

    def close(self) -> None:
        """Ends the thread, without waiting for an exchange under way, which ends at its deadline. May be called twice."""
        self._closing.set()
        self._wake.set()

    def ask(self) -> None:
        """One request; its outcome is the state from then on. Never raises. Used by one thread at a time."""
        try:
            if self._client is None:
                # as Prometheus tells servers how soon it will ask again
                headers = (("X-Prometheus-Refresh-Interval-Seconds", f"{self._section.refresh_seconds:g}"),)
                url, http = self._section.url, self._section.http
                self._client = HttpClient(url, http, monotonic=self._monotonic, own_headers=headers)
            answer = drive(self._client.get_json_text(self._section.path))
            self._client.close()  # servers close connections that are idle for seconds, and the next request is later
            if isinstance(answer, Refusal):
                self._refuse(Problem(self._section.name, "", answer.detail.rstrip("."), self._fix))
                return
            runtimes, state = self._runtimes, self._state
            if answer.body == state.body and runtimes == state.runtimes and not state.unread:
                self._failed = 0
                if state.refused:
                    self._state = replace(state, refused=())
                return
            self._state = _State(answer.body, runtimes, self._parse(answer.body, runtimes))
            self._failed = 0
        except ConfigError as error:
            self._refuse(*error.problems)
        except Exception as error:
            log.exception("asking %s failed; this is a bug, please report it", self._section.name)
            what = f"internal error ({type(error).__name__})"
            self._refuse(Problem(self._section.name, "", what, "The log has the traceback."))

    @property
    def _fix(self) -> str:
        consequence = "its last good targets stay" if self._state.listed is not None else "it has no targets so far"
        return f"Until it answers, {consequence}."

    def _refuse(self, *problems: Problem) -> None:
        self._failed += 1
        self._state = replace(self._state, refused=problems)

    def _run(self) -> None:
        due = self._monotonic()
        while not self._closing.is_set():
            if self._monotonic() >= due:
                self.ask()
                due = self._monotonic() + self.delay_seconds
            elif self._state.body and self._state.runtimes != self._runtimes:
                self._read_again()
            self._wake.wait(min(max(0.0, due - self._monotonic()), LONGEST_WAIT_SECONDS))
            self._wake.clear()

    @property
    def delay_seconds(self) -> float:
        """From the last request to the next."""
        if not self._failed:
            return self._section.refresh_seconds
        return min(self._section.refresh_seconds, FIRST_RETRY_SECONDS * 2.0 ** min(self._failed - 1, 20))

    def _read_again(self) -> None:
        """Reads the last good answer again: tables of runtimes were added or removed, or it was another section's."""
        body, runtimes = self._state.body, self._runtimes
        try:
            self._state = _State(body, runtimes, self._parse(body, runtimes), self._state.refused)
        except ConfigError as error:
            self._state = replace(self._state, runtimes=runtimes, unread=error.problems)

    def _parse(self, body: bytes, runtimes: Collection[str]) -> Source:
        name = self._section.name
        listing = read_list(
            name,
            lambda place: _read_tree(body, place),
            self._section.defaults,
            self._host,
            runtimes,
            by=FoundBy.HTTP_SD,
            what=_WHAT,
        )
        allowed: list[Target] = []
        refused: list[str] = []
        secret, in_clear = sends_secret(self._section.defaults.http), 0
        for target in listing.targets or ():
            parts = urlsplit(target.url)
            host = parts.hostname or ""
            if not self._allowed.allow(host):
                refused.append(host)
                continue
            allowed.append(target)
            in_clear += secret and parts.scheme == "http"
        problems = list(listing.problems)
        if refused:
            hosts = list(dict.fromkeys(refused))
            named = listed([shown(host) for host in hosts[:_MOST_NAMED]], "and")
            more = f" and {len(hosts) - _MOST_NAMED} more" if len(hosts) > _MOST_NAMED else ""
            out = count_nouns(len(refused), "target is", "targets are")
            what = f"{out} left out, because hosts of this section does not allow {named}{more}"
            problems.append(Problem(name, "", what, "Add the hosts or their networks to hosts, if they are meant."))
        warnings = list(listing.warnings)
        if in_clear:
            where = count_nouns(in_clear, "target")
            warnings.append(f"{name}: to {where} a secret is sent over http; let the list say https")
        return Source(name, tuple(allowed), tuple(problems), tuple(warnings))


def _read_tree(body: bytes, place: Place) -> Node | None:
    """The tree of an answer; None where it is not usable, which is then reported."""
    # an upper bound on its values, before any of them takes up memory
    if body.count(b",") + body.count(b"[") + body.count(b"{") > MOST_NODES:
        what = f"{_WHAT} has more than {MOST_NODES} values"
        place.refuse(what, "Let the server list fewer targets, or fewer labels.")
        return None
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place.refuse(f"byte {error.start} of {_WHAT} is not UTF-8", "Let the server answer in UTF-8.")
        return None
    return parse_json(text, place, _WHAT)
