"""Files are written whole, and what is not a plain file keeps being what it is."""

from __future__ import annotations

import os
import stat
import threading

import pytest

from lcb.errors import InputError, OutputError
from lcb.storage.files import check_writable, create_folder, read_json, write_whole


def test_a_pipe_receives_the_data_and_stays_a_pipe(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    received = []
    reader = threading.Thread(target=lambda: received.append(pipe.read_bytes()))
    reader.start()
    check_writable(pipe)
    write_whole(pipe, b"data")
    reader.join(timeout=10)
    assert received == [b"data"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


@pytest.mark.parametrize("before", ["old", None])
def test_a_link_stays_a_link_and_what_it_points_at_is_replaced(tmp_path, before):
    (tmp_path / "far").mkdir()
    target, link, link_to_link = tmp_path / "far" / "target", tmp_path / "link", tmp_path / "link_to_link"
    link.symlink_to("far/target")
    link_to_link.symlink_to(link)
    if before:
        target.write_text(before)
    check_writable(link_to_link)
    write_whole(link_to_link, b"new")
    assert target.read_bytes() == b"new"
    assert not target.is_symlink()
    assert link.is_symlink()
    assert link_to_link.is_symlink()
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["far", "link", "link_to_link", "target"]


def test_a_link_to_a_pipe_leads_into_the_pipe(tmp_path):
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(pipe)
    descriptor = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_whole(link, b"data")
    assert os.read(descriptor, 100) == b"data"
    os.close(descriptor)
    assert stat.S_ISFIFO(pipe.stat().st_mode)


@pytest.mark.parametrize("target", ["missing/file", "link"])
def test_a_link_that_leads_nowhere_is_refused(tmp_path, target):
    link = tmp_path / "link"
    link.symlink_to(target)
    with pytest.raises(OutputError):
        check_writable(link)
    with pytest.raises(OutputError, match="could not be written"):
        write_whole(link, b"data")


def test_a_folder_is_made_and_kept(tmp_path):
    with create_folder(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OutputError])
def test_a_folder_of_which_nothing_came_is_taken_away(tmp_path, stop):
    with pytest.raises(stop), create_folder(tmp_path / "a" / "b"):
        raise stop("cut short")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_there_or_holds_something_stays(tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(KeyboardInterrupt), create_folder(tmp_path / "there"):
        raise KeyboardInterrupt
    with pytest.raises(FileNotFoundError), create_folder(tmp_path / "new"):
        (tmp_path / "there").rename(tmp_path / "new" / "figure").rename(tmp_path / "nowhere" / "figure")
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["figure", "new"]


def test_a_folder_that_cannot_be_made_or_written_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    for place in ("file", "file/under"):
        with pytest.raises(OutputError, match="file"), create_folder(tmp_path / place):
            pass

    def refuse(**settings):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("lcb.storage.files.TemporaryFile", refuse)
    with pytest.raises(OutputError, match="Permission denied"), create_folder(tmp_path / "new"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_json_is_read_with_or_without_a_byte_order_mark(tmp_path):
    for start in (b"", b"\xef\xbb\xbf"):
        (tmp_path / "a.json").write_bytes(start + b'{"a": [1, 2.5, "b"]}')
        assert read_json(tmp_path / "a.json") == {"a": [1, 2.5, "b"]}


@pytest.mark.parametrize("data", [b"", b"{", b"\xff\xfe\xfa", b"[" * 100_000, b"9" * 5000])
def test_what_is_not_json_is_refused(tmp_path, data):
    (tmp_path / "a.json").write_bytes(data)
    with pytest.raises(InputError, match=r"a.json is not JSON \("):
        read_json(tmp_path / "a.json")


def test_json_that_cannot_be_read_is_refused(tmp_path):
    for place in (tmp_path, tmp_path / "nowhere.json"):
        with pytest.raises(InputError, match="could not be read"):
            read_json(place)
