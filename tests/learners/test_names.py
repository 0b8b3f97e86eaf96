"""The short names of the learners."""

from __future__ import annotations

import pytest

import lcb
from lcb.learners import em, fit, gibbs, personal, spectral


def test_each_room_has_the_fit_of_its_usual_learner():
    assert lcb.fit is fit
    assert em.fit.__module__ == "lcb.learners.em.gaussian"
    assert gibbs.fit.__module__ == "lcb.learners.gibbs.collapsed"
    assert personal.fit.__module__ == "lcb.learners.personal.mixture"
    assert spectral.fit.__module__ == "lcb.learners.spectral.experts"


@pytest.mark.parametrize("room", [lcb.learners, em, gibbs, personal, spectral])
def test_other_names_are_refused(room):
    with pytest.raises(AttributeError, match="attribute magic"):
        room.magic  # noqa: B018
