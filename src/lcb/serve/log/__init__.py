"""Writes events to the store and applies them to the state: group commit, start-up, erasure."""
