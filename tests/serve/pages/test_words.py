"""The words of the pages."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import floats, integers

from lcb.bandits.over_classes.thompson import GeneralizedThompson
from lcb.demo.readers import CATEGORIES, KINDS, draw_articles, reader_classes
from lcb.errors import InputError
from lcb.serve.pages import words


def test_a_kind_of_reader_is_named_by_what_it_likes():
    models = reader_classes()
    for (_, liked), named in zip(KINDS.values(), words.describe_classes(models.beta, CATEGORIES, 5), strict=True):
        assert set(named) == set(liked)


def test_a_class_is_named_by_what_sets_it_apart_not_by_what_everybody_likes():
    beta = np.array([[0.9, 0.3, 0.1], [0.9, 0.1, 0.3]])
    assert words.describe_classes(beta, ["weather", "law", "music"]) == [["law"], ["music"]]


def test_at_most_n_words_the_strongest_first():
    beta = np.array([[0.5, 0.7, 0.6], [0.0, 0.0, 0.0]])
    assert words.describe_classes(beta, ["a", "b", "c"], n_words=2) == [["b", "c"], []]


def test_a_faint_lead_is_no_word():
    assert words.describe_classes(np.array([[0.8, 0.2], [0.1, 0.1]]), ["a", "b"])[0] == ["a"]


def test_one_class_alone_is_named_by_its_own_favourites():
    assert words.describe_classes(np.array([[0.9, 0.1, 0.2]]), ["a", "b", "c"]) == [["a"]]


def test_names_must_fit_the_weights():
    with pytest.raises(InputError, match="2 names for 3 weights"):
        words.describe_classes(np.zeros((2, 3)), ["a", "b"])


def test_the_order_of_the_classes_does_not_change_their_words():
    beta = reader_classes().beta
    assert words.describe_classes(beta[::-1], CATEGORIES) == words.describe_classes(beta, CATEGORIES)[::-1]


@given(seed=integers(0, 2**32 - 1))
def test_backers_are_the_classes_that_drew_the_arm(seed):
    rng = np.random.default_rng(seed)
    models, context = reader_classes(), draw_articles(30, rng)
    weights = rng.dirichlet(np.ones(models.n_classes))
    decision = GeneralizedThompson(models).choose(np.log(weights), context, rng)
    means = models.beta @ context.T
    share = np.zeros(models.n_classes)
    for h, row in enumerate(means):  # Bayes' rule over "draw a class, then one of its best arms"
        best = np.flatnonzero(row == row.max())
        share[h] = weights[h] / len(best) if decision.arm in best else 0
    np.testing.assert_allclose(words.find_backers(weights, models.beta, context, decision.arm), share / share.sum())
    assert share.sum() == pytest.approx(decision.propensity)


def test_two_classes_that_like_one_arm_back_it_by_their_weights_and_ties():
    context = np.array([[1.0, 0.0], [0.5, 0.5]])
    beta = np.array([[0.9, 0.1], [0.5, 0.5]])  # the second class has a tie: half of its 0.2 goes to each arm
    np.testing.assert_allclose(words.find_backers(np.array([0.8, 0.2]), beta, context, arm=0), [8 / 9, 1 / 9])


def test_nobody_backs_an_arm_of_the_uniform_share():
    context = np.array([[1.0, 0.0], [0.0, 1.0], [0.1, 0.1]])
    backed = words.find_backers(np.array([0.5, 0.5]), np.eye(2), context, arm=2)
    assert backed.tolist() == [0, 0]
    said = words.explain_choice(np.array([0.5, 0.5]), [["a"], ["b"]], 0.01, 3, n_answers=5, backed=backed)
    assert said.startswith("This one was picked at random")
    assert said.endswith("a chance of 1 %, against 33 % if all were equally likely.")


LIKES = [["football", "tennis"], ["arts"], []]


def test_the_first_article_is_said_to_be_a_guess():
    said = words.explain_choice(
        np.array([0.4, 0.3, 0.3]), LIKES, 0.1, 170, n_answers=0, backed=np.array([0.0, 1.0, 0.0])
    )
    assert "knows nothing about you yet" in said
    assert "readers who like arts." in said


def test_an_article_for_a_less_likely_kind_is_said_to_be_a_try():
    said = words.explain_choice(
        np.array([0.7, 0.2, 0.1]), LIKES, 0.02, 170, n_answers=3, backed=np.array([0.0, 0.1, 0.9])
    )
    assert "who like football and tennis, but it is not certain" in said
    assert "another kind: this one is for readers who like a bit of everything." in said


@pytest.mark.parametrize(("weight", "seem"), [(0.45, "may be"), (0.6, "seem to be"), (0.95, "are almost surely")])
def test_the_words_are_as_sure_as_the_weights(weight, seem):
    weights = np.array([weight, (1 - weight) * 0.6, (1 - weight) * 0.4])
    assert words.explain_choice(weights, LIKES, 0.5, 170, n_answers=3).startswith(
        f"You {seem} one of the readers who like foot"
    )


def test_one_list_for_everybody_says_what_leads_it_and_when_it_tries():
    weights = [("football", 0.3), ("food", 0.2), ("law", 0.1), ("music", 0.05)]
    said = words.explain_shared(weights, ["theatre", "law"], 1.0, 170, on_top=False)
    assert "what they open most is football, food and law." in said
    assert "too few visitors have been offered theatre and law" in said
    assert "a test" not in words.explain_shared(weights, ["football"], 1.0, 170, on_top=True)


def test_before_anybody_opened_anything_the_list_is_empty_and_said_to_be():
    assert words.list_category_rewards(np.array([0.0, -0.1, 0.3]), ["a", "b", "c"]) == [("c", 0.3)]
    said = words.explain_shared([], ["arts"], 0.1, 170, on_top=True)
    assert "nobody has opened anything yet" in said


@given(p=floats(1e-300, 1.0))
def test_a_chance_is_never_said_to_be_none_and_only_certainty_is_full(p):
    said = words.format_chance(p)
    assert not said.startswith(("0 ", "0.0 "))
    assert (said == "100 %") == (p == 1)


def test_a_single_article_needs_no_chance():
    assert words.describe_draw(1.0, 1) == "It was the only article there was."
    assert words.describe_draw(1.0, 170) == "This article ranked first of 170."
