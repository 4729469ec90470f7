-- Rows with what they are added up by, and whether what is summed is counted there: 0 where it is not.
create view summand as
    select
        section, item, line.*, coalesce(c.tokens, 0) as tokens, coalesce(c.prefill, 0) as prefill, coalesce(c.decode, 0) as decode,
        coalesce(c.requests, 0) as requests, coalesce(c.cached, 0) as cached
    from member join line using (owner) left join counting as c on c.owner = line.owner and c.week = line.week;

-- Cost by phase, with idle and down time borne by the tokens of the same owner; without owners that did neither phase, or count no tokens
-- of it.
create view borne as
    with
    by_phase as (
        select section, item, week, owner, phase, prefill as counts_prefill, decode as counts_decode, fsum(total) as usd
        from summand where quantity = 'cost' group by section, item, week, owner, phase
    ),
    by_owner as (
        select
            section, item, week, counts_prefill, counts_decode, fsum(usd) as usd,
            coalesce(max(usd) filter (where phase = 'prefill'), 0.0) as prefill,
            coalesce(max(usd) filter (where phase = 'decode'), 0.0) as decode
        from by_phase group by section, item, week, owner having prefill + decode > 0
    )
    select
        section, item, week,
        fsum(prefill * usd / (prefill + decode)) filter (where counts_prefill) as borne_prefill,
        fsum(decode * usd / (prefill + decode)) filter (where counts_decode) as borne_decode
    from by_owner group by section, item, week;

-- `Totals`; what is "all" is 1 where every engine's tokens are counted, or NULL without any.
create view totals as
    with
    sums as (
        select
            section, item, week,
            fsum(total) filter (where quantity = 'cost') as usd,
            fsum(total) filter (where quantity = 'cost' and phase = 'prefill') as "usd_by_phase.prefill",
            fsum(total) filter (where quantity = 'cost' and phase = 'decode') as "usd_by_phase.decode",
            fsum(total) filter (where quantity = 'cost' and phase = 'idle') as "usd_by_phase.idle",
            fsum(total) filter (where quantity = 'cost' and phase = 'down') as "usd_by_phase.down",
            fsum(total) filter (where quantity = 'cost' and phase = 'unattributed') as "usd_by_phase.unattributed",
            fsum(total) filter (where state = 'busy') / 3600 as "gpu_hours_by_state.busy",
            fsum(total) filter (where state = 'idle') / 3600 as "gpu_hours_by_state.idle",
            fsum(total) filter (where state = 'down') / 3600 as "gpu_hours_by_state.down",
            fsum(total) filter (where state = 'unknown') / 3600 as "gpu_hours_by_state.unknown",
            coalesce(fsum(total) filter (where quantity = 'gpu_seconds' and rate = ''), 0.0) / 3600 as unpriced_gpu_hours,
            fsum(total) filter (where quantity = 'prefill_tokens') as prefill_tokens,
            fsum(total) filter (where quantity = 'decode_tokens') as decode_tokens,
            fsum(total) filter (where quantity = 'prompt_tokens') as prompt_tokens,
            fsum(total) filter (where quantity = 'cached_tokens') as cached_tokens,
            fsum(total) filter (where quantity = 'requests') as requests,
            fsum(total) filter (where quantity = 'energy_joules') / 3.6e6 as energy_kwh,
            fsum(total) filter (where quantity = 'energy_cost') as energy_usd,
            fsum(total) filter (where quantity = 'carbon_grams') / 1000 as carbon_kg,
            fsum(total) filter (where quantity = 'savings') as savings_usd,
            min(tokens) filter (where quantity in ('cost', 'prompt_tokens', 'decode_tokens')) as "counted.all",
            fsum(total) filter (where quantity = 'cost' and tokens) as "counted.usd",
            fsum(total) filter (where quantity = 'prompt_tokens' and tokens) as "counted.prompt_tokens",
            fsum(total) filter (where quantity = 'cached_tokens' and tokens) as "counted.cached_tokens",
            fsum(total) filter (where quantity = 'decode_tokens' and tokens) as "counted.decode_tokens",
            min(prefill and decode) filter (where quantity = 'cost') as "counted_usd_by_phase.all",
            coalesce(fsum(total) filter (where phase = 'prefill' and prefill), 0.0) as "counted_usd_by_phase.prefill",
            coalesce(fsum(total) filter (where phase = 'decode' and decode), 0.0) as "counted_usd_by_phase.decode",
            fsum(iif(requests, total, 0.0)) filter (where quantity = 'cost') as requests_usd,
            fsum(iif(cached, total, 0.0)) filter (where quantity = 'prompt_tokens') as cacheable_tokens
        from summand group by section, item, week
    )
    select
        sums.*,
        add_up(
            "gpu_hours_by_state.busy", "gpu_hours_by_state.idle", "gpu_hours_by_state.down", "gpu_hours_by_state.unknown"
        ) as gpu_hours,
        coalesce(borne_prefill, 0.0) as "allocated_usd.prefill",
        coalesce(borne_decode, 0.0) as "allocated_usd.decode"
    from sums left join borne using (section, item, week);

-- `Attainment`, over all models.
create view attainments as
    select slo, coalesce(fsum(total) filter (where outcome = 'good'), 0.0) as good, fsum(total) as total
    from fact where week = 'now' and quantity = 'slo' group by slo order by slo;
