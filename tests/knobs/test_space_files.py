"""Loading search spaces from files: what is accepted, and how every fault is named with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from tuner.errors import SpaceError, UsageError
from tuner.knobs import DEFAULT, UNSET, Config, SearchSpace, default_spaces, from_workload, load_spaces

KNOB = """
[[knob]]
name = "xla_a"
carrier = "xla_flag"
type = "bool"
values = ["unset", "true"]
lane = "option"
acts_on = "hlo"
why = "to try it"
source = "here"
"""


def write(folder: Path, text: str, name: str = "my.toml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def load(folder: Path, text: str) -> SearchSpace:
    return load_spaces([write(folder, text)])


def fault(folder: Path, text: str) -> str:
    """What loading `text` complains about, with the folder cut off."""
    with pytest.raises(SpaceError) as caught:
        load(folder, text)
    return str(caught.value).replace(f"{folder}/", "")


def edited(old: str, new: str, text: str = "version = 1\n" + KNOB) -> str:
    assert old in text
    return text.replace(old, new, 1)


def test_a_file_becomes_a_space(tmp_path: Path) -> None:
    space = load(tmp_path, "version = 1\n" + KNOB + '[knob.when]\nplatform = "gpu"\nmin_devices = 2\n')
    (knob,) = space.knobs
    assert (space.name, space.files) == ("my", (str(tmp_path / "my.toml"),))
    assert (knob.name, knob.values, knob.when.platform, knob.when.min_devices) == ("xla_a", (UNSET, "true"), "gpu", 2)


def test_toml_booleans_and_numbers_become_texts(tmp_path: Path) -> None:
    space = load(tmp_path, edited('["unset", "true"]', '["unset", true, false]'))
    assert space.knobs[0].values == (UNSET, "true", "false")


def test_unset_is_put_first_and_need_not_be_written(tmp_path: Path) -> None:
    assert load(tmp_path, edited('["unset", "true"]', '["true", "unset"]')).knobs[0].values == (UNSET, "true")
    assert load(tmp_path, edited('["unset", "true"]', '["true"]')).knobs[0].values == (UNSET, "true")


def test_empty_is_a_value_of_its_own(tmp_path: Path) -> None:
    text = edited('"bool"', '"list"', edited('["unset", "true"]', '["unset", "", "A,B"]'))
    assert load(tmp_path, text).knobs[0].values == (UNSET, "", "A,B")


def test_several_spaces_become_one(tmp_path: Path) -> None:
    first = write(tmp_path, "version = 1\n" + KNOB, "a.toml")
    second = write(tmp_path, "version = 1\n" + KNOB.replace("xla_a", "xla_b"), "b.toml")
    space = load_spaces([first, second, first])
    assert (space.name, space.names) == ("a+b", ("xla_a", "xla_b"))


def test_the_digest_is_of_the_content_alone(tmp_path: Path) -> None:
    text = "version = 1\n" + KNOB
    digest = load(tmp_path, text).digest
    (tmp_path / "elsewhere").mkdir()
    assert load(tmp_path / "elsewhere", "# a remark\n" + text).digest == digest
    assert load(tmp_path, edited('"to try it"', '"to see"')).digest != digest


# -- single faults


@pytest.mark.parametrize(
    ("old", "new", "place", "complaint"),
    [
        ('"option"', '"optional"', "my.toml:8", '"optional" is none of option, environment (did you mean "option"?)'),
        ("acts_on", "act_on", "my.toml:9", 'unknown (did you mean "acts_on"?)'),
        ('lane = "option"\n', "", "my.toml:3", "missing"),
        ('"here"', "3", "my.toml:11", "Expected str, got int"),
        ('"true"]', '"True"]', "my.toml:7", '"True" is no bool; write "true"'),
        ('"true"]', '"on"]', "my.toml:7", '"on" is no bool; write "true" or "false"'),
        ('"true"]', "[1]]", "my.toml:7", "list is no value"),
        ('"true"]', '"true", true]', "my.toml:7", "offers the same value twice"),
        ('["unset", "true"]', '["unset"]', "my.toml:7", 'offers nothing but "unset"'),
        ('"xla_a"', '"--xla_a"', "my.toml:4", '"--xla_a" is no name for carrier xla_flag: an XLA flag is written'),
        ('"xla_a"', '"xla\u2013a"', "my.toml:4", "is no name for carrier xla_flag"),
        ('"xla_a"', '"xla_a=true"', "my.toml:4", "is no name for carrier xla_flag"),
        ('"xla_flag"', '"env"', "my.toml:8", "carrier env needs a new process"),
        ('"xla_flag"', '"jax_config"', "my.toml:4", "is no name for carrier jax_config"),
        ('"here"\n', '"here"\naliases = ["xla_a"]\n', "my.toml:12", "names the same flag twice"),
        ('"here"\n', '"here"\nrequires = { xla_a = "true" }\n', "my.toml:12", "names the knob itself"),
        ('"here"\n', '"here"\ntier = 4\n', "my.toml:12", "must be 1 (tried first) to 3 (tried last)"),
        ('"here"\n', '"here"\nwhen = { platfrom = "cpu" }\n', "my.toml:12", 'unknown (did you mean "platform"?)'),
        ('"here"\n', '"here"\nwhen = { platform = "tpu" }\n', "my.toml:12", '"tpu" is none of cpu, gpu'),
        ('"here"\n', '"here"\nwhen = { jax = "0.10" }\n', "my.toml:12", "'0.10' is no version clause"),
        ('"here"\n', '"here"\nwhen = { capability = "nine" }\n', "my.toml:12", "is no compute capability"),
        ('"here"\n', '"here"\nwhen = { min_devices = 0 }\n', "my.toml:12", "must be at least 1"),
        ('"here"\n', '"here"\nwhen = "cpu"\n', "my.toml:12", "must be a table"),
    ],
)
def test_a_faulty_knob_is_named_with_file_line_and_key(
    tmp_path: Path, old: str, new: str, place: str, complaint: str
) -> None:
    text = fault(tmp_path, edited(old, new))
    first = text.splitlines()[0]
    assert first.startswith(f"{place}: knob 1 (")
    assert complaint in first
    assert 'key "' in first


def test_effort_has_names_and_levels_of_its_own(tmp_path: Path) -> None:
    effort = edited('"xla_flag"', '"effort"', edited('"bool"', '"enum"'))
    complaint = fault(tmp_path, effort)
    assert "write optimization_level or memory_fitting_level" in complaint
    assert '"true" is no effort level; levels are O0, O1, O2, O3' in complaint
    named = edited('"xla_a"', '"optimization_level"', edited('"true"]', '"O1"]', effort))
    assert load(tmp_path, named).knobs[0].values == (UNSET, "O1")


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (KNOB, "my.toml: has no version; this tuner reads version = 1"),
        ("version = 2\n" + KNOB, "my.toml: has version = 2; this tuner reads version = 1"),
        ("version = 1\n" + KNOB.replace("[[knob]]", "[[knobs]]"), 'unknown key "knobs" (did you mean "knob"?)'),
        ("version = 1\n" + KNOB.replace("[[knob]]", "[knob]"), '"knob" must be written as [[knob]] tables'),
        ('version = 1\n[[knob]]\nname "xla_a"\n', "my.toml:3:6: is not TOML: Expected '=' after a key"),
        ('version = 1\nname = "x', "my.toml:2: is not TOML"),
        ("version = 1\n" + KNOB.replace('"true"', "yes"), "my.toml:7:20: is not TOML"),
    ],
)
def test_a_faulty_file_is_named_with_its_place(tmp_path: Path, text: str, complaint: str) -> None:
    assert complaint in fault(tmp_path, text)


def test_a_file_that_is_not_text_is_named(tmp_path: Path) -> None:
    path = tmp_path / "my.toml"
    path.write_bytes(b"version = 1\n\xff")
    with pytest.raises(SpaceError, match=r"my.toml: is not UTF-8 \(byte 12\)"):
        load_spaces([path])


def test_every_fault_is_named_at_once(tmp_path: Path) -> None:
    text = "version = 1\n" + KNOB.replace('"option"', '"opt"') + KNOB.replace("xla_a", "xla\u2014b")
    complaint = fault(tmp_path, text)
    assert "2 faults" in complaint
    assert 'my.toml:8: knob 1 ("xla_a"), key "lane"' in complaint
    assert 'my.toml:14: knob 2 ("xla\u2014b"), key "name"' in complaint


def test_a_faulty_pgle_knob_is_named(tmp_path: Path) -> None:
    sound = KNOB.replace('"xla_a"', '"pgle"').replace('"xla_flag"', '"pgle"').replace('"bool"', '"enum"')
    sound = sound.replace('"true"]', '"3x90"]')
    assert load(tmp_path, "version = 1\n" + sound).names == ("pgle",)
    for old, new, complaint in (
        ('"3x90"', '"on"', '"on" is no runs x percentile, such as "3x90"'),
        ('name = "pgle"', 'name = "guide"', "its knob is called pgle"),
        ('"option"', '"environment"', "a profile is handed to a compile"),
    ):
        assert old in sound
        assert complaint in fault(tmp_path, "version = 1\n" + sound.replace(old, new))


# -- faults between declarations


def test_an_unknown_space_names_the_nearest() -> None:
    with pytest.raises(SpaceError, match=r'^gpuu: no search space .* \(did you mean "gpu"'):
        load_spaces(["gpuu"])


def test_a_missing_file_names_the_nearest_in_its_folder(tmp_path: Path) -> None:
    write(tmp_path, "version = 1", "mine.toml")
    with pytest.raises(SpaceError, match=r'\(did you mean "mine.toml"\?\)'):
        load_spaces([tmp_path / "mien.toml"])


def test_no_space_at_all_is_an_error() -> None:
    with pytest.raises(SpaceError, match="no search space was named"):
        load_spaces([])


def test_a_knob_declared_twice_names_both_places(tmp_path: Path) -> None:
    complaint = fault(tmp_path, "version = 1\n" + KNOB + KNOB)
    assert 'my.toml:14: knob 2 ("xla_a"), key "name": "xla_a" is declared already, by knob 1 ("xla_a")' in complaint
    assert "my.toml:3" in complaint


def test_an_old_name_and_a_new_one_are_never_tuned_both(tmp_path: Path) -> None:
    renamed = KNOB.replace("xla_a", "xla_new").replace('"here"', '"here"\naliases = ["xla_a"]')
    write(tmp_path, "version = 1\n" + KNOB, "old.toml")
    write(tmp_path, "version = 1\n" + renamed, "new.toml")
    with pytest.raises(SpaceError, match=r'new.toml:12: knob 1 \("xla_new"\), key "aliases": "xla_a" is declared'):
        load_spaces([tmp_path / "old.toml", tmp_path / "new.toml"])


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ('[[preset]]\nname = "p"\nsource = "s"\nsettings = { xla_aa = "true" }', 'no knob is named "xla_aa" (did you'),
        ('[[preset]]\nname = "p"\nsource = "s"\nsettings = { xla_a = "yes" }', 'xla_a: "yes" is no bool'),
        ('[[preset]]\nname = "p"\nsource = "s"\nsettings = { xla_a = "unset" }', "a preset sets values"),
        ('[[preset]]\nname = "p"\nsource = "s"\nsettings = {}', "sets nothing"),
        ('[[preset]]\nname = "default"\nsource = "s"\nsettings = { xla_a = true }', "the default is always raced"),
        ('[[preset]]\nname = "p"\nsettings = { xla_a = true }', 'preset 1 ("p"), key "source": missing'),
        ('[[forbid]]\nwhy = "w"\nsettings = { xla_b = "true" }', 'forbid 1, key "settings": no knob is named "xla_b"'),
        ('[[forbid]]\nwhy = "w"\nsettings = {}', "forbids nothing"),
        ('[[forbid]]\nsettings = { xla_a = "true" }', 'forbid 1, key "why": missing'),
    ],
)
def test_faulty_presets_and_rules_are_named(tmp_path: Path, table: str, complaint: str) -> None:
    text = fault(tmp_path, f"version = 1\n{KNOB}{table}\n")
    assert complaint in text
    assert text.startswith("my.toml:1")


def test_a_preset_that_is_forbidden_is_named(tmp_path: Path) -> None:
    tables = """
[[preset]]
name = "p"
source = "s"
settings = { xla_a = true }
[[forbid]]
why = "it hangs"
settings = { xla_a = "true" }
"""
    assert "xla_a=true is forbidden: it hangs" in fault(tmp_path, "version = 1\n" + KNOB + tables)


def test_two_presets_of_one_name_are_named(tmp_path: Path) -> None:
    preset = '[[preset]]\nname = "p"\nsource = "s"\nsettings = { xla_a = true }\n'
    assert "a preset of this name is in my.toml:12 already" in fault(tmp_path, "version = 1\n" + KNOB + preset * 2)


def test_settings_may_use_an_alias(tmp_path: Path) -> None:
    aliased = KNOB.replace('"here"', '"here"\naliases = ["xla_old"]')
    preset = '[[preset]]\nname = "p"\nsource = "s"\nsettings = { xla_old = true }\n'
    space = load(tmp_path, "version = 1\n" + aliased + preset)
    assert space.presets[0].settings == {"xla_a": "true"}
    assert space.knob("xla_old").name == "xla_a"
    assert "xla_old" in space


# -- the space itself


def test_an_unknown_knob_names_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r'no knob xla_b \(did you mean "xla_a"\?\)'):
        load(tmp_path, "version = 1\n" + KNOB).knob("xla_b")


def test_a_workloads_knobs_join_the_space(tmp_path: Path) -> None:
    space = load(tmp_path, "version = 1\n" + KNOB)
    joined = space.with_knobs(from_workload({"unroll": ("1", "2")}, source="w.py"))
    assert joined.names == ("xla_a", "unroll")
    assert joined.digest == space.digest
    with pytest.raises(SpaceError, match="xla_a is declared here and in the search space my"):
        space.with_knobs(from_workload({"xla_a": ("1",)}, source="w.py"))


def test_there_is_no_default_for_an_unknown_platform() -> None:
    with pytest.raises(UsageError, match="no search space for platform 'tpu'"):
        default_spaces("tpu")


def test_the_default_config_is_empty() -> None:
    assert Config.of({"xla_a": UNSET}) == DEFAULT
    assert Config.of({"xla_a": ""}) != DEFAULT
