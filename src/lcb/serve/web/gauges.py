"""The metrics that describe the state of the service (log, users, models, store), and those counted in it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from lcb.serve.observe.metrics import Counts, Gauge
from lcb.serve.service import Service
from lcb.serve.state.canary import PROMOTED, WITHDRAWN


def read_gauges(service: Service) -> Iterator[Gauge]:
    world, journal = service.world, service.journal
    yield "lcb_log_events", "Events in the log.", world.seq
    yield "lcb_log_archived_events", "Events that are archived: the log begins after them.", world.state.archived_upto
    compacted = world.state.compacted
    at = 0.0 if compacted is None else compacted.at
    yield "lcb_log_compacted_timestamp_seconds", "When the log was last compacted, since 1970; 0: never.", at
    yield "lcb_users", "Users who have received at least one decision.", world.n_users
    yield "lcb_cached_users", "Users held in memory.", len(world.cache)
    yield "lcb_cached_bytes", "Bytes of the users held in memory.", world.cache.n_bytes
    yield "lcb_model_version", "Model version that new users get; 0 before the first version.", world.state.active
    canary = world.state.canary
    yield "lcb_canary_version", "Model version that is a canary; 0: none.", canary.version if canary is not None else 0
    yield "lcb_canary_users", "Users of the canary with a reward.", world.canary.n_rewarded[1]
    yield "lcb_waiting", "Requests waiting for the store.", journal.n_waiting
    yield "lcb_last_commit_seconds", "Duration of the last commit.", journal.last_commit
    yield "lcb_store_trouble", "1 while the store does not accept writes, else 0.", journal.trouble is not None


def read_counts(service: Service) -> Iterator[Counts]:
    yield "lcb_rules", "Decisions under a rule; none: refused, no arm was left.", "rule", service.decisions.n_ruled
    words = "Elements of batches by outcome; the batch itself is one request."
    yield "lcb_batch_elements", words, "outcome", service.n_in_batches
    words = "Errors of parts that are told of events; the state and the answers are right."
    yield "lcb_watcher_errors", words, "watcher", service.watchers.n_failed
    ended = Counter({PROMOTED: 0, WITHDRAWN: 0})
    ended.update(one.outcome for one in service.world.state.canaries if one.outcome in (PROMOTED, WITHDRAWN))
    yield "lcb_canaries", "Canaries of the log by how they ended.", "outcome", ended
