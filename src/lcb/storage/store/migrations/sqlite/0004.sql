create table common(seq integer primary key, last integer not null, body blob not null) strict;
alter table event add column common integer;
