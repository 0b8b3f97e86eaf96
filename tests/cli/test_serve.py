"""`lcb serve` as it is typed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import httpx
import pytest

MAIN = "from lcb.cli.main import main; main()"
EXTRA = ("starlette", "msgspec", "uvicorn", "uvloop", "httptools", "structlog", "prometheus_client")


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more}


def test_serve_says_where_it_is_and_ends_when_asked(tmp_path):
    words = [sys.executable, "-c", MAIN, "serve", "--port", "0", "--recommender", "all=linucb:everyone"]
    process = subprocess.Popen(
        words, cwd=tmp_path, env=environment(LCB_LIMITS__DRAIN="0"), stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip
    try:
        said = process.stdout.readline().split()
        assert said[:3] == ["serving", "lcb.db", "at"]
        body = {"user": "ann", "arms": [{"id": "a", "x": [1.0]}]}
        with httpx.Client(base_url=said[3], trust_env=False, timeout=30) as client:
            answer = client.post("/v1/decisions", json=body).json()
            assert (answer["arm"], answer["recommender"]) == ("a", "all")
        second = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60)
        assert second.returncode == 2
        assert "lcb.db is being served by another process; stop that one" in second.stderr
        process.send_signal(signal.SIGTERM)
        _, log = process.communicate(timeout=30)
        assert process.returncode == 0
        assert [json.loads(line)["event"] for line in log.splitlines()] == ["ready", "draining", "stopped"]
    finally:
        process.kill()
        process.communicate()


def test_settings_that_do_not_fit_the_log_are_one_line(lcb, tmp_path):
    line = [sys.executable, "-c", MAIN, "serve", "--port", "0", "--rewards", "sum"]
    process = subprocess.Popen(line, cwd=tmp_path, env=environment(), stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0
    told = lcb("serve", "--port", "0", "--rewards", "sum", "--models", "nowhere")
    assert (told.code, told.err.count("\n")) == (2, 1)
    assert "nowhere" in told.err
    told = lcb("serve", "--port", "0", "--rewards", "last")
    assert told.code == 2
    assert told.err == "lcb: rewards is sum in this log, but last in the settings; keep it, or use a new store\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--host", "0.0.0.0"], "there is no key; create one first"),
        (["--port", "70000"], "port is 70000"),
        (["--recommender", "lcb"], "--recommender: 'lcb' is not NAME=BANDIT"),
        (["--share", "lcb"], "--share: 'lcb' is not NAME=SHARE"),
        (["--share", "nobody=1"], "shares has 'nobody'"),
        (["--reward-range", "1"], "--reward-range: reward_range is"),
        (
            ["--retrain-every", "often"],
            "--retrain-every: learning.retrain_every is 'often'; it must be a whole number or none",
        ),
        (["--classes", "0"], "n_classes is 0"),
        (["--config", "gone.toml"], "gone.toml cannot be read"),
        (["--store", "mysql://x"], "mysql://..."),
        (["--store", "host=127.0.0.1 port=1 password=x"], "give postgresql://user@host/name"),
    ],
)
def test_a_mistake_of_serve_is_one_line(lcb, words, said):
    outcome = lcb("serve", "--port", "0", *words) if "--port" not in words else lcb("serve", *words)
    assert outcome.code == 2
    assert said in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_port_that_is_taken_is_one_line(lcb):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        outcome = lcb("serve", "--port", taken.getsockname()[1])
    assert outcome.code == 2
    assert "cannot listen on 127.0.0.1" in outcome.err


def test_without_the_extra_the_line_that_installs_it_is_printed(tmp_path):
    commands = ["serve", "config show", "keys list", "log verify a.db", "log export a.db a.parquet", "log show a.db"]
    for words in map(str.split, commands):
        code = f"import sys; sys.modules.update(dict.fromkeys({EXTRA!r})); sys.argv[1:] = {words!r}; {MAIN}"
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True, text=True
        )
        assert done.returncode == 2, done.stderr
        assert done.stderr.endswith("is not installed; in a checkout of lcb run: pip install '.[serve]'\n")
        assert done.stderr.count("\n") == 1


def test_the_command_line_without_the_service_loads_none_of_it():
    code = "import sys, lcb.cli.app; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {name.split(".")[0] for name in loaded} & set(EXTRA)
