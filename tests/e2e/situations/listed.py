"""Every situation, and what shall be told of it."""

from tests.e2e.situations import losses, rollouts, sick
from tests.e2e.situations.situation import by_name

SITUATIONS = by_name((*rollouts.SITUATIONS, *losses.SITUATIONS, *sick.SITUATIONS))
