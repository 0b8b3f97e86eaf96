"""Settings from defaults, a file, the environment and flags."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import pytest

from lcb.errors import InputError
from lcb.serve.config.load import list_setting_types, load, variable_name
from lcb.serve.config.recommenders import RecommenderSpec
from lcb.serve.config.settings import Settings


def given(tmp_path, text: str = "", environment: dict[str, str] | None = None, **flags):
    file = None
    if text:
        file = tmp_path / "service.toml"
        file.write_text(text)
    named = {name.replace("__", "."): value for name, value in flags.items()}
    return load(named, file=file, environment=environment or {}, folder=tmp_path)


def test_without_anything_the_settings_are_the_defaults(tmp_path):
    config = given(tmp_path)
    assert config.settings == Settings()
    assert {one.source for one in config.values.values()} == {"default"}


def test_a_flag_is_stronger_than_the_environment_than_the_file_than_the_default(tmp_path):
    text, environment = "host = '::1'\nport = 1\nstore = 'file.db'\n", {"LCB_PORT": "2", "LCB_STORE": "env.db"}
    config = given(tmp_path, text, environment, port=3)
    assert (config.settings.port, config.settings.store, config.settings.host) == (3, "env.db", "::1")
    sources = {name: config.values[name].source for name in ("port", "store", "host", "rewards")}
    assert sources == {
        "port": "--port", "store": "LCB_STORE", "host": str(tmp_path / "service.toml"), "rewards": "default",
    }  # fmt: skip


def test_every_field_of_the_settings_has_a_name_in_the_file_and_in_the_environment():
    plain = [field.name for field in fields(Settings) if not is_dataclass(getattr(Settings(), field.name))]
    assert set(plain) == {name for name in list_setting_types() if "." not in name}
    assert variable_name("limits.max_waiting") == "LCB_LIMITS__MAX_WAITING"
    assert {name.split(".")[0] for name in list_setting_types() if "." in name} == {"learning", "limits"}


def test_the_file_is_the_one_named_else_of_the_environment_else_lcb_toml(tmp_path):
    (tmp_path / "lcb.toml").write_text("port = 1")
    (tmp_path / "other.toml").write_text("port = 2")
    (tmp_path / "named.toml").write_text("port = 3")
    environment = {"LCB_CONFIG": str(tmp_path / "other.toml")}
    assert load(environment={}, folder=tmp_path).settings.port == 1
    assert load(environment=environment, folder=tmp_path).settings.port == 2
    assert load(environment=environment, folder=tmp_path, file=tmp_path / "named.toml").settings.port == 3


def test_recommenders_are_tables_in_a_file(tmp_path):
    text = """
        [shares]
        lcb = 0.9
        population = 0.1
        [[recommenders]]
        name = "lcb"
        [[recommenders]]
        name = "population"
        bandit = "linucb"
        scope = "everyone"
        settings = { width = 0.25 }
    """
    settings = given(tmp_path, text).settings
    assert settings.recommenders[1] == RecommenderSpec("population", "linucb", "everyone", {"width": 0.25})
    assert settings.share == {"lcb": 0.9, "population": 0.1}


@pytest.mark.parametrize("how", ["flags", "environment"])
def test_recommenders_are_short_words_elsewhere(tmp_path, how):
    if how == "flags":
        config = given(tmp_path, recommenders=["lcb=thompson", "all=linucb:everyone"], shares=["lcb=0.5", "all=0.5"])
    else:
        environment = {"LCB_RECOMMENDERS": "lcb=thompson, all=linucb:everyone", "LCB_SHARES": "lcb=0.5,all=0.5"}
        config = given(tmp_path, environment=environment)
    assert config.settings.recommenders == (RecommenderSpec("lcb"), RecommenderSpec("all", "linucb", "everyone"))
    assert config.settings.share == {"lcb": 0.5, "all": 0.5}


def test_lists_and_nothing_are_written_as_text(tmp_path):
    environment = {
        "LCB_CATEGORIES": "sport, arts", "LCB_REWARD_RANGE": "-1,1", "LCB_LEARNING__RETRAIN_EVERY": "none",
        "LCB_SHADOW": "true", "LCB_LEARNING__HELD_OUT": "0.1",
    }  # fmt: skip
    settings = given(tmp_path, environment=environment).settings
    assert (settings.categories, settings.reward_range, settings.shadow) == (("sport", "arts"), (-1.0, 1.0), True)
    assert (settings.learning.retrain_every, settings.learning.held_out) == (None, 0.1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("prot = 1", "service.toml: prot is not a setting; did you mean port?"),
        ("[learning]\nretrain = 1", "learning.retrain is not a setting; did you mean learning.retrain_every?"),
        ("retrain_every = 1", "retrain_every is not a setting; did you mean learning.retrain_every?"),
        ("[limit]\nrate = 1", "limit is not a setting; did you mean \\[limits\\]?"),
        ("zzz = 1", "zzz is not a setting; lcb config show lists them"),
        ("learning = 1", "learning must be a table; write \\[learning\\]"),
        ("port = 'many'", "port is 'many'; it must be a whole number"),
        ("port = 1.5", "port is 1.5; it must be a whole number"),
        ("port = true", "port is True; it must be a whole number"),
        ("port = 70000", "port is 70000; it must be in \\[0, 65535\\]"),
        ("limits.rate = nan", "limits.rate is nan; it must be in"),
        ("limits.max_body = 0", "limits.max_body is 0; it must be at least 1"),
        ("store = 1", "store is 1; it must be text"),
        ("shadow = 'yes'", "shadow is 'yes'; it must be true or false"),
        ("rewards = 'twice'", "rewards is 'twice'; it must be one of once, first, sum, last"),
        ("log_level = 'loud'", "log_level is 'loud'; it must be one of debug, info, warning, error"),
        ("reward_range = [0]", "reward_range is \\[0\\]; it must be two numbers \\(low,high\\)"),
        ("reward_range = [1, 0]", "two finite numbers, the smaller first"),
        ("categories = [1]", "categories is \\[1\\]; it must be a list of names \\(a,b,c\\)"),
        ("shares = 1", "shares must be a table; write \\[shares\\]"),
        ("shares.lcb = 'much'", "shares is .*'much'.*; it must be a number"),
        ("shares.nobody = 1", "shares has 'nobody', which is not a recommender; the recommenders are lcb"),
        ("recommenders = 1", "recommenders must be tables; write \\[\\[recommenders\\]\\]"),
        ("[[recommenders]]\nbandit = 'linucb'", "recommender 1 has no name"),
        (
            "[[recommenders]]\nname = 'a'\nband = 'x'",
            "unknown field 'band'; the fields are name, bandit, scope, settings, warmup",
        ),
        ("[[recommenders]]\nname = 'a'\nbandit = 'x'", "bandit 'x'; the bandits are thompson"),
        ("[[recommenders]]\nname = 'a'\nsettings = 1", "settings is 1; it must be a table"),
        ("[[recommenders]]\nname = 'reader'", "name 'reader' is that of the visitors' page; choose another"),
        ("port =", "is not valid TOML"),
    ],
)
def test_a_mistake_in_a_file_is_named_with_what_was_wanted(tmp_path, text, said):
    with pytest.raises(InputError, match=said):
        given(tmp_path, text)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("LCB_PROT", "1", "LCB_PROT is not a setting; did you mean LCB_PORT?"),
        ("LCB_CONFG", "prod.toml", "LCB_CONFG is not a setting; did you mean LCB_CONFIG?"),
        ("LCB_KEYS", "lcb_1", "did you mean LCB_KEY?"),
        ("LCB_RETRAIN_EVERY", "1", "did you mean LCB_LEARNING__RETRAIN_EVERY?"),
        ("LCB_LEARNING__ZZZZZ", "1", "LCB_LEARNING__ZZZZZ is not a setting; lcb config show lists them"),
        ("LCB_PORT", "x", "LCB_PORT: port is 'x'; it must be a whole number"),
        ("LCB_PORT", "tcp://10.0.0.1:80", "Kubernetes .* enableServiceLinks: false"),
        ("LCB_SHARES", "lcb", "'lcb' is not NAME=SHARE"),
        ("LCB_RECOMMENDERS", "lcb", "'lcb' is not NAME=BANDIT"),
        ("LCB_RECOMMENDERS", "lcb=linucb:nobody", "scope is 'nobody'; it must be 'user' or 'everyone'"),
    ],
)
def test_a_mistake_in_the_environment_is_named_with_what_was_wanted(tmp_path, name, value, said):
    with pytest.raises(InputError, match=said):
        given(tmp_path, environment={name: value})


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"gone.toml cannot be read \(No such file"):
        load(file=tmp_path / "gone.toml", environment={})


def test_variables_of_others_are_left_alone_and_told(tmp_path):
    environment = {"LCB_SERVICE_HOST": "10.0.0.1", "LCB_KEY": "k", "LCB_TEST_POSTGRES": "x", "HOME": "/"}
    assert given(tmp_path, environment=environment).unknown == ("LCB_SERVICE_HOST",)


def test_secrets_are_masked_where_settings_are_shown_and_in_errors(tmp_path):
    config = given(tmp_path, environment={"LCB_STORE": "postgresql://lcb:hunter2@db/lcb?sslpassword=hunter2"})
    assert config.settings.store == "postgresql://lcb:hunter2@db/lcb?sslpassword=hunter2"
    assert "hunter2" not in str(config.masked())
    with pytest.raises(InputError) as told:
        given(tmp_path, environment={"LCB_PORT": "postgresql://lcb:hunter2@db/lcb"})
    assert "hunter2" not in str(told.value)


def test_the_example_of_the_docs_has_every_setting_at_its_default():
    import tomllib
    from pathlib import Path

    place = Path(__file__).parents[3] / "docs" / "lcb.toml"
    assert load(file=place, environment={}).settings == Settings()
    table = tomllib.loads(place.read_text())
    groups = {name: value for name, value in table.items() if isinstance(value, dict) and name != "shares"}
    named = {f"{group}.{name}" for group, inner in groups.items() for name in inner} | set(table) - set(groups)
    assert named == set(list_setting_types())
