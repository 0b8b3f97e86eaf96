alter table event add column salt bytea, add column digest bytea, add column link bytea;
alter table head add column link bytea;
-- a replica of an earlier version cannot write events without a link
do $$
begin
    execute format(
        'alter table event add constraint event_has_link check (link is not null or seq <= %s) not valid',
        (select seq from head)
    );
end
$$;
truncate snapshot;
alter table snapshot add column checksum bytea not null;
