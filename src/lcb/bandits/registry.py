"""The bandits by name, for the service, `lcb algorithms --bandits` and docs/bandits.md.

To add a bandit, write its file with its `traits`, and its test; export it in `__init__.pyi`; add its line to `BANDITS`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from inspect import Parameter, getdoc, getmodule, signature
from typing import Any

from lcb import bandits
from lcb.bandits.traits import DescribedBandit, Revisable
from lcb.models import LatentModels
from lcb.policies import ClassPolicies

BANDITS: dict[str, type[DescribedBandit]] = {
    "thompson": bandits.GeneralizedThompson,
    "posterior-mean": bandits.PosteriorMean,
    "personal-classes": bandits.PersonalClasses,
    "learned-classes": bandits.LearnedClasses,
    "mixture": bandits.MixtureBandit,
    "exp3": bandits.EXP3,
    "exp4": bandits.EXP4,
    "exp4p": bandits.EXP4P,
    "epoch-greedy": bandits.EpochGreedy,
    "iltcb": bandits.ILTCB,
    "mucb": bandits.MUCB,
    "mmts": bandits.MMTS,
    "coarse-fine": bandits.CoarseFineUCB,
    "umucb": bandits.UMUCB,
    "multiple-k-ucb": bandits.MultipleKUCB,
    "linucb": bandits.LinUCB,
    "lints": bandits.LinTS,
    "ucb1": bandits.UCB1,
    "uniform": bandits.Uniform,
}


def build_bandit(
    name: str,
    settings: Mapping[str, Any],
    *,
    models: LatentModels | None,
    n_features: int,
    reward_range: tuple[float, float] | None = None,
) -> DescribedBandit:
    """Build the bandit `name`, over the classes of `models` if it needs them.

    >>> build_bandit("linucb", {"width": 0.25}, models=None, n_features=3)
    LinUCB(n_features=3, width=0.25, ridge=1.0)
    """
    kind: Any = BANDITS[name]
    if kind.traits.needs_reward_range and reward_range is not None:
        settings = {"reward_range": reward_range, **settings}
    match kind.traits.built_on:
        case "models":
            return getattr(kind, "from_models", kind)(models, **settings)
        case "policies":
            assert models is not None
            return kind(ClassPolicies(models), **settings)
        case "n_features":
            return kind(n_features, **settings)
        case _:
            return kind(**settings)


def list_settings(name: str) -> list[str]:
    """Return the names of the settings that the bandit takes.

    >>> list_settings("coarse-fine")
    ['n_coarse', 'width', 'ridge', 'coarse_ridge']
    """
    kind: Any = BANDITS[name]
    own = [one.name for one in fields(kind)][kind.traits.built_on != "nothing" :]
    if not hasattr(kind, "from_models"):
        return own
    parameters = list(signature(kind.from_models).parameters.values())[1:]
    return [one.name for one in parameters if one.kind is not Parameter.VAR_KEYWORD] + own


def default_settings(name: str) -> dict[str, Any]:
    """Return the defaults of the settings that JSON can hold, without the range of rewards, which the log has.

    >>> default_settings("linucb")
    {'width': 0.5, 'ridge': 1.0}
    """
    kind: Any = BANDITS[name]
    defaults = {one.name: one.default for one in fields(kind)}
    if hasattr(kind, "from_models"):
        parameters = signature(kind.from_models).parameters.values()
        defaults |= {one.name: one.default for one in parameters if one.default is not Parameter.empty}
    known = {setting: defaults.get(setting, MISSING) for setting in list_settings(name)}
    return {setting: value for setting, value in known.items() if isinstance(value, int | float | str | None)}


def is_revisable(name: str) -> bool:
    """Whether the bandit can change a reward that its state already includes."""
    return issubclass(BANDITS[name], Revisable)


def describe_bandits() -> Iterator[dict[str, Any]]:
    """Yield a row per bandit: its name, class, first line of documentation, settings and traits."""
    for name, kind in BANDITS.items():
        traits = kind.traits
        needs = {
            "classes": traits.needs_classes,
            "arms without features": traits.fixed_arms,
            "the range of rewards": traits.needs_reward_range,
            "the propensity of a chosen arm": traits.needs_propensity_of_chosen,
            "the propensity of every arm": traits.needs_propensity_of_every_arm,
        }
        yield {
            "bandit": name,
            "class": kind.__name__,
            "line": (getdoc(getmodule(kind)) or "").partition("\n")[0],
            "settings": list_settings(name),
            "state": traits.state,
            "cost": traits.cost,
            "needs": [words for words, needed in needs.items() if needed],
        }


def format_markdown_table() -> str:
    """Return the table of docs/bandits.md; `scripts/write-bandits-table` writes it there."""
    lines = ["| bandit | rule | needs | state | cost of a decision |", "|---|---|---|---|---|"]
    for row in describe_bandits():
        call, needs = f"{row['class']}({', '.join(row['settings'])})", ", ".join(row["needs"]) or "-"
        lines.append(f"| `{row['bandit']}`: `{call}` | {row['line']} | {needs} | {row['state']} | O({row['cost']}) |")
    return "\n".join(lines) + "\n"
