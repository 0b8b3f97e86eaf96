"""One model version of the log."""

from __future__ import annotations

from dataclasses import dataclass, field

from lcb.errors import LCBError, ModelError
from lcb.features import FeatureMap
from lcb.models import LatentModels
from lcb.serve import events
from lcb.storage.models.folder import unpack_models


class UnreadableModels(LCBError):
    """The models that a user is pinned to cannot be read."""


@dataclass
class Version:
    """One model version; its arrays are unpacked when first needed."""

    body: events.ModelBody
    seq: int
    served: bool = False  # whether new users get it, or once did
    reason: str = ""  # why it is served, or why not
    _unpacked: tuple[LatentModels, FeatureMap | None] | None = field(default=None, repr=False)
    damaged: str | None = None

    def models(self) -> LatentModels:
        """Return the models; raises ModelError if they cannot be read."""
        if self.damaged is not None:
            raise ModelError(self.damaged)
        if self._unpacked is None:
            try:
                place = f"model version {self.body.version}"
                self._unpacked = unpack_models(self.body.manifest, self.body.tensors, place)
            except ModelError as error:
                self.damaged = str(error)
                raise
        return self._unpacked[0]

    def check_size(self, n_features: int) -> None:
        """Mark the version as damaged if it has not the log's number of features."""
        n = self.models().n_features
        if n != n_features:
            self.damaged = f"model version {self.body.version} has {n} features, but this log has {n_features}"

    @property
    def readable(self) -> bool:
        if self._unpacked is None and self.damaged is None:
            try:
                self.models()
            except ModelError:
                return False
        return self.damaged is None
