"""The distribution `headrace-local`: Headrace on one machine, as one command."""
