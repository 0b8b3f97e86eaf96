"""The paper's figures, tables and theorems, one file each: `run`, `draw`, `to_json`, `claims`, `summary`."""

from types import ModuleType

from lcb.experiments import fig_1, fig_2a, fig_2b, fig_3a, fig_3b, fig_3c, table_1, table_2, theory

FIGURES: dict[str, ModuleType] = {
    "fig-1": fig_1,
    "fig-2a": fig_2a,
    "fig-2b": fig_2b,
    "fig-3a": fig_3a,
    "fig-3b": fig_3b,
    "fig-3c": fig_3c,
    "table-1": table_1,
    "table-2": table_2,
    "theory": theory,
}
