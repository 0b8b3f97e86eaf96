"""What scripts/setup.sh does about packages of the system, with apt-get, sudo and id played by shell functions."""

from __future__ import annotations

import subprocess
from pathlib import Path

SETUP = Path(__file__).parents[1] / "scripts" / "setup.sh"


def system_packages(
    *, postgres: bool, chromium: bool, root: bool, sudo: bool = False, apt: bool = True, tools: bool = True,
    shell: bool = False,
):  # fmt: skip
    played = f"""
        set -euo pipefail
        . {SETUP}
        find_postgres() {{ {str(postgres).lower()}; }}
        find_chromium() {{ {str(chromium).lower()}; }}
        find_tool() {{ {str(tools).lower()}; }}
        id() {{ printf {0 if root else 1000}; }}
        env() {{ printf 'env %s\\n' "$*" >&3; }}
        apt-get() {{ printf 'apt-get %s\\n' "$*" >&3; {str(apt).lower()}; }}
        apt-cache() {{ [ "$*" = "show chromium-headless-shell" ] && {str(shell).lower()}; }}
        sudo() {{ {str(sudo).lower()} || return 1; shift; "$@"; }}
        system_packages
    """
    return subprocess.run(["bash", "-c", f"exec 3>&1; {played}"], capture_output=True, text=True)


def test_nothing_is_run_when_all_is_there():
    done = system_packages(postgres=True, chromium=True, root=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_root_installs_what_is_missing_and_nothing_else():
    done = system_packages(postgres=False, chromium=True, root=True)
    assert done.returncode == 0, done.stderr
    assert "apt-get update -qq" in done.stdout
    assert "apt-get install -qq --yes --no-install-recommends postgresql\n" in done.stdout


def test_a_user_who_may_become_root_without_a_password_installs_too():
    done = system_packages(postgres=False, chromium=False, root=False, sudo=True)
    assert done.returncode == 0, done.stderr
    assert "--no-install-recommends postgresql chromium fonts-dejavu-core\n" in done.stdout


def test_a_chromium_without_windows_is_installed_where_there_is_one():
    done = system_packages(postgres=True, chromium=False, root=True, shell=True)
    assert done.returncode == 0, done.stderr
    assert "--no-install-recommends chromium-headless-shell fonts-dejavu-core\n" in done.stdout


def test_the_tools_of_the_other_tests_are_installed_with_it():
    done = system_packages(postgres=True, chromium=True, root=True, tools=False)
    assert done.returncode == 0, done.stderr
    assert "--no-install-recommends nodejs node-typescript prometheus\n" in done.stdout


def test_anyone_else_is_told_the_line_to_run():
    done = system_packages(postgres=True, chromium=False, root=False, sudo=False)
    assert done.returncode == 1
    assert "apt-get" not in done.stdout
    assert "run first: sudo apt-get install --no-install-recommends chromium fonts-dejavu-core\n" in done.stderr


def test_a_failed_installation_stops_with_the_same_line():
    done = system_packages(postgres=False, chromium=True, root=True, apt=False)
    assert done.returncode == 1
    assert "sudo apt-get install --no-install-recommends postgresql\n" in done.stderr
