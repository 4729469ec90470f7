"""The review of the last week, out of a real Prometheus."""

import time
from zoneinfo import ZoneInfo

from llm_serving_exporter.clients.json_api import Access, JsonApi, Prometheus
from llm_serving_review.command import make
from llm_serving_review.evidence.week import last_complete_week
from llm_serving_review.figures.review import Review
from llm_serving_review.settings.settings import Settings
from tests.support.servers.prometheus_server import PrometheusServer

# Unix seconds at which that week begins
MONDAY = last_complete_week(time.time(), ZoneInfo("UTC")).begin


def review_week(server: PrometheusServer, settings: Settings) -> Review:
    """Makes it."""
    asked = Prometheus(JsonApi(Access("Prometheus", server.url, "--prometheus.url"), 60.0))
    try:
        return make(asked, settings, None, lambda text: None)
    finally:
        asked.close()
