"""Config: canonical, comparable, readable."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tuner.knobs import DEFAULT, UNSET, Config

SETTINGS = st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["", "1", "2", UNSET]))


@given(SETTINGS)
def test_order_and_unset_entries_make_no_difference(given_settings: dict[str, str]) -> None:
    config = Config.of(given_settings)
    assert Config.of(dict(reversed(given_settings.items()))) == config
    assert Config.of(config.as_dict()) == config
    assert UNSET not in config.as_dict().values()


@given(SETTINGS, SETTINGS)
def test_equal_keys_mean_equal_configs(a: dict[str, str], b: dict[str, str]) -> None:
    assert (Config.of(a).key == Config.of(b).key) == (Config.of(a) == Config.of(b))


@given(SETTINGS, SETTINGS)
def test_joining_lets_the_other_win(a: dict[str, str], b: dict[str, str]) -> None:
    joined = Config.of(a).join(Config.of(b))
    for name in "abcdef":
        assert joined.get(name) == (Config.of(b).get(name) if name in Config.of(b).names else Config.of(a).get(name))


def test_setting_dropping_and_reading() -> None:
    config = Config.of({"b": "1", "a": ""})
    assert (config.get("a"), config.get("b"), config.get("c")) == ("", "1", UNSET)
    assert config.set("b", UNSET) == config.drop("b") == Config.of({"a": ""})
    assert str(config) == "a=<empty> b=1"
    assert str(DEFAULT) == "default"
    assert (len(config), bool(DEFAULT)) == (2, True)
