"""The paper's figures, table and theorems, one file each: settings on top, then `run`, `draw`, `to_json`, `summary`."""

from types import ModuleType

from lcb.experiments import fig_1, fig_2a, fig_2b, table_1, theory

FIGURES: dict[str, ModuleType] = {
    "fig-1": fig_1,
    "fig-2a": fig_2a,
    "fig-2b": fig_2b,
    "table-1": table_1,
    "theory": theory,
}
