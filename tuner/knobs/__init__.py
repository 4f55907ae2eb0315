"""Knobs, configs and search spaces."""
