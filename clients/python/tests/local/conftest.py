"""Tests against `headrace-local`, which the package's own fixtures start."""

from cli_commands import command, config_folder

from headrace.testing.plugin import headrace, headrace_service

__all__ = ["command", "config_folder", "headrace", "headrace_service"]
