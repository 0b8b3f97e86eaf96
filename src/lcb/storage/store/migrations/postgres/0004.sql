-- in SQLite, bytes that events have in common are stored once from here on; PostgreSQL compresses large bodies itself
select 1;
