"""What is made of the table of settings is as the table has it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

from chalicelib.domain.ladder import Retry
from chalicelib.domain.settings import Destination, GroupSettings, TopicSettings, rows_of

ROOT = Path(__file__).parents[2]


def tool() -> ModuleType:
    path = ROOT / "clients" / "python" / "tools" / "make_settings.py"
    spec = importlib.util.spec_from_file_location("make_settings", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_settings_and_the_clients_types_are_made_of_the_table() -> None:
    make_settings = tool()
    assert make_settings.PAGE.read_text() == make_settings.page(), "run `make settings`"
    assert make_settings.MODULE.read_text() == make_settings.module(), "run `make settings`"


def test_every_number_has_bounds_and_every_default_is_within_them() -> None:
    rows = (*rows_of(TopicSettings), *rows_of(GroupSettings))
    numbers = [row for row in rows if row.given in (int, float)]
    assert len(numbers) > 8
    for row in numbers:
        assert row.least is not None, row.name
        assert row.most is not None, row.name
        assert row.default is None or row.least <= row.default <= row.most, row.name
    words = [row for row in rows if row.choices and row.name != "mode"]
    assert [row.name for row in words if row.default not in row.choices] == []
    assert {row.given for row in rows} == {bool, int, float, str, list, Retry, Destination, dict}
