"""The figures, tables and theorems of the paper, one file each.

To add an experiment, write NAME.py with the five functions below and add its line to `EXPERIMENTS`.

    run(n_runs, seed, progress, ...)    run the experiment and return a result, the argument of the other functions
    draw(result)                        return the chart
    to_json(result)                     return the numbers
    check_claims(result)                return the claims of the paper, and whether they hold here
    summarise(result)                   return lines of text for the terminal and the report

The report prints the docstring of the file, without its first paragraph.
"""

from importlib import import_module
from types import ModuleType

EXPERIMENTS = {  # by name, the title in the report
    "fig-1": "The five classes of the simulation",
    "fig-2a": "Simulation: regret by number of users",
    "fig-2b": "Simulation: regret by interactions per user",
    "fig-3a": "Real data: relative CTR by number of training users",
    "fig-3b": "Real data: relative CTR by number of latent classes",
    "fig-3c": "Real data: users arriving one after another",
    "table-1": "Expected regret bounds",
    "table-2": "The user study, with simulated visitors",
    "theory": "The schedules of the two theorems, measured",
}


def load_experiment(name: str) -> ModuleType:
    """Import the file of an experiment."""
    return import_module(f"{__name__}.{name.replace('-', '_')}")
