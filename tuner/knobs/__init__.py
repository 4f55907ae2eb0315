"""Knobs, configs and search spaces."""

from tuner.knobs.applies import Facts, applies, version_in
from tuner.knobs.combinations import forbidden
from tuner.knobs.config import DEFAULT, Config
from tuner.knobs.inherited import check as check_flags
from tuner.knobs.inherited import pins
from tuner.knobs.knob import TIERS, UNSET, Forbid, Knob, Preset, When
from tuner.knobs.layout import LAYOUT, PER_DEVICE, forced_cpu_devices, processes
from tuner.knobs.pgle import DELIVERIES, EXPECT_PGLE, PGLE, PROFILE_FLAG, Delivery, Form, Recipe, recipe_of
from tuner.knobs.render import XLA_FLAGS, environment, fingerprint, split, variant
from tuner.knobs.scale import scaled
from tuner.knobs.space import SearchSpace, default_spaces, load_spaces, shipped_spaces
from tuner.knobs.status import KnobStatus
from tuner.knobs.values import typed
from tuner.knobs.workload import WORKLOAD_GROUP, from_workload, workload_knobs

__all__ = [
    "DEFAULT",
    "DELIVERIES",
    "EXPECT_PGLE",
    "LAYOUT",
    "PER_DEVICE",
    "PGLE",
    "PROFILE_FLAG",
    "TIERS",
    "UNSET",
    "WORKLOAD_GROUP",
    "XLA_FLAGS",
    "Config",
    "Delivery",
    "Facts",
    "Forbid",
    "Form",
    "Knob",
    "KnobStatus",
    "Preset",
    "Recipe",
    "SearchSpace",
    "When",
    "applies",
    "check_flags",
    "default_spaces",
    "environment",
    "fingerprint",
    "forbidden",
    "forced_cpu_devices",
    "from_workload",
    "load_spaces",
    "pins",
    "processes",
    "recipe_of",
    "scaled",
    "shipped_spaces",
    "split",
    "typed",
    "variant",
    "version_in",
    "workload_knobs",
]
