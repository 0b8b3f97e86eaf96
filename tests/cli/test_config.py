"""`lcb config` as it is typed."""

from __future__ import annotations

import json


def test_config_show_prints_value_and_source_and_masks_secrets(lcb, tmp_path, monkeypatch):
    (tmp_path / "lcb.toml").write_text("port = 9000\n[learning]\nretrain_every = 'none'\n")
    monkeypatch.setenv("LCB_STORE", "postgresql://lcb:hunter2@db/lcb")
    monkeypatch.setenv("LCB_KEY", "lcb_hunter2")
    monkeypatch.setenv("LCB_SERVICE_HOST", "10.0.0.1")
    shown = lcb("config", "show")
    assert shown.code == 0
    assert "hunter2" not in shown.out
    lines = {line.split()[0]: line.split()[1:] for line in shown.out.splitlines() if line.split()}
    assert lines["store"] == ["postgresql://lcb:***@db/lcb", "LCB_STORE"]
    assert lines["port"] == ["9000", "lcb.toml"]
    assert lines["learning.retrain_every"] == ["none", "lcb.toml"]
    assert lines["host"] == ["127.0.0.1", "default"]
    assert "LCB_SERVICE_HOST is set but is not a setting" in shown.out
    values = json.loads(lcb("config", "show", "--json", "-").out)
    assert values["port"] == {"value": 9000, "source": "lcb.toml"}
    assert "hunter2" not in str(values)
