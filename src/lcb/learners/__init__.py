"""Learn latent classes from the log of past users: `fit` runs any learner, each learner has its own room.

em         expectation-maximisation on statistics, of Gaussian rewards or of clicks
gibbs      Gibbs sampling over a Dirichlet process, collapsed or blocked
spectral   Spectral Experts, from moments of rows
personal   classes of people who differ: a mixture of mixed models, by EM
shared     what several learners use: starts, the number of classes, compiled log and exp
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
