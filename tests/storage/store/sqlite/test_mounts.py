"""A store file that is mounted by itself is refused: write-ahead log and lock lie beside only one of its names."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lcb.errors import StoreError
from lcb.storage.store.open_store import open_store
from lcb.storage.store.sqlite import file
from lcb.storage.store.sqlite.store import SQLite
from support.namespaces import with_mount

MAIN = "from lcb.cli.main import main; main()"
MOUNTED = "is mounted by itself.*mount the folder"


def mount(monkeypatch: pytest.MonkeyPatch, folder: Path, place: Path) -> None:
    """Let the kernel's list of mounts have `place`, written as it writes names."""
    name = "".join(f"\\{ord(one):03o}" if one in " \t\n\\" else one for one in str(place))
    mounts = folder / "mountinfo"
    mounts.write_text(
        f"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n23 22 8:1 /a/lcb.db {name} rw - ext4 a rw\n"
    )
    monkeypatch.setattr(file, "_MOUNTS", mounts)


@pytest.mark.parametrize("name", ["lcb.db", "my lcb.db", "a\\040b\n\tü.db"])
@pytest.mark.parametrize("serve", [False, True])
def test_a_file_that_is_mounted_is_not_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, serve: bool
) -> None:
    place = tmp_path / name
    SQLite(place).close()
    mount(monkeypatch, tmp_path, place)
    with pytest.raises(StoreError, match=MOUNTED):
        open_store(str(place), create=False, serve=serve)
    (tmp_path / "link").symlink_to(place)
    with pytest.raises(StoreError, match=MOUNTED):
        open_store(str(tmp_path / "link"), serve=serve)


def test_a_folder_that_is_mounted_is_no_obstacle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mount(monkeypatch, tmp_path, tmp_path)
    open_store(str(tmp_path / "lcb.db"), serve=True).close()


@pytest.mark.parametrize("words", [["serve", "--port", "0", "--store"], ["log", "head"], ["log", "verify"]])
def test_a_second_service_beside_the_first_is_refused(tmp_path: Path, words: list[str]) -> None:
    """The first goes on by the plain path; where nobody may mount, the tests above are all there is."""
    (tmp_path / "other").mkdir()
    plain, mounted = tmp_path / "lcb.db", tmp_path / "other" / "lcb.db"
    mounted.touch()
    first = open_store(str(plain), serve=True)
    command = with_mount(plain, mounted, [sys.executable, "-c", MAIN, *words, str(mounted)])
    if command is not None:
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stdout + done.stderr
        assert "is mounted by itself" in done.stderr
        assert [one.name for one in mounted.parent.iterdir()] == ["lcb.db"]
    first.check()
    first.close()
