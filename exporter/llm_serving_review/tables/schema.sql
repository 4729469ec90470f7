-- Whose a row is. fleet: the values of the identity labels; who: target and where it is, whatever it serves; model: fleet and model.
create table owner (
    owner integer primary key, fleet text, target text, model_name text, role text, who text, model text
);
-- What owners are added up by: all of them (""), "model", "label ..." for each label that the bill is split by.
create table member (owner integer, section text, item text);

-- Growth of a quantity. hours: by hour of the week, as `pack` writes it; the labels are NULL for quantities that have none.
create table fact (
    fact integer primary key, week text, quantity text, owner integer, hours blob, total real,
    phase text, rate text, method text, state text, slo text, outcome text, tenant text, kind text
);
create view line as select * from fact join owner using (owner);
