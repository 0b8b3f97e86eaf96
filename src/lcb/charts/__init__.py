"""All charts; a figure in a report and a live chart on a page come from the same function.

    heat_map(models)            the classes: a row each, a column per feature
    regret_by_users(curves)     regret per user as users come, with a band of +- 2 standard errors
    regret_by_steps(curves)     the same against the number of interactions per user
    relative_ctr(curves, x)     clicks on a log over those in the data
    growth(panels, y_title)     growth with a size on log-log axes, beside the growth of a bound
    bars(rows, x_title)         a comparison, the value printed at each bar
    studies(panels, x_title)    click-through rates of recommenders: means with deviations, a panel per study
    grids(rows)                 regret of each algorithm by settings
    posterior_path(posterior)   class probabilities of one new user, reward by reward
    traces(fit)                 number of classes and log joint of a sampler, sweep by sweep
    rates(rows)                 decisions and rewards per second of a service
    ctr_over_time(rows)         clicks per decision, a line with a band per recommender and model version
    concentration(rows)         how many rewards until one class holds 90 % of a new user's posterior
    users_per_model(rows)       users of each model version
    model_scores(rows)          the held-out score of the versions as they were made
    save(chart, "regret.png")   as .png, .svg, .html that works offline, or .json (Vega-Lite)

Altair and vl-convert come with the extra `plots` and are loaded when a chart is drawn, not before.
"""

from __future__ import annotations

from lcb.charts.bars import bars
from lcb.charts.classes import heat_map, posterior_path
from lcb.charts.curve import Curve
from lcb.charts.grids import grids
from lcb.charts.growth import GrowthPanel, growth
from lcb.charts.live.traffic import ctr_over_time, rates
from lcb.charts.live.versions import concentration, model_scores, users_per_model
from lcb.charts.regret import regret_by_steps, regret_by_users, relative_ctr
from lcb.charts.sampler import traces
from lcb.charts.save import require, save
from lcb.charts.studies import StudyPanel, studies

__all__ = [
    "Curve",
    "GrowthPanel",
    "StudyPanel",
    "bars",
    "concentration",
    "ctr_over_time",
    "grids",
    "growth",
    "heat_map",
    "model_scores",
    "posterior_path",
    "rates",
    "regret_by_steps",
    "regret_by_users",
    "relative_ctr",
    "require",
    "save",
    "studies",
    "traces",
    "users_per_model",
]
