"""Samples to ratios, racing, verdicts, noise and numerics: pure functions, no I/O."""
