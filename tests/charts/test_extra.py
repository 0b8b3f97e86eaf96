"""The drawing packages are loaded when a chart is drawn, and named when they are missing."""

from __future__ import annotations

import pytest

from support.chart_reading import python


def test_importing_charts_loads_no_drawing_package():
    code = "import sys, lcb.charts; print(sorted({'altair', 'vl_convert', 'scipy.optimize'} & set(sys.modules)))"
    assert python(code) == "[]\n"


@pytest.mark.parametrize("package, call", [("altair", "charts.bars([('a', 1.0)], 'x')"), ("vl_convert", "save()")])
def test_without_the_extra_the_error_says_how_to_install_it(package, call):
    code = f"""
import sys
sys.modules[{package!r}] = None
from lcb import charts
from lcb.errors import MissingExtra
def save():
    charts.save(charts.bars([('a', 1.0)], 'x'), 'never.png')
try:
    {call}
except MissingExtra as error:
    print(error)
"""
    name = {"vl_convert": "vl-convert-python"}.get(package, package)
    assert python(code) == f"{name} is not installed; in a checkout of lcb run: pip install '.[plots]'\n"
