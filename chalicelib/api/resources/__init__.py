"""The HTTP interface: a file for each resource, with its requests, answers and calls. Importing this package enters all
calls."""

from importlib import import_module
from pkgutil import iter_modules

for _file in iter_modules(__path__):
    import_module(f"{__name__}.{_file.name}")
