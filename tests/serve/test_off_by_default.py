"""`benchmarks/off_by_default.py` cuts the hooks of features out of the service of today, or fails loudly."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from lcb.serve.state.reward_slots import RewardSlots

FILE = Path(__file__).parents[2] / "benchmarks" / "off_by_default.py"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("off_by_default", FILE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_hook_is_where_the_benchmark_looks_for_it(benchmark: ModuleType) -> None:
    groups = benchmark.group_cuts(benchmark.FEATURES)
    assert sum(map(len, groups.values())) == len(benchmark.CUTS)
    for place, cuts in groups.items():
        function = benchmark.find_function(*place)
        made = benchmark.cut_out(function, cuts)
        assert made.co_name == function.__code__.co_name
        assert made.co_varnames[: made.co_argcount] == function.__code__.co_varnames[: made.co_argcount]
        assert (made.co_freevars, made.co_flags) == (function.__code__.co_freevars, function.__code__.co_flags)


def test_a_hook_that_was_renamed_or_changed_ends_the_benchmark(benchmark: ModuleType) -> None:
    module = "lcb.serve.state.reward_slots"
    with pytest.raises(SystemExit, match=r"has no function RewardSlots\.fetch"):
        benchmark.find_function(module, "RewardSlots.fetch")
    cut = benchmark.Cut("retention", module, "RewardSlots.get", "found.seq <= self.world.state.oldest")
    with pytest.raises(SystemExit, match="0 times, wanted once; correct CUTS"):
        benchmark.cut_out(RewardSlots.get, [cut])


def test_a_function_without_its_hook_does_the_rest(benchmark: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    reached: set[str] = set()
    monkeypatch.setattr("builtins.lcb_reached", reached, raising=False)
    cut = benchmark.Cut("a feature", __name__, "double", "n > 3")
    monkeypatch.setattr(double, "__code__", benchmark.cut_out(double, [cut], "double"))
    assert [double(n) for n in (2, 5)] == [4, 10]
    assert reached == {"double"}


def double(n: int) -> int:
    if n > 3:
        return 0
    return 2 * n


def test_the_interval_of_a_median_follows_from_ranks(benchmark: ModuleType) -> None:
    assert benchmark.find_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)
    assert benchmark.find_interval(range(1, 21)) == (6, 15)
