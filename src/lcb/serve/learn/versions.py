"""The model versions of a service as GET /v1/models shows them."""

from __future__ import annotations

from typing import Any

import msgspec

from lcb import messages
from lcb.serve.learn.supervisor import Retraining, format_time
from lcb.serve.state.model_version import Version
from lcb.serve.state.world import World


def list_versions(world: World, retraining: Retraining) -> messages.ModelsAnswer:
    """Return all versions, the newest first, and the progress of learning."""
    active = world.state.active
    versions = tuple(_describe(version, active) for _, version in sorted(world.state.versions.items(), reverse=True))
    return messages.ModelsAnswer(active, versions, retraining.answer())


def _describe(version: Version, active: int) -> messages.ModelAnswer:
    body = version.body
    n_classes = n_features = 0
    provenance: dict[str, Any] = {}
    status: messages.Status = "active" if body.version == active else "kept" if version.served else "aside"
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
        reason=version.damaged or version.reason,
        provenance=provenance,
    )
