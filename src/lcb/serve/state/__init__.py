"""In-memory state of the service, rebuilt by replaying the event log."""
