"""Explains what the recommender believes and why it chose an item, for people who know nothing about bandits.

    the words of a class    the categories it likes more than the other classes do:   beta_h - mean over the others
    the reason of a draw    the class that most probably drew arm a:   w_h policy_h(a) / sum_g w_g policy_g(a)

The functions take arrays and texts only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lcb.arrays import Floats
from lcb.errors import InputError
from lcb.policies import Greedy

N_WORDS = 3
EVERYTHING = "a bit of everything"
_FAINT = 0.4  # a word is kept if its lead is at least this share of the class's largest
_SURE = 0.9


def describe_classes(beta: Floats, features: Sequence[str], n_words: int = N_WORDS) -> list[list[str]]:
    """Return, for each class, up to `n_words` categories that it likes more than the other classes do, best first.

    `beta` (N, C) has a column per category; with a feature map it is `beta @ features.arms.T`, the expected reward of
    each category alone.

    >>> beta = np.array([[0.7, 0.6, 0.1, 0.1], [0.1, 0.1, 0.1, 0.8], [0.1, 0.1, 0.1, 0.1]])
    >>> describe_classes(beta, ["football", "tennis", "law", "music"])
    [['football', 'tennis'], ['music'], []]
    """
    n_classes, n_categories = np.shape(beta)
    if n_categories != len(features):
        raise InputError(f"{len(features)} names for {n_categories} weights per class; send one name per weight")
    if n_classes == 1:
        lead = beta - beta.mean()
    else:
        lead = (beta - beta.mean(axis=0)) * (n_classes / (n_classes - 1))
    return [_leading(row, features, n_words) for row in lead]


def _leading(lead: Floats, features: Sequence[str], n_words: int) -> list[str]:
    order = np.argsort(-lead, kind="stable")[:n_words]
    enough = max(_FAINT * float(lead[order[0]]), 1e-9)
    return [features[j] for j in order if lead[j] >= enough]


def list_category_rewards(theta: Floats, features: Sequence[str], n_words: int = 8) -> list[tuple[str, float]]:
    """Return the categories with a positive expected reward under a shared bandit, best first, as (name, reward).

    >>> list_category_rewards(np.array([0.1, 0.4, 0.2]), ["arts", "books", "film"], n_words=2)
    [('books', 0.4), ('film', 0.2)]
    """
    order = np.argsort(-theta, kind="stable")[:n_words]
    return [(features[j], float(theta[j])) for j in order if theta[j] > 0]


def find_backers(weights: Floats, beta: Floats, context: Floats, arm: int) -> Floats:
    """Return the probability that each class proposed the drawn arm, (N,); all 0 if uniform exploration did.

    >>> context = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    >>> find_backers(np.array([0.8, 0.2]), np.array([[0.9, 0.1], [0.1, 0.9]]), context, arm=2)
    array([0., 1.])
    """
    share = weights * Greedy()(beta @ context.T)[:, arm]
    total = share.sum()
    return share / total if total > 0 else share


def explain_choice(
    weights: Floats,
    likes: Sequence[Sequence[str]],
    propensity: float,
    n_arms: int,
    *,
    n_answers: int,
    backed: Floats | None = None,
) -> str:
    """Explain a choice of a recommender over classes.

    `weights` (N,) are the class probabilities at the draw, `likes` the words of the classes, `backed` the result of
    `find_backers`.

    >>> likes = [["football", "tennis"], ["arts", "books", "film"]]
    >>> explain_choice(np.array([0.24, 0.76]), likes, 0.06, 170, n_answers=4, backed=np.array([0.0, 1.0]))
    'You seem to be one of the readers who like arts, books, film and the like, and this is what they open most. It was
    drawn at random from 170 articles; this one had a chance of 6 %, against 0.6 % if all were equally likely.'
    """
    best = int(np.argmax(weights))
    source = best if backed is None else int(np.argmax(backed))
    drawn = backed is None or backed[source] > 0
    if not drawn:
        reason = "This one was picked at random, to learn something new about you."
    elif n_answers == 0:
        reason = (
            "It knows nothing about you yet, so it starts with a kind of reader drawn at random, common kinds more "
            f"often: this one is for readers who like {name_taste(likes[source])}."
        )
    elif source != best:
        reason = (
            f"The best guess is that you are one of the readers who like {name_taste(likes[best])}, but it is not "
            f"certain. So now and then it tries something for another kind: this one is for readers who like "
            f"{name_taste(likes[source])}."
        )
    else:
        taste = name_taste(likes[best])
        reason = f"You {_seem(weights[best])} one of the readers who like {taste}, and this is what they open most."
    return f"{reason} {describe_draw(propensity, n_arms)}"


def explain_score(
    weights: Floats,
    likes: Sequence[Sequence[str]],
    reason: str | None,
    propensity: float,
    n_arms: int,
    *,
    n_answers: int,
    parts: tuple[float, float] | None = None,
) -> str:
    """Explain a choice of the arm with the highest expected reward plus bonus; see `StoryStep` for reason and parts.

    >>> likes = [["football", "tennis"], ["arts", "books", "film"]]
    >>> explain_score(np.array([0.24, 0.76]), likes, "liked", 0.99, 170, n_answers=4)
    'You seem to be one of the readers who like arts, books, film and the like, and of all articles you are expected to
    like this one most. It was drawn at random from 170 articles; this one had a chance of 99 %, against 0.6 % if all
    were equally likely.'
    >>> explain_score(np.array([0.24, 0.76]), likes, "new", 1.0, 170, n_answers=4, parts=(0.0, 0.0)).partition(".")[0]
    'No reader has answered to this article yet'
    """
    if reason is None:
        why = "This one was picked at random, to learn something new about you."
    elif reason == "informative":
        why = "Another article may be the safer choice, but your answer to this one tells most about what you like."
    elif reason == "new":
        why = (
            "No reader has answered to this article yet. It is tried, because those who come later gain by the answers."
        )
    elif n_answers == 0:
        why = "It knows nothing about you yet, so it starts with what readers like most on average."
    else:
        best = int(np.argmax(weights))
        kind = f"one of the readers who like {name_taste(likes[best])}"
        most = "" if parts is not None else ", and of all articles you are expected to like this one most"
        why = f"You {_seem(weights[best])} {kind}{most}."
    if parts is not None:
        why = f"{why} {explain_parts(*parts)}"
    return f"{why} {describe_draw(propensity, n_arms)}"


def describe_rules(n_left: int, n_excluded: int, seen: str | None, at_most: int | None) -> str:
    """Say under which rules an arm was chosen.

    >>> describe_rules(7, 2, "exclude-taken", None)
    '7 left: not 2 that the caller excluded, nothing taken before'
    >>> describe_rules(3, 0, "exclude", 1)
    '3 left: nothing shown before, at most 1 of a category'
    """
    rules = [f"not {n_excluded:,} that the caller excluded"] if n_excluded else []
    if seen is not None:
        rules.append("nothing shown before" if seen == "exclude" else "nothing taken before")
    if at_most is not None:
        rules.append(f"at most {at_most} of a category")
    return f"{n_left:,} left: {', '.join(rules) or 'no rule applied'}"


def explain_parts(own: float, everybody: float) -> str:
    """Say how much of a choice is because of the reader, and how much because of everybody.

    >>> explain_parts(0.082, 0.051)
    'Because of you: you are expected to open articles of this kind in 8.2 more of 100 offers than the others. Because
    of everybody: readers open this article in 5.1 more of 100 offers than a new one of its kind.'
    >>> explain_parts(0.0001, -0.02)
    'Because of you: nothing speaks for this kind of article yet. Because of everybody: readers open this article in 2
    fewer of 100 offers than a new one of its kind.'
    """
    kind = f"you are expected to open articles of this kind {_compare(own)} than the others"
    item = f"readers open this article {_compare(everybody)} than a new one of its kind"
    yours = kind if abs(own) >= 0.0005 else "nothing speaks for this kind of article yet"
    theirs = item if abs(everybody) >= 0.0005 else "nobody has answered to this article yet"
    return f"Because of you: {yours}. Because of everybody: {theirs}."


def _compare(difference: float) -> str:
    """Say a difference of two rates in offers of 100: in percent it could be read as a part of the rate."""
    n = f"{100 * abs(difference):.1f}".removesuffix(".0")
    return f"in {n} {'more' if difference > 0 else 'fewer'} of 100 offers"


def _seem(probability: float) -> str:
    return "are almost surely" if probability >= _SURE else "seem to be" if probability >= 0.5 else "may be"


def explain_shared(
    weights: Sequence[tuple[str, float]], categories: Sequence[str], propensity: float, n_arms: int, *, on_top: bool
) -> str:
    """Explain a choice of a recommender that all users share; `on_top`: no arm has a higher expected reward.

    >>> explain_shared([("books", 0.4), ("film", 0.2)], ["books"], 1.0, 170, on_top=True)
    'All visitors get the same list here, and what they open most is books and film. This article ranked first of
    170.'
    """
    top = [name for name, _ in weights[:N_WORDS]]
    first = f"All visitors get the same list here, and what they open most is {join_words(top)}."
    if not top:
        reason = "All visitors get the same list here, and nobody has opened anything yet."
    elif on_top:
        reason = first
    else:
        offered = join_words(categories)
        reason = f"{first} This one is a test: too few visitors have been offered {offered} to be sure of it."
    return f"{reason} {describe_draw(propensity, n_arms)}"


def describe_draw(propensity: float, n_arms: int) -> str:
    """Describe the chance of the draw in a sentence.

    >>> describe_draw(0.0471, 170)
    'It was drawn at random from 170 articles; this one had a chance of 4.7 %, against 0.6 % if all were equally
    likely.'
    """
    if n_arms == 1:
        return "It was the only article there was."
    if propensity > 0.99:
        return f"This article ranked first of {n_arms}."
    chance, equal = format_chance(propensity), format_chance(1 / n_arms)
    drawn = f"It was drawn at random from {n_arms} articles"
    return f"{drawn}; this one had a chance of {chance}, against {equal} if all were equally likely."


def format_chance(propensity: float) -> str:
    """Format a probability as a percentage with few digits.

    >>> format_chance(0.62), format_chance(0.06), format_chance(0.0471), format_chance(0.00004), format_chance(0.999)
    ('62 %', '6 %', '4.7 %', 'less than 0.1 %', 'more than 99 %')
    """
    if propensity < 0.001:
        return "less than 0.1 %"
    if 0.99 < propensity < 1:
        return "more than 99 %"
    return f"{100 * propensity:.0f} %" if propensity >= 0.1 else f"{100 * propensity:.1f}".removesuffix(".0") + " %"


def name_taste(words: Sequence[str]) -> str:
    """Name what a kind of reader likes; "and the like" is added if the list of words may be cut off.

    >>> name_taste(["arts", "books", "film"]), name_taste(["music"]), name_taste([])
    ('arts, books, film and the like', 'music', 'a bit of everything')
    """
    return f"{', '.join(words)} and the like" if len(words) >= N_WORDS else join_words(words)


def join_words(words: Sequence[str]) -> str:
    """Join words into text.

    >>> join_words(["arts"]), join_words(["arts", "books", "film"]), join_words([])
    ('arts', 'arts, books and film', 'a bit of everything')
    """
    if not words:
        return EVERYTHING
    *rest, last = words
    return f"{', '.join(rest)} and {last}" if rest else last
