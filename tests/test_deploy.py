"""The files of deploy/: what they name exists, and the alerts fire when they must."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import msgspec
import pytest
import yaml

from lcb.errors import InputError
from lcb.serve.config.settings import Limits, Settings
from support.http_inside import inside

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
UNITS = ("lcb.service", "lcb@.service")


def read_yaml(name: str) -> dict:
    return yaml.safe_load((DEPLOY / name).read_text())


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of all series of /metrics of a service that has answered and refused requests."""

    async def read() -> set[str]:
        store = tmp_path_factory.mktemp("deploy") / "lcb.db"
        async with inside(Settings(store=str(store))) as (app, client):
            await client.post("/v1/decisions", json={"user": "ann", "arms": [{"id": "a", "x": [1.0]}]})
            app.metrics.refused[503] = 1
            found = (await client.get("/metrics")).text
        return set(re.findall(r"^(lcb_\w+)", found, flags=re.MULTILINE))

    return asyncio.run(read())


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\blcb_[a-z_]+\b", text))


def test_the_dashboard_and_the_alerts_use_metrics_that_there_are(metrics):
    dashboard = json.loads((DEPLOY / "grafana.json").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    asked += [variable["query"] for variable in dashboard["templating"]["list"]]
    alerts = [rule["expr"] for group in read_yaml("alerts.yml")["groups"] for rule in group["rules"]]
    assert names_in(" ".join(asked)) <= metrics
    assert names_in(" ".join(alerts)) <= metrics
    assert not {"lcb_requests_made_up"} <= metrics
    assert {"lcb_batch_elements_total", "lcb_rules_total", "lcb_canary_users"} <= names_in(" ".join(asked))


def test_every_alert_of_the_docs_is_a_rule():
    rules = " ".join(rule["expr"] for group in read_yaml("alerts.yml")["groups"] for rule in group["rules"])
    page = (ROOT / "docs" / "serve.md").read_text().partition("| alert on |")[2].partition("## ")[0]
    assert names_in(page)
    assert names_in(page) - {"lcb_last_commit_seconds"} <= names_in(rules)


def test_every_rule_is_tested_both_ways():
    rules = {rule["alert"] for group in read_yaml("alerts.yml")["groups"] for rule in group["rules"]}
    quiet, raised = read_yaml("alerts_test.yml")["tests"]
    assert {one["alertname"] for one in quiet["alert_rule_test"]} == rules
    assert all("exp_alerts" not in one for one in quiet["alert_rule_test"])
    assert {one["alertname"] for one in raised["alert_rule_test"] if one.get("exp_alerts")} == rules


def test_promtool_accepts_the_rules_and_their_tests():
    promtool = shutil.which("promtool")
    assert promtool, "no promtool; on Debian and Ubuntu: apt-get install prometheus"
    done = subprocess.run(
        [promtool, "test", "rules", DEPLOY / "alerts_test.yml"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["compose.yaml", "several.yaml"])
def test_containers_may_write_only_where_their_data_is(name):
    services = [one for one in read_yaml(name)["services"].values() if one["image"] == "lcb"]
    assert services
    for service in services:
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        assert [volume.partition(":")[2] for volume in service["volumes"]] == ["/var/lib/lcb"]
        for name, value in service["environment"].items():
            assert name.removeprefix("LCB_").lower() in Settings.__dataclass_fields__, f"{name}={value}"


def test_the_files_that_a_compose_file_mounts_are_there():
    mounts = [
        volume.partition(":")[0]
        for service in read_yaml("compose.yaml")["services"].values()
        for volume in service.get("volumes", ())
        if volume.startswith("./")
    ]
    assert mounts
    assert all((DEPLOY / mount).is_file() for mount in mounts)


def test_applications_side_by_side_share_no_port_and_no_store():
    services = read_yaml("several.yaml")["services"].values()
    for part in ("ports", "volumes"):
        assert len({one[part][0] for one in services}) == len(services)


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_waits_longer_for_the_end_than_the_service_takes(name):
    unit = (DEPLOY / name).read_text()
    longest_drain = 60  # that limits.drain may be; the end takes at most 9 s more
    with pytest.raises(InputError, match=f"limits.drain is {longest_drain + 1}"):
        Settings(limits=Limits(drain=longest_drain + 1))
    assert int(re.search(r"^TimeoutStopSec=(\d+)$", unit, flags=re.MULTILINE)[1]) > longest_drain + 9
    assert int(re.search(r"^LimitNOFILE=(\d+)$", unit, flags=re.MULTILINE)[1]) > Limits().max_connections
    assert re.search(r"^ExecStart=/opt/lcb/bin/lcb serve --config ", unit, flags=re.MULTILINE)


def test_the_template_is_the_unit_with_a_name():
    one, many = ((DEPLOY / name).read_text().split("[Unit]")[1] for name in UNITS)
    named = many.replace(" for %i", "").replace("/%i.toml", "/lcb.toml").replace("/%i", "")
    assert named == one


def test_the_dockerfile_sets_settings_that_there_are():
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    settings = [line.split()[1].partition("=")[0] for line in lines if line.startswith("ENV LCB_")]
    assert settings
    assert {name.removeprefix("LCB_").lower() for name in settings} <= set(Settings.__dataclass_fields__)
    extras = re.search(r"\"\.\[([\w,]+)\]\"", "\n".join(lines))[1].split(",")
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert set(extras) <= set(known)
    user = next(index for index, line in enumerate(lines) if line.startswith("USER "))
    assert not any(line.startswith("RUN ") for line in lines[user:])
    assert msgspec.json.decode(lines[-1].partition(" ")[2]) == ["serve"]
