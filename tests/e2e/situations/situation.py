"""A situation that people on call have lived through, and what they shall be told of it."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

from llm_serving_simulator.fleet.fleet import Fleet
from llm_serving_simulator.fleet.history import Sample
from llm_serving_simulator.fleet.scenario import Scenario

MINUTE, HOUR = 60.0, 3600.0


@dataclass(frozen=True)
class Outage:
    """An exporter's, in seconds of the situation. `scraped`: whether Prometheus goes on trying (`up` is 0), or has lost sight of it."""

    begin_seconds: float
    end_seconds: float = float("inf")
    scraped: bool = True


@dataclass(frozen=True)
class Exporter:
    """One that is scraped. `replicas`: whom it reads, None = all."""

    name: str = "exporter"
    replicas: tuple[str, ...] | None = None
    outages: tuple[Outage, ...] = ()


@dataclass(frozen=True)
class Notice:
    """A notification: any of these alerts, within so long of the cause, with these labels (beside those of every alert)."""

    names: tuple[str, ...]
    within_seconds: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Expected:
    """What has to be told, by names without their prefix. `page` or `ticket` None: none has to come (and none may, where `most_…` is 0).

    A ticket may be a page too. `silent`: must not fire, whatever is told of it. `ends_within_seconds`: after the repair, when the last page
    and ticket are over; None: nothing is said of it. `lasts`: what must fire still at the end.
    """

    page: Notice | None = None
    ticket: Notice | None = None
    silent: frozenset[str] = frozenset()
    most_pages: int = 1
    most_tickets: int = 3
    ends_within_seconds: float | None = HOUR
    lasts: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Situation:
    """`scenario`: replicas and what happens to them; its name is the situation's, its model's and its cluster's.

    `cause_seconds`, `repaired_seconds`: of the scenario; None where it never ends, or where nothing is wrong. `kube`: deployment or
    statefulset, of which kube-state-metrics tells; "": none is scraped. `discovers`: whether exporters find pods, or have a fixed list.
    `rollouts`: when one begins that is not an event. `removed_seconds`: when the workload is removed from Kubernetes. `acts`: what else is
    done to the fleet, by second. `more`: other samples of a moment (fleet, seconds of the scenario). `autoscaled`: least and most
    replicas. `retired_until`: RFC 3339, in the rules' settings. `slow`: only `make test-soak` plays it.
    """

    scenario: Scenario
    about: str
    expected: Expected
    cause_seconds: float | None
    repaired_seconds: float | None = None
    exporters: tuple[Exporter, ...] = (Exporter(),)
    kube: str = ""
    discovers: bool = True
    gpus: bool = False
    rollouts: tuple[float, ...] = ()
    removed_seconds: float = float("inf")
    acts: tuple[tuple[float, Callable[[Fleet], object]], ...] = ()
    more: Callable[[Fleet, float], Iterable[Sample]] | None = None
    autoscaled: tuple[int, int] | None = None
    retired_until: str = ""
    slow: bool = False

    def __post_init__(self) -> None:
        within = self.expected.ends_within_seconds
        if self.repaired_seconds is not None and within is not None and self.repaired_seconds + within >= self.seconds:
            raise ValueError(f"{self.name}: it is over before one can see whether what was told of it ends")

    @property
    def name(self) -> str:
        return self.scenario.name

    @property
    def seconds(self) -> float:
        return self.scenario.duration_seconds


def by_name(situations: Collection[Situation]) -> dict[str, Situation]:
    """Raises ValueError where two have one name."""
    found = {one.name: one for one in situations}
    if len(found) < len(situations):
        raise ValueError("two situations have one name")
    return found
