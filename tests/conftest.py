"""Profiles of the property tests: `--hypothesis-profile=deep` looks for longer."""

from hypothesis import HealthCheck, settings

# How fast the machine is decides nothing: no deadlines.
settings.register_profile("fast", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("deep", settings.get_profile("fast"), max_examples=5000)
settings.load_profile("fast")
