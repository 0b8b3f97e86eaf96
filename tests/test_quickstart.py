"""The quick start is followed to the letter in an empty folder that has the docs of a checkout."""

from __future__ import annotations

import os
import subprocess
import sys

from support.console import ROOT, check_example, environment, examples, fenced

PAGE = "docs/quickstart.md"
ADDRESS = "http://127.0.0.1:8000"


def test_every_command_of_the_quick_start_prints_what_the_page_shows(tmp_path, monkeypatch):
    for name in [name for name in os.environ if name.startswith("LCB_")]:
        monkeypatch.delenv(name)
    (tmp_path / "docs").symlink_to(ROOT / "docs")
    commands = examples(PAGE)
    before = [one for one in commands if ADDRESS not in one[0] and "lcb.db" not in one[0]]
    assert (len(before), len(commands)) == (4, 8)
    for command, expected in before:
        check_example(command, expected, tmp_path)
    (serve,) = fenced(PAGE, "sh")
    (session,) = [block for block in fenced(PAGE, "python") if "Client" in block]
    process = subprocess.Popen(
        ["/bin/sh", "-c", f"exec {serve.strip()}"],
        cwd=tmp_path,
        env=environment(LCB_PORT="0", LCB_LIMITS__DRAIN="0", PYTHONUNBUFFERED="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        address = process.stdout.readline().split()[-1]
        code = session.replace(ADDRESS, address)
        done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
        assert (done.stdout, done.stderr) == ("12 [0.0, 1.0]\n", "")
        for command, expected in commands[len(before) :]:
            check_example(command.replace(ADDRESS, address), expected, tmp_path)
    finally:
        process.terminate()
        process.communicate(timeout=30)
