"""The command line: one short module a command, each of which parses, calls one library function, and prints."""

from tuner.cli.main import main

__all__ = ["main"]
