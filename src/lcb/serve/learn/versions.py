"""The model versions of a service as GET /v1/models shows them."""

from __future__ import annotations

from math import fsum
from typing import Any

import msgspec

from lcb import messages
from lcb.serve.learn.supervisor import Retraining, format_time
from lcb.serve.state.canary import WITHDRAWN, Canary
from lcb.serve.state.model_version import Version
from lcb.serve.state.world import World


def list_versions(world: World, retraining: Retraining) -> messages.ModelsAnswer:
    """Return all versions, the newest first, and the progress of learning."""
    active = world.state.active
    canaries = {one.version: one for one in world.state.canaries}
    listed = sorted(world.state.versions.items(), reverse=True)
    versions = tuple(_describe(version, active, canaries.get(number), world) for number, version in listed)
    return messages.ModelsAnswer(active, versions, retraining.answer())


def _describe(version: Version, active: int, canary: Canary | None, world: World) -> messages.ModelAnswer:
    body = version.body
    n_classes = n_features = 0
    provenance: dict[str, Any] = {}
    status: messages.Status = "active" if body.version == active else "kept" if version.served else "aside"
    reason = version.damaged or version.reason
    if canary is not None and canary is world.state.canary:
        status, reason = "canary", f"{describe_canary(canary, world)}; {reason}"
    elif canary is not None and canary.outcome == WITHDRAWN and status == "aside":
        status = "withdrawn"
    if version.readable:
        models, manifest = version.models(), msgspec.json.decode(body.manifest)
        n_classes, n_features = models.n_classes, models.n_features
        provenance = {**models.provenance, "lcb": manifest["lcb"], "sha256": manifest["sha256"]}
    return messages.ModelAnswer(
        version=body.version,
        active=body.version == active,
        status=status if version.readable else "damaged",
        n_classes=n_classes,
        n_features=n_features,
        n_users=body.n_users,
        created=format_time(body.at),
        score=body.score,
        baseline=body.baseline,
        reason=reason,
        provenance=provenance,
    )


def describe_canary(canary: Canary, world: World) -> str:
    """Say how far a canary is."""
    counts = world.canary
    so_far = f"{counts.n_rewarded[1]:,} of {canary.least:,} users with a reward so far"
    means = [f"{fsum(rates) / len(rates):.3g}" for rates in counts.compare() if rates]
    against = f", {means[0]} per decision against {means[1]} of version {canary.old}" if len(means) == 2 else ""
    return f"canary for {canary.share:.3g} of new users: {so_far}{against}"
