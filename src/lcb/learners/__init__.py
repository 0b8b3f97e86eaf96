"""Learns latent classes from the log of past users: `fit` runs any learner; each learner has a package of its own.

em         expectation-maximisation on statistics, of Gaussian rewards or of clicks
gibbs      Gibbs sampling over a Dirichlet process, collapsed or blocked
spectral   Spectral Experts, from moments of rows
personal   classes whose users differ: a mixture of mixed models, by EM
mixture    one mixture with a new class always possible, for users who come one after another
shared     used by several learners: starts, the choice of the number of classes, a fast exp
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
