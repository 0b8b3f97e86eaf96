"""One model version of the log."""

from __future__ import annotations

from dataclasses import dataclass, field

from lcb.errors import LCBError, ModelError
from lcb.features import FeatureMap
from lcb.models import LatentModels
from lcb.serve import events
from lcb.storage.models.folder import unpack_models


class Damaged(LCBError):
    """The models a user is pinned to cannot be read."""


@dataclass
class Version:
    """One model version; the numbers are unpacked when first needed."""

    body: events.ModelBody
    seq: int
    served: bool = False  # now, or at some time before
    reason: str = ""  # why it is served, or is not
    _unpacked: tuple[LatentModels, FeatureMap | None] | None = field(default=None, repr=False)
    damaged: str | None = None

    def models(self) -> LatentModels:
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
        """Models of another size than the log's are of no use."""
        if self.models().n_features != n_features:
            came = self.models().n_features
            self.damaged = f"model version {self.body.version} has {came} features, this log {n_features}"

    @property
    def readable(self) -> bool:
        if self._unpacked is None and self.damaged is None:
            try:
                self.models()
            except ModelError:
                return False
        return self.damaged is None
