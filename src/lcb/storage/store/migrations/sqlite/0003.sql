create table archived(id integer primary key) strict;
