"""Turns a request into an event to append, or returns the answer already logged for its id."""
