alter table event add column salt blob;
alter table event add column digest blob;
alter table event add column link blob;
drop table snapshot;
create table snapshot(
    name text primary key,
    seq integer not null,
    body blob not null,
    checksum blob not null
) strict, without rowid;
