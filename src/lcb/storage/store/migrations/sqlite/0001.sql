create table event(
    seq integer primary key,
    id text not null unique,
    kind text not null,
    user text,
    model integer,
    body blob not null
) strict;
create index event_of_user on event(user, seq) where user is not null;
create index event_of_service on event(kind, seq) where user is null;
create table snapshot(name text primary key, seq integer not null, body blob not null) strict, without rowid;
create table key(
    name text primary key,
    scope text not null,
    sha256 blob not null,
    created real not null,
    revoked real
) strict, without rowid;
