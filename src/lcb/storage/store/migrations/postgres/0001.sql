create table lcb_schema(version integer primary key);
create table head(one boolean primary key check (one), seq bigint not null) with (fillfactor = 10);
insert into head values(true, 0);
create table event(
    seq bigint primary key,
    id text collate "C" not null unique,
    kind text collate "C" not null,
    "user" text collate "C",
    model bigint,
    body bytea not null
);
create index event_of_user on event("user", seq) where "user" is not null;
create index event_of_service on event(kind, seq) where "user" is null;
create table snapshot(name text collate "C" primary key, seq bigint not null, body bytea not null);
create table key(
    name text collate "C" primary key,
    scope text not null,
    sha256 bytea not null,
    created double precision not null,
    revoked double precision
);
-- rows of the log die by erasure alone: whatever is left of them is swept up soon, however large the log
alter table event set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1);
alter table snapshot set (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
