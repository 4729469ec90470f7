-- A model's cost and tokens by hour, as its engines count them; only of models that engines serve.
create view engine as
    select
        fleet, model_name,
        sum_hours(hours) filter (where phase = 'prefill') as prefill_usd,
        sum_hours(hours) filter (where phase = 'decode') as decode_usd,
        sum_hours(hours) filter (where phase not in ('prefill', 'decode')) as rest_usd,
        sum_hours(hours) filter (where quantity = 'prompt_tokens') as prompt,
        sum_hours(hours) filter (where quantity = 'cached_tokens') as cached,
        sum_hours(hours) filter (where quantity = 'prefill_tokens') as computed,
        sum_hours(hours) filter (where quantity = 'decode_tokens') as generated
    from line
    where week = 'now'
    group by fleet, model_name
    having max(quantity in ('cost', 'gpu_seconds') and role <> 'frontend');

-- What gateways count by tenant. A gateway of another fleet than the engines stands for the only fleet that serves its model.
create view tenant_counts as
    with
    served as (
        select distinct fleet, model_name from line
        where week = 'now' and quantity in ('cost', 'gpu_seconds') and role <> 'frontend'
    ),
    only_fleet as (select model_name, max(fleet) as fleet from served group by model_name having count(*) = 1),
    here as (
        select
            coalesce(served.fleet, only_fleet.fleet, line.fleet) as at, line.model_name as of_model, line.*
        from line
        left join served on served.fleet = line.fleet and served.model_name = line.model_name
        left join only_fleet on only_fleet.model_name = line.model_name
        where tenant is not null
    )
    select
        at as fleet, of_model as model_name, tenant, kind,
        sum_hours(hours) filter (where quantity = 'tenant prompt') as prompt,
        sum_hours(hours) filter (where quantity = 'tenant decode') as generated,
        sum_hours(hours) filter (where quantity = 'tenant cached') as cached,
        fsum(total) filter (where quantity = 'tenant requests') as requests
    from here
    group by at, of_model, tenant, kind
    order by min(fact);
