create table archived(id bigint primary key);
