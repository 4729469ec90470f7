-- Chooses which tokens, requests and objective events count, so that each counts once and only where its cost is known.
--
-- A front end counts again what its workers count, and with split pools both sides count the prompts. Tokens of a target without a price
-- would make those of the others look cheap, and GPU time of a target that counts none would make them look dear: a quotient has both
-- sides of the same engines.

-- Quantities that have to count once, and whose count is taken where a model has both pools.
create table once (quantity text primary key, side text);
insert into once values
    ('prefill_tokens', null), ('prompt_tokens', 'prefill'), ('cached_tokens', 'prefill'), ('decode_tokens', 'decode'), ('requests', 'decode');
-- Whose events say what users had, the first that has any.
create table observer (role text primary key, place integer);
insert into observer values ('frontend', 1), ('unified', 2), ('decode', 3), ('prefill', 4);

-- Only the hours in which a target has a cost, in proportion; for a front end that has none at all, in which its model has one.
create table priced as
    with payer as (
        select who as payer, * from line
        union all
        select model, * from line where model in (select model from owner where role = 'frontend')
    )
    select
        week,
        payer,
        priced_shares(
            sum_hours(hours) filter (where quantity = 'gpu_seconds' and rate <> ''),
            sum_hours(hours) filter (where quantity = 'gpu_seconds'),
            sum_hours(hours) filter (where quantity = 'cost')
        ) as shares
    from payer
    where quantity in ('cost', 'gpu_seconds')
    group by week, payer;
create index priced_payer on priced (payer, week);
update fact set hours = (
    select times(fact.hours, coalesce(target.shares, case role when 'frontend' then of_model.shares end))
    from owner
    left join priced as target on target.payer = who and target.week = fact.week
    left join priced as of_model on of_model.payer = model and of_model.week = fact.week
    where owner.owner = fact.owner
)
where quantity in (select quantity from once);
delete from fact where hours is null;
update fact set total = total_of(hours) where quantity in (select quantity from once);

-- Which roles of a model counted any of it.
create view some_counted as
    select distinct week, quantity, slo, model, role
    from line
    where total <> 0 and (quantity in (select quantity from once) or quantity = 'slo');
create table counted as select * from some_counted;
create index counted_model on counted (model, quantity, week);
-- Front ends whose workers count as well go, and of split pools the side that does not count as a user would.
delete from fact where fact in (
    select fact
    from line join once using (quantity)
    where case
        when role = 'frontend' then exists (
            select 1 from counted as c
            where c.model = line.model and c.quantity = line.quantity and c.week = line.week and c.role <> 'frontend'
        )
        when role in ('prefill', 'decode') and role <> side then 2 = (
            select count(*) from counted as c
            where c.model = line.model and c.quantity = line.quantity and c.week = line.week and c.role in ('prefill', 'decode')
        )
    end
);
-- Of each objective of a model the events count that were seen nearest to its users.
delete from fact where fact in (
    select fact
    from line
    where quantity = 'slo' and role <> (
        select role
        from counted as c join observer using (role)
        where c.model = line.model and c.quantity = 'slo' and c.week = line.week and c.slo = line.slo
        order by place limit 1
    )
);
delete from counted;
insert into counted select * from some_counted;

-- Owners whose GPU time stands over a sum, because what is summed is counted there: 1 for each sum. An engine counts by itself, or a front
-- end or the other pool of its model counts for it. One that served nothing bears its model's tokens with the others; one that worked and
-- counted nothing does not.
create table summed (sum text, quantity text);
insert into summed values
    ('tokens', 'prompt_tokens'), ('tokens', 'decode_tokens'), ('prefill', 'prefill_tokens'), ('decode', 'decode_tokens'),
    ('requests', 'requests'), ('cached', 'prompt_tokens'), ('cached', 'cached_tokens');
create table counting as
    with
    bill as (
        -- what of the cost of a target at rest may lie elsewhere, such as while it started, is little work
        select
            week, owner,
            coalesce(fsum(total) filter (where phase not in ('idle', 'down')), 0.0) <= 0.05 * fsum(total) as at_rest
        from fact where quantity = 'cost' group by week, owner
    ),
    own as (select week, owner, quantity, fsum(total) as total from fact group by week, owner, quantity),
    there as (select distinct week, model, quantity from line),
    each as (
        select
            w.week, o.owner, s.sum, own.total,
            exists (
                select 1 from counted as c
                where c.model = o.model and c.quantity = s.quantity and c.week = w.week and (
                    c.role = 'frontend'
                    or o.role in ('prefill', 'decode') and o.role is not side and c.role in ('prefill', 'decode')
                    and (side is null or c.role = side)
                )
            )
            -- without a name nobody knows whose replica it is
            or coalesce(at_rest and o.model_name <> '' and there.model is not null, 0) as by_others
        from (select distinct week from fact) as w cross join owner as o cross join summed as s
        left join once using (quantity)
        left join bill on bill.week = w.week and bill.owner = o.owner
        left join own on own.week = w.week and own.owner = o.owner and own.quantity = s.quantity
        left join there on there.week = w.week and there.model = o.model and there.quantity = s.quantity
    ),
    counts as (
        select week, owner, sum
        from each
        group by week, owner, sum
        having min(total is not null or by_others) and (max(coalesce(total, 0.0) <> 0.0) or min(by_others))
    )
    select
        week, owner, max(sum = 'tokens') as tokens, max(sum = 'prefill') as prefill, max(sum = 'decode') as decode,
        max(sum = 'requests') as requests, max(sum = 'cached') as cached
    from counts
    group by week, owner;
create index counting_owner on counting (owner, week);
