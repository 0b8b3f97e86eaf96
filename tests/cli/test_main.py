"""What every command does alike: usage errors, a full disk, a closed pipe, Ctrl-C."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

import lcb as library
from lcb.evaluate import paper_classes

MAIN = "print('up', flush=True); from lcb.cli.main import main; main()"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["learn", "e.csv", "--out", "m", "--classes", "abc"], "'--classes'"),
        (["learn", "e.csv", "--out", "m", "--threads", "0"], "'--threads'"),
        (["learn", "e.csv", "--out", "m", "--threads", "-1"], "'--threads'"),
        (["learn", "e.csv", "--out", "m", "--seed", "-1"], "'--seed'"),
        (["learn"], "'--out'"),
        (["learn", "--out", "m"], "EVENTS"),
        (["reproduce", "fig-9"], "'fig-9' is not one of 'fig-1', 'fig-2a', 'fig-2b'"),
        (["reproduce"], "fig-1, fig-2a, fig-2b"),
        (["reproduce", "fig-1", "--runs", "-5"], "'--runs'"),
        (["reproduce", "fig-1", "--seed", "-1"], "'--seed'"),
        (["simulate", "--workers", "-3"], "'--workers'"),
        (["simulate", "--seed", "-1"], "'--seed'"),
        (["simulate", "--noise", "1e200"], "--noise 1e+200"),
        (["simulate", "--noise", "1e-200"], "--noise 1e-200"),
        (["simulate", "--nope"], "--nope"),
        (["simulate", "--users"], "--users"),
        (["demo", "--seed", "-1"], "'--seed'"),
        (["demo", "--readers", "1"], "'--readers'"),
        (["demo", "--readers", "0"], "'--readers'"),
        (["demo", "--readers", "-1"], "'--readers'"),
        (["fly"], "'fly'"),
    ],
)
def test_a_mistake_of_usage_is_one_line_exit_2_and_nothing_written(lcb, tmp_path, words, message):
    outcome = lcb(*words)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("lcb: ")
    assert message in outcome.err
    assert outcome.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_mistake_of_usage_says_where_help_is(lcb):
    assert lcb("learn", "e.csv", "--out", "m", "--classes", "abc").err.endswith("; see lcb learn --help\n")
    assert lcb("fly").err.endswith("; see lcb --help\n")


def test_without_words_help_is_printed(lcb):
    outcome = lcb()
    assert outcome.code == 0
    assert outcome.out == lcb("--help").out
    assert "simulate" in outcome.out


# A process of its own, with the output it is given


@pytest.fixture
def models(tmp_path):
    library.save_models(paper_classes(), tmp_path / "models")
    return tmp_path / "models"


def run(words, **settings):
    command = [sys.executable, "-c", "from lcb.cli.main import main; main()", *map(str, words)]
    return subprocess.run(command, stderr=subprocess.PIPE, text=True, **settings)


@pytest.mark.parametrize("words", [["show", "models"], ["show", "models", "--json", "-"], ["--help"], ["--version"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_finds_no_room_is_one_line_and_exit_2(models, words, unbuffered):
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    with open("/dev/full", "w") as full:
        done = run(words, stdout=full, cwd=models.parent, env=environment)
    assert done.returncode == 2
    assert done.stderr.startswith("lcb: ")
    assert "No space left on device" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("words", [["show", "models"], ["show", "models", "--json", "-"], ["--help"]])
def test_a_reader_who_has_left_is_not_talked_to(models, words):
    read, write = os.pipe()
    os.close(read)
    done = run(words, stdout=write, cwd=models.parent)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("words", [["show", "models"], ["--version"]])
def test_without_standard_output_a_command_still_works(models, words):
    command = [sys.executable, "-c", "from lcb.cli.main import main; main()", *words]
    script = " ".join(f"'{word}'" for word in command) + " >&-"
    done = subprocess.run(script, shell=True, cwd=models.parent, stderr=subprocess.PIPE, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_what_the_output_cannot_encode_is_escaped(models):
    done = run(
        ["show", "models"],
        stdout=subprocess.PIPE,
        cwd=models.parent,
        env={**os.environ, "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "share" in done.stdout


def interrupted(words, seconds, folder):
    """Start a command in a process group of its own, press Ctrl-C after some seconds, wait for all of the group."""
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *words], cwd=folder, start_new_session=True, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout.readline() == "up\n"
    time.sleep(seconds)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=60)
    return process, err


def group_is_gone(group):
    for _ in range(600):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize("seconds", [0.3, 1.5, 3.0])
def test_ctrl_c_is_one_line_and_leaves_no_file_and_no_worker(tmp_path, seconds):
    words = ["simulate", "--runs", "200", "--workers", "2", "--json", "out.json"]
    process, err = interrupted(words, seconds, tmp_path)
    assert err == "lcb: interrupted; nothing half-written is left behind\n"
    assert process.returncode == 130
    assert group_is_gone(process.pid)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["demo", "--readers", "1000000"], ["reproduce", "fig-2b", "--runs", "200"]])
def test_ctrl_c_leaves_no_empty_folder(tmp_path, words):
    process, err = interrupted([*words, "--out", "figures"], 2.0, tmp_path)
    assert err == "lcb: interrupted; nothing half-written is left behind\n"
    assert process.returncode == 130
    assert group_is_gone(process.pid)
    for folder in tmp_path.rglob("*"):
        assert folder.is_file() or any(folder.iterdir())


HALF_WRITTEN = """
import signal, sys, tempfile, time
import lcb.cli.app, lcb.cli.main

def run(words):
    with tempfile.TemporaryDirectory(dir=words[0]):
        print("up", flush=True)
        time.sleep(60)

lcb.cli.app.run = run
lcb.cli.main.main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_command_that_is_told_to_end_removes_what_it_has_half_written(tmp_path, number):
    """systemd sends SIGTERM when a nightly job takes too long, a closed terminal SIGHUP."""
    command = [sys.executable, "-c", HALF_WRITTEN, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "up\n"
        assert len(list(tmp_path.iterdir())) == 1
        process.send_signal(number)
        _, told = process.communicate(timeout=60)
    assert (process.returncode, told) == (128 + number, "lcb: interrupted; nothing half-written is left behind\n")
    assert list(tmp_path.iterdir()) == []


def test_nohup_lets_a_command_go_on(tmp_path):
    """A signal that is ignored when a command begins stays ignored."""
    quick = HALF_WRITTEN.replace("time.sleep(60)", "time.sleep(1)")
    command = ["nohup", sys.executable, "-c", f"{quick}\nprint('done')", str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "up\n"
        process.send_signal(signal.SIGHUP)
        process.communicate(timeout=60)
    assert process.returncode == 0
