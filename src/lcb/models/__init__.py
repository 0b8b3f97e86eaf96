"""Latent models: LatentModels (the parameters of the classes) and Fit (what a learner returns)."""

from lcb.models.fit import Fit as Fit
from lcb.models.fit import weight_covariance as weight_covariance
from lcb.models.latent_models import EDGE as EDGE
from lcb.models.latent_models import HasFeatures as HasFeatures
from lcb.models.latent_models import LatentModels as LatentModels
from lcb.models.latent_models import Likelihood as Likelihood
from lcb.models.latent_models import squash as squash
