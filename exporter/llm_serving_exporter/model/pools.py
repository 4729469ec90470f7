"""What is committed at a cloud and floats over whatever runs there, and where nodes stand: as the price file states both."""

from __future__ import annotations

from enum import StrEnum

from llm_serving_exporter.model.record import Struct


class PoolKind(StrEnum):
    """How a commitment is counted. The order is that in which they apply to the same hour."""

    WINDOW = "window"
    QUANTITY = "quantity"
    SPEND = "spend"


class NodePlace(Struct, frozen=True):
    """Where a node stands and what it is. "" where that is not known."""

    region: str = ""  # of the cloud, as in us-east-1
    zone: str = ""  # of the region, as in us-east-1a
    instance_type: str = ""  # that the machine was ordered as
    provider_id: str = ""  # what the cloud calls the machine

    def fill_up(self, other: NodePlace) -> NodePlace:
        """The same, with what is not known here taken from another source."""
        return NodePlace(
            self.region or other.region,
            self.zone or other.zone,
            self.instance_type or other.instance_type,
            self.provider_id or other.provider_id,
        )


# nothing is known of where it stands
NOWHERE = NodePlace()


class PoolUse(Struct, frozen=True):
    """Which GPUs a commitment is for. "" for all; exactly one of the kind of GPU and the instance type is given."""

    gpu_name: str = ""  # a product's name as the metric target_gpus has it
    instance_type: str = ""  # as the cloud writes it
    region: str = ""  # GPUs elsewhere are not covered
    zone: str = ""  # GPUs elsewhere are not covered


class SpendRate(Struct, frozen=True):
    """What a GPU-hour takes from a spend commitment."""

    use: PoolUse
    usd_per_gpu_hour: float  # at the committed price


class Pool(Struct, frozen=True):
    """A commitment. A quantity or a window is of GPUs of one kind; a spend is of USD, with a price for each kind."""

    name: str  # unique in the price file
    kind: PoolKind  # says which of the fields below count
    use: PoolUse = PoolUse()  # of a quantity or window: what it is for; of a spend: where
    gpus: float = 0.0  # of a quantity or window: all that are committed
    usd_per_gpu_hour: float = 0.0  # of a quantity or window: of each, used or not
    usd_per_hour: float = 0.0  # of a spend: used or not
    rates: tuple[SpendRate, ...] = ()  # of a spend: never empty
    from_unix_seconds: float | None = None  # None: it always was
    until_unix_seconds: float | None = None  # None: it has no end
    size_flexible: bool = False  # whether other sizes of the instance type's family are covered too


class PoolBook(Struct, frozen=True):
    """Everything of price files that the review applies."""

    pools: tuple[Pool, ...] = ()  # in the order of the files
    nodes: tuple[tuple[str, NodePlace], ...] = ()  # by name; no name twice
