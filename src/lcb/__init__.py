"""Latent Contextual Bandits: personal recommendations for people a system has never met.

    log      = lcb.read_log("events.parquet")                      past users, as additive statistics
    models   = lcb.learn(log, rng=rng).models                      the latent classes
    bandit   = lcb.LearnedClasses(models)                          chooses for one new user
    decision = bandit.choose(state, context, rng)                  an arm, its propensity, the distribution

`__init__.pyi` lists the names.  `import lcb` loads none of them; each loads its module when it is first used.  The same
holds for the packages `lcb.bandits`, `lcb.recommenders`, `lcb.evaluate` and `lcb.storage`, which have the other names.
"""

from lazy_loader import attach_stub

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
