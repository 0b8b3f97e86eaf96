"""Compaction of the log: old events are folded into a base and archived; erasure and learning reach the archive."""
