-- erasures whose rows may still be in the data files: the seqs of their events
create table unscrubbed(seq bigint primary key);
