"""SGLang 0.5.23: families that are known and not read, endpoints that serve requests, default bucket edges."""

from __future__ import annotations

# answers on these are answers to requests; a scrape of /metrics and a health probe are counted by SGLang too
SERVING_ENDPOINTS = "|".join(
    (
        "/generate", "/encode", "/classify", "/generate_from_file",
        "/v1/completions", "/v1/chat/completions", "/v1/responses", "/v1/messages", "/v1/embeddings", "/v1/classify",
        "/v1/score", "/v1/rerank", "/rerank", "/v1/audio/transcriptions", "/v1/tokenize", "/v1/detokenize",
        "/api/generate", "/api/chat", "/invocations", "/vertex_generate",
    )
)  # fmt: skip

NOT_READ = (
    # of the last batch or log interval
    "sglang:gen_throughput", "sglang:cache_hit_rate", "sglang:num_retracted_reqs", "sglang:num_paused_reqs",
    "sglang:new_token_ratio", "sglang:is_cuda_graph", "sglang:spec_*",
    # dead, or only with a device timer
    "sglang:utilization", "sglang:fwd_occupancy", "sglang:max_running_requests_under_SLO",
    "sglang:gpu_overlap_wait_seconds*",
    # wrong: the weights are charged once a token instead of once a step (metrics_reporter.py:604-690)
    "sglang:estimated_flops_per_gpu*", "sglang:estimated_read_bytes_per_gpu*", "sglang:estimated_write_bytes_per_gpu*",
    # parts of what is read, or the same counted otherwise
    "sglang:full_token_usage", "sglang:num_used_tokens", "sglang:kv_available_tokens", "sglang:kv_evictable_tokens",
    "sglang:kv_used_tokens", "sglang:swa_*", "sglang:mamba_*", "sglang:max_total_num_tokens_swa", "sglang:num_pages",
    "sglang:num_retracted_input_tokens*", "sglang:num_retracted_output_tokens*", "sglang:num_so_requests*",
    "sglang:uncached_prompt_tokens_histogram", "sglang:per_stage_req_latency_seconds", "sglang:dp_cooperation_*",
    "sglang:num_running_reqs_offline_batch", "sglang:num_retractions", "sglang:time_to_first_token_seconds_offline_batch",
    "sglang:realtime_tokens*", "sglang:prefill_effective_tokens*", "sglang:prompt_tokens*", "sglang:generation_tokens*",
    "sglang:time_per_output_token_seconds", "sglang:queue_time_s", "sglang:avg_request_queue_latency",
    # memory of each rank, constants and start-up
    "sglang:weight_memory_usage_gb", "sglang:kv_cache_memory_usage_gb", "sglang:graph_memory_usage_gb",
    "sglang:startup_*", "sglang:engine_startup_time", "sglang:engine_load_weights_time", "sglang:cache_config_info",
    "sglang:weight_load_duration_seconds",
    # prefill/decode disaggregation: transfers, and what is a part of a queue that is read (those received in host memory)
    "sglang:num_prefill_retries*", "sglang:num_decode_host_receive_*", "sglang:num_decode_deferred_kv_release_reqs", "sglang:num_bootstrap_failed_reqs*", "sglang:num_transfer_failed_reqs*",
    "sglang:pending_prealloc_token_usage", "sglang:prealloc_*", "sglang:decode_deferred_kv_release*", "sglang:kv_transfer_*",
    # the scheduler's own time, data-parallel balance, grammars, experts, sessions, routing keys
    "sglang:scheduler_*", "sglang:process_cpu_seconds*", "sglang:func_latency_seconds", "sglang:get_loads_duration_seconds",
    "sglang:dp_attention_*", "sglang:prefill_delayer_*", "sglang:grammar_*", "sglang:num_grammar_*", "sglang:eplb_*",
    "sglang:num_streaming_sessions", "sglang:streaming_session_held_tokens", "sglang:failed_session_recoveries*",
    "sglang:num_unique_running_routing_keys", "sglang:routing_key_*", "sglang:routing_keys_active",
    "sglang:http_requests*", "sglang:lora_pool_*",
    # hierarchical cache and storage, radix cache, encoder
    "sglang:hicache_*", "sglang:prefetched_tokens*", "sglang:backuped_tokens*", "sglang:storage_prefetch_*",
    "sglang:prefetch_pgs", "sglang:backup_pgs", "sglang:prefetch_bandwidth", "sglang:backup_bandwidth",
    "sglang:evicted_tokens*", "sglang:eviction_duration_seconds", "sglang:load_back_*", "sglang:encoder_*",
)  # fmt: skip

# bucket edges of an unconfigured 0.5.23 (srt/observability/metrics_collector.py); only for warnings about thresholds
_TTFT = (0.1, 0.2, 0.4, 0.6, 0.8, 1, 2, 4, 6, 8, 10, 20, 40, 60, 80, 100, 200, 400)
DEFAULT_EDGES = {
    "ttft": _TTFT,
    "itl": (
        0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.025, 0.03, 0.035, 0.04, 0.06, 0.08, 0.1, 0.2, 0.4, 0.6, 0.8,
        1, 2, 4, 6, 8,
    ),
    "e2e": (*_TTFT, 600, 1200, 1800, 2400),
}  # fmt: skip
