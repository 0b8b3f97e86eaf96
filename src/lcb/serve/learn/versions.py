"""The model versions of a service, as they are shown."""

from __future__ import annotations

from typing import Any

import msgspec

from lcb import messages
from lcb.serve.learn.supervisor import Retraining, told_time
from lcb.serve.state.model_version import Version
from lcb.serve.state.world import World


def listed(world: World, retraining: Retraining) -> messages.ModelsAnswer:
    """All versions, the newest first."""
    active = world.active
    versions = tuple(_shown(version, active) for _, version in sorted(world.versions.items(), reverse=True))
    return messages.ModelsAnswer(active, versions, retraining.answer())


def _shown(version: Version, active: int) -> messages.ModelAnswer:
    body = version.body
    shape, provenance = (0, 0), dict[str, Any]()
    if version.readable:
        models = version.models()
        shape, provenance = (models.n_classes, models.n_features), dict(models.provenance)
        manifest = msgspec.json.decode(body.manifest)
        provenance |= {"lcb": manifest["lcb"], "sha256": manifest["sha256"]}
    status = "kept" if version.served else "aside"
    if body.version == active:
        status = "active"
    return messages.ModelAnswer(
        body.version, body.version == active, status if version.readable else "damaged", *shape, body.n_users,
        told_time(body.at), body.score, body.baseline, version.damaged or version.reason, provenance,
    )  # fmt: skip
