"""Checks of the interpreter: jax, jaxlib and plugins that fit each other, the devices jax finds, the profiler."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tuner.handoff.doctor.facts import Facts
from tuner.handoff.doctor.finding import Finding, fail, ok, warn
from tuner.session.failures import log_text

__all__ = ["found_devices", "profiler", "versions"]

_PLUGIN = re.compile(r"jax-(?P<kind>cuda|rocm)(?P<major>\d+)-(plugin|pjrt)")


def versions(facts: Facts) -> Iterator[Finding]:
    """python, jax and jaxlib, and what plugs into them."""
    report = facts.checkup
    if not report.python:
        yield fail("python", f"{facts.python} doesn't run: {_why(facts)}", "give an interpreter with --python")
        return
    yield ok("python", f"{report.python}, {facts.python}")
    if not report.jax:
        yield _no_jax(facts)
        return
    yield ok("jax", f"{report.jax} with jaxlib {report.jaxlib}" if report.jaxlib else report.jax)
    yield from _plugins(facts)


def _no_jax(facts: Facts) -> Finding:
    packages = facts.checkup.packages
    pip = f"{facts.python} -m pip install -U"
    if "jax" not in packages:
        return fail("jax", "is not installed", f"{pip} jax")
    pair = f"jax {packages['jax']}, jaxlib {packages.get('jaxlib', 'missing')}"
    return fail(
        "jax", f"can't be imported ({pair}): {_why(facts)}", f"{pip} jax=={packages['jax']} jaxlib=={packages['jax']}"
    )


def _plugins(facts: Facts) -> Iterator[Finding]:
    """A plugin of another version than jaxlib's is left out by jax, which then runs on the CPU."""
    report = facts.checkup
    plugins = {name: (m, v) for name, v in report.packages.items() if (m := _PLUGIN.fullmatch(name))}
    wrong = {name: version for name, (_, version) in plugins.items() if version != report.jaxlib}
    kinds = sorted({m["kind"] + m["major"] for m, _ in plugins.values()})
    extra = kinds[-1] if kinds else "cuda13"
    install = f'{facts.python} -m pip install -U "jax[{extra}]=={report.jax}"'
    if wrong and report.jaxlib:
        named = ", ".join(f"{name} {version}" for name, version in sorted(wrong.items()))
        yield fail("plugin", f"{named} does not fit jaxlib {report.jaxlib}", install)
    elif plugins:
        yield ok("plugin", ", ".join(f"{name} {version}" for name, (_, version) in sorted(plugins.items())))
    elif facts.devices:
        yield fail("plugin", f"there is {facts.devices[0].name}, and no plugin with which jax could use it", install)
    if len(kinds) > 1:
        yield warn("plugin", f"{' and '.join(kinds)} are both installed; jax takes one of them", "uninstall the other")


def found_devices(facts: Facts) -> Iterator[Finding]:
    """What jax runs on. Where a device doesn't start, jax goes on with the CPU and says little."""
    report = facts.checkup
    if not report.jax:
        return
    if not report.platform:
        yield fail("devices", f"jax can't start any: {_why(facts)}", _device_fix(facts))
        return
    counted = ", ".join(f"{report.devices.count(kind)} x {kind}" for kind in dict.fromkeys(report.devices))
    errors = {name: why for name, why in report.backend_errors.items() if name in ("cuda", "rocm", "gpu")}
    if report.platform == "cpu" and facts.devices and report.platforms.split(",")[0] != "cpu":
        reasons = "; ".join(f"{name}: {why}" for name, why in errors.items()) or "it does not say why"
        yield fail(
            "devices", f"jax runs on the CPU although there is {facts.devices[0].name}: {reasons}", _device_fix(facts)
        )
    elif report.platform == "cpu" and facts.devices:
        yield warn(
            "devices",
            f"jax is told to use {report.platforms} although there is {facts.devices[0].name}",
            "unset JAX_PLATFORMS",
        )
    else:
        yield ok("devices", f"{report.platform}: {counted}")


def profiler(facts: Facts) -> Iterator[Finding]:
    """Whether a trace shows what the device does."""
    rights = (
        "run as administrator, give the container CAP_PERFMON, or load the driver with "
        "NVreg_RestrictProfilingToAdminUsers=0"
    )
    if facts.checkup.traced is None:
        return
    if facts.checkup.traced:
        restricted = facts.profiling_restricted and not facts.administrator
        yield warn(
            "profiler",
            facts.checkup.traced,
            rights if restricted else "tune profile and PGLE will not work; tuning does",
        )
    elif facts.profiling_restricted and not facts.administrator:
        yield warn("profiler", "works, but the driver keeps hardware counters for administrators", rights)
    else:
        yield ok("profiler", f"traces what the {facts.checkup.platform} does")


def _why(facts: Facts) -> str:
    """The last thing it said, else how it ended."""
    report = facts.checkup
    said = log_text(report.log[-1]) if report.log else ""
    return f"{said} ({report.ended})" if said and report.ended else said or report.ended or "it says nothing"


def _device_fix(facts: Facts) -> str:
    text = " ".join(facts.checkup.log)
    if "XLA_FLAGS" in text:
        return "correct XLA_FLAGS (below)"
    if facts.checkup.ended.startswith("no answer"):
        return "look for a program that holds the device, or a driver that hangs: nvidia-smi"
    return 'nvidia-smi shows driver and processes; python -c "import jax; jax.devices()" shows the whole error'
