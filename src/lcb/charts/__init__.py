"""All charts, of reports, commands and web pages.

    heat_map(models)            the classes: a row each, a column per feature
    regret_by_users(curves)     regret per user as users come, with a band of +- 2 standard errors
    regret_by_steps(curves)     the same against the number of interactions per user
    relative_ctr(curves, x)     CTR of an algorithm divided by the CTR in the log
    growth(panels, y_title)     regret against a size on log-log axes, beside a theoretical bound
    bars(rows, x_title)         a comparison, with the value at each bar
    studies(panels, x_title)    click-through rates of recommenders: mean and standard deviation, a panel per study
    item_effects(lists)         the best, the worst and the least known items, with intervals
    grids(rows)                 regret of each algorithm by settings
    posterior_path(posterior)   class probabilities of one new user, reward by reward
    traces(fit)                 number of classes and log joint of a sampler, sweep by sweep
    rates(rows)                 decisions and rewards per second of a service (this and the next seven: dashboard)
    ctr_over_time(rows)         clicks per decision, a line with a band per recommender and model version
    concentration(rows)         how many decisions until one class has 90 % of a new user's posterior
    users_per_model(rows)       users of each model version
    model_scores(rows)          held-out score of each model version
    class_shares(rows)          the share of each class of a mixture as users leave
    items_by_appeal(rows)       what items are liked beyond their features, with intervals
    item_rates(rows)            reward per offer over time, a line per item
    to_svg(chart, name)         SVG to put into a page
    save(chart, "regret.png")   write .png, .svg, .html that works offline, or .json (Vega-Lite)

Altair and vl-convert come with the extra `plots` and are loaded when a chart is drawn, not before.
"""

from lcb.charts.bars import bars as bars
from lcb.charts.classes import heat_map as heat_map
from lcb.charts.classes import posterior_path as posterior_path
from lcb.charts.curve import Curve as Curve
from lcb.charts.grids import grids as grids
from lcb.charts.growth import GrowthPanel as GrowthPanel
from lcb.charts.growth import growth as growth
from lcb.charts.items import item_effects as item_effects
from lcb.charts.live.items import item_rates as item_rates
from lcb.charts.live.items import items_by_appeal as items_by_appeal
from lcb.charts.live.mixtures import class_shares as class_shares
from lcb.charts.live.traffic import ctr_over_time as ctr_over_time
from lcb.charts.live.traffic import rates as rates
from lcb.charts.live.versions import concentration as concentration
from lcb.charts.live.versions import model_scores as model_scores
from lcb.charts.live.versions import users_per_model as users_per_model
from lcb.charts.regret import regret_by_steps as regret_by_steps
from lcb.charts.regret import regret_by_users as regret_by_users
from lcb.charts.regret import relative_ctr as relative_ctr
from lcb.charts.sampler import traces as traces
from lcb.charts.save import require as require
from lcb.charts.save import save as save
from lcb.charts.save import to_svg as to_svg
from lcb.charts.studies import StudyPanel as StudyPanel
from lcb.charts.studies import studies as studies
