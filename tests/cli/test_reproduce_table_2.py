from __future__ import annotations

import json


def test_the_command_runs_the_study(lcb, tmp_path, monkeypatch):
    from lcb.experiments import table_2, user_study

    asked = {}

    def run(**settings):
        asked.update(settings)
        return real(**settings, n_workers=1)

    real = table_2.run
    small = {"N_PAST": 100, "N_OFFERED": 20, "N_ARTICLES": 40, "N_MANY": 40, "N_STUDIES": 10, "N_TUNING_SEEDS": 1}
    for name, value in {**small, "N_TUNING": 60}.items():
        monkeypatch.setattr(user_study, name, value)
    monkeypatch.setattr(table_2, "run", run)
    outcome = lcb("reproduce", "table-2", "--runs", 1, "--seed", 4, "--json", "out.json")
    assert outcome.code == 0, outcome.err
    assert (asked["n_runs"], asked["seed"]) == (1, 4)
    assert "0.380 ± 0.076" in outcome.out
    assert "10 studies of 5 visitors each" in outcome.out
    assert json.loads((tmp_path / "out.json").read_text())["settings"]["seeds"] == 1
    assert (tmp_path / "figures" / "table-2.png").stat().st_size > 10_000
