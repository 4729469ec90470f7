"""Labels that Dynamo's pages have: classes of failures, and stages of a worker's engine."""

from __future__ import annotations

from llm_serving_exporter.engines.registry import RUNTIMES
from tests.support.builders.snapshots import engine_of
from tests.support.rows import check_rows

FRONTEND = RUNTIMES["dynamo-frontend"]
WORKER = RUNTIMES["dynamo-worker"]

# http_action_for_class in Dynamo's lib/llm/src/http/service/error.rs (PR 14396); None: no answer is sent
STATUSES = {
    "InvalidRequest": 400, "Unauthenticated": 401, "PermissionDenied": 403, "NotFound": 404, "Conflict": 409, "PayloadTooLarge": 413,
    "UnsupportedMedia": 415, "RateLimited": 429, "Internal": 500, "NotImplemented": 501, "BackendProtocol": 502, "Unavailable": 503,
    "DeadlineExceeded": 504, "CapacityExhausted": 529, "Cancelled": None,
}  # fmt: skip


@check_rows("succeeded", [10, 0])
@check_rows(("kind", "status"), STATUSES.items())
def test_a_failure_is_a_response_by_the_status_that_its_class_gets(
    kind: str, status: int | None, succeeded: int
) -> None:
    text = f'dynamo_frontend_output_tokens_total{{model="m"}} 0\ndynamo_frontend_failures_total{{class="{kind}",reason="r"}} 3\n'
    if succeeded:  # another row, with the requests that went well
        text += f'dynamo_frontend_requests_total{{model="m",status="success",error_type=""}} {succeeded}\n'
    responses = engine_of(text, None, runtime=FRONTEND).http_responses_total
    expected = {"2xx": succeeded} if succeeded else {}
    assert (responses or {}) == ({**expected, f"{status // 100}xx": 3} if status else expected)


def test_stages_of_a_pipeline_of_sglang_tell_the_same_on_a_worker_too() -> None:
    labels = 'engine_type="unified",model_name="m",moe_ep_rank="0",tp_rank="0"'
    text = "".join(f'sglang:num_running_reqs{{{labels},pp_rank="{stage}"}} 3\n' for stage in "01")
    assert engine_of(text, None, runtime=WORKER).requests_running == 3
