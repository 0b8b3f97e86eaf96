"""A folder of models: loads bit for bit what was saved, is complete at every instant, and is refused when damaged."""

from __future__ import annotations

import hashlib
import json
import multiprocessing
import os
import resource
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import load, save

from lcb.errors import InputError, ModelError, OutputError
from lcb.features import FeatureMap, fit_features
from lcb.models import LatentModels
from lcb.storage.models import folder as storage
from lcb.storage.models.folder import load_feature_map, load_models, save_models


def some_models(seed=0, n_classes=4, n_features=3):
    rng = np.random.default_rng(seed)
    return LatentModels(
        pi=rng.dirichlet(np.ones(n_classes)),
        beta=rng.normal(size=(n_classes, n_features)),
        sigma2=rng.gamma(1, size=n_classes),
        features=tuple(f"feature {j}" for j in range(n_features)),
        provenance={"seed": seed, "learner": "em", "trace": [-1.5, 0.1], "nested": {"ü": None, "yes": True}},
    )


def assert_same(first, second):
    for name in ("pi", "beta", "sigma2"):
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes()
        assert getattr(first, name).shape == getattr(second, name).shape
    assert first.features == second.features
    assert dict(first.provenance) == dict(second.provenance)


def files(folder):
    return sorted(path.name for path in folder.iterdir())


def tensors_file(folder):
    (path,) = folder.glob("models-*.safetensors")
    return path


def refusal(folder):
    with pytest.raises(ModelError) as caught:
        load_models(folder)
    message = str(caught.value)
    assert message.startswith(str(folder))
    assert "\n" not in message
    assert "; " in message
    return message.replace(str(folder), "FOLDER")


def rewrite(folder, *, drop=(), tensors=None, **changes):
    """Models as another program might write them: a sound seal on changed content."""
    manifest = json.loads((folder / "manifest.json").read_bytes())
    del manifest["manifest_sha256"]
    if tensors is not None:
        changes["sha256"] = hashlib.sha256(tensors).hexdigest()
        (folder / f"models-{changes['sha256'][:12]}.safetensors").write_bytes(tensors)
    manifest = {key: value for key, value in (manifest | changes).items() if key not in drop}
    seal = hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest | {"manifest_sha256": seal}))


@pytest.fixture
def folder(tmp_path):
    save_models(some_models(), tmp_path / "models")
    return tmp_path / "models"


# What was saved comes back


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32 - 1), n_classes=st.integers(1, 30), n_features=st.integers(1, 5))
def test_models_come_back_bit_for_bit(tmp_path, seed, n_classes, n_features):
    models = some_models(seed, n_classes, n_features)
    save_models(models, tmp_path / "models", overwrite=True)
    loaded = load_models(tmp_path / "models")
    assert_same(loaded, models)
    assert not loaded.pi.flags.writeable


def test_the_covariance_of_the_weights_comes_back_too(tmp_path):
    models = some_models().with_covariance(np.random.default_rng(0).random((4, 1, 1)) * (np.eye(3) + 0.1))
    save_models(models, tmp_path / "models")
    loaded = load_models(tmp_path / "models")
    assert_same(loaded, models)
    assert loaded.covariance.tobytes() == models.covariance.tobytes()
    save_models(some_models(), tmp_path / "models", overwrite=True)
    assert load_models(tmp_path / "models").covariance is None


def some_people() -> LatentModels:
    models, rng = some_models(), np.random.default_rng(0)
    spread = rng.random((4, 1, 1)) * (np.eye(3) + 0.1)
    return replace(models, covariance=spread, personal=True, arms=rng.random((5, 3)), arm_sigma2=rng.random(5))


def test_personal_models_come_back_with_their_noise_per_arm(tmp_path):
    for models in (some_people(), replace(some_people(), arms=None, arm_sigma2=None)):
        save_models(models, tmp_path / "models", overwrite=True)
        loaded = load_models(tmp_path / "models")
        assert_same(loaded, models)
        assert loaded.personal
        assert loaded.covariance.tobytes() == models.covariance.tobytes()
        if models.arms is None:
            assert loaded.arms is loaded.arm_sigma2 is None
        else:
            assert loaded.arms.tobytes() == models.arms.tobytes()
            assert loaded.arm_sigma2.tobytes() == models.arm_sigma2.tobytes()


def test_models_that_are_not_personal_are_written_as_they_always_were(folder):
    assert "personal" not in json.loads((folder / "manifest.json").read_bytes())
    assert set(load(tensors_file(folder).read_bytes())) == {"pi", "beta", "sigma2"}


def test_noise_per_arm_that_cannot_be_is_refused(folder):
    models = some_people()
    parts = {name: np.array(getattr(models, name)) for name in ("pi", "beta", "sigma2", "covariance", "arms")}
    rewrite(folder, tensors=save(parts))
    assert refusal(folder).startswith("FOLDER has tensors of shapes {")
    rewrite(folder, tensors=save(parts | {"arm_sigma2": np.ones(4)}))
    assert refusal(folder).startswith("FOLDER has tensors of shapes {")
    rewrite(folder, tensors=save(parts | {"arm_sigma2": np.ones(5)}))  # and the manifest does not say personal
    assert refusal(folder).startswith("FOLDER holds no models: noise per arm needs personal models")


@pytest.mark.parametrize(
    ("covariance", "message"),
    [
        (np.ones((4, 3)), "FOLDER has tensors of shapes {"),
        (np.ones((4, 3, 3), np.float32), "FOLDER has covariance as float32"),
        (np.zeros((4, 3, 3)), "FOLDER holds no models: covariance is not symmetric with a positive diagonal"),
    ],
)
def test_a_covariance_that_cannot_be_is_refused(folder, covariance, message):
    models = some_models()
    parts = {"pi": models.pi, "beta": models.beta, "sigma2": models.sigma2, "covariance": covariance}
    rewrite(folder, tensors=save(parts))
    assert refusal(folder).startswith(message)


def test_a_folder_holds_tensors_and_a_manifest_that_says_what_they_are(folder):
    manifest = json.loads((folder / "manifest.json").read_bytes())
    sha256 = hashlib.sha256(tensors_file(folder).read_bytes()).hexdigest()
    assert files(folder) == ["manifest.json", f"models-{sha256[:12]}.safetensors"]
    assert manifest["sha256"] == sha256
    assert (manifest["format"], manifest["format_version"]) == ("lcb-models", 1)
    assert (manifest["n_classes"], manifest["n_features"]) == (4, 3)
    assert manifest["features"] == ["feature 0", "feature 1", "feature 2"]
    assert manifest["provenance"] == dict(some_models().provenance)
    assert manifest["lcb"]


def test_folders_above_are_made(tmp_path):
    save_models(some_models(), tmp_path / "a" / "b" / "models")
    assert_same(load_models(str(tmp_path / "a" / "b" / "models")), some_models())


def test_models_are_replaced_when_allowed_and_other_files_stay(folder):
    (folder / "notes.txt").write_text("mine")
    save_models(some_models(1), folder, overwrite=True)
    assert_same(load_models(folder), some_models(1))
    assert files(folder) == ["manifest.json", tensors_file(folder).name, "notes.txt"]


def test_the_same_models_may_be_saved_twice(folder):
    save_models(some_models(), folder, overwrite=True)
    assert_same(load_models(folder), some_models())


# Places that cannot be written


def test_models_are_not_replaced_unless_allowed(folder):
    with pytest.raises(OutputError, match=r"already holds models; give another folder, or allow overwriting$"):
        save_models(some_models(1), folder)
    assert_same(load_models(folder), some_models())


@pytest.mark.parametrize("name", ["notes.txt", "manifest.json"])
def test_a_folder_of_other_things_is_left_alone(tmp_path, name):
    (tmp_path / name).write_text("{}")
    with pytest.raises(OutputError) as caught:
        save_models(some_models(), tmp_path, overwrite=True)
    assert str(caught.value) == f"{tmp_path} holds {name} and no models; give an empty or a new folder"
    assert files(tmp_path) == [name]
    assert (tmp_path / name).read_text() == "{}"


def test_a_file_is_no_folder(tmp_path):
    path = tmp_path / "models"
    path.write_text("mine")
    with pytest.raises(OutputError) as caught:
        save_models(some_models(), path, overwrite=True)
    assert str(caught.value) == f"{path} is a file; give the path of a folder"
    with pytest.raises(OutputError, match="could not be written"):
        save_models(some_models(), path / "below", overwrite=True)
    assert path.read_text() == "mine"


def test_a_place_where_nothing_can_be_made_is_named():
    with pytest.raises(OutputError) as caught:
        save_models(some_models(), "/proc/nowhere/models")
    assert str(caught.value).startswith("/proc/nowhere/models could not be written (")
    assert str(caught.value).endswith("; free disk space, check its permissions, or give another folder")


def test_a_full_disk_leaves_nothing_behind(tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # no file may grow beyond 100 bytes
    try:
        with pytest.raises(OutputError, match="could not be written"):
            save_models(some_models(), tmp_path / "a" / "models")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert files(tmp_path) == []


@pytest.mark.parametrize(
    "provenance",
    [{"a": {1, 2}}, {"a": np.arange(3)}, {1: "a"}, {"a": (1, 2)}, {"a": float("nan")}, {"a": Path("/tmp")}],
)
def test_provenance_that_json_does_not_keep_is_refused_before_anything_is_written(tmp_path, provenance):
    models = LatentModels(pi=[1.0], beta=[[1.0]], sigma2=[1.0], provenance=provenance)
    with pytest.raises(ModelError, match="provenance cannot be stored as JSON without change; use"):
        save_models(models, tmp_path / "models")
    assert files(tmp_path) == []


# Crashes


class Fault:
    """A function that fails at its n-th call."""

    def __init__(self, function, at, error):
        self.function, self.left, self.error = function, at, error

    def __call__(self, *arguments, **options):
        self.left -= 1
        if self.left == 0:
            raise self.error
        return self.function(*arguments, **options)


FAULTS = [("open", 1), ("open", 2), ("os.open", 1), ("os.open", 2), ("os.replace", 1), ("os.replace", 2)]
FAULTS += [("os.fsync", 1), ("os.fsync", 2), ("os.fsync", 3)]
LATE_FAULTS = [("os.open", 3), ("os.fsync", 4)]  # the new manifest is already in place


def break_at(monkeypatch, name, at, error):
    if name == "open":
        monkeypatch.setattr(storage, "open", Fault(open, at, error), raising=False)
    else:
        function = name.removeprefix("os.")
        monkeypatch.setattr(os, function, Fault(getattr(os, function), at, error))


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("name, at", FAULTS + LATE_FAULTS)
def test_a_save_that_fails_at_any_step_leaves_old_or_new_models_and_nothing_else(folder, monkeypatch, name, at, error):
    with monkeypatch.context() as patch:
        break_at(patch, name, at, error)
        with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else OutputError):
            save_models(some_models(1), folder, overwrite=True)
    assert_same(load_models(folder), some_models(1 if (name, at) in LATE_FAULTS else 0))
    assert files(folder) == ["manifest.json", tensors_file(folder).name]
    save_models(some_models(2), folder, overwrite=True)
    assert_same(load_models(folder), some_models(2))
    assert files(folder) == ["manifest.json", tensors_file(folder).name]


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()], ids=repr)
@pytest.mark.parametrize("name, at", FAULTS)
def test_a_first_save_that_fails_before_its_end_leaves_not_even_a_folder(tmp_path, monkeypatch, name, at, error):
    with monkeypatch.context() as patch:
        break_at(patch, name, at, error)
        with pytest.raises(KeyboardInterrupt if isinstance(error, KeyboardInterrupt) else OutputError):
            save_models(some_models(), tmp_path / "a" / "models")
    assert files(tmp_path) == []


KILLED = """
import os, sys
from lcb.models import LatentModels
from lcb.storage.models.folder import save_models

def stopping(function, at, after):
    def step(*arguments):
        global calls
        calls += 1
        if calls == at and not after:
            os._exit(9)
        result = function(*arguments)
        if calls == at:
            os._exit(9)
        return result
    return step

calls = 0
at, after = int(sys.argv[2]), sys.argv[3] == "after"
os.fsync, os.replace = stopping(os.fsync, at, after), stopping(os.replace, at, after)
save_models(LatentModels(pi=[1.0], beta=[[7.0]], sigma2=[1.0]), sys.argv[1], overwrite=True)
"""


@pytest.mark.parametrize("step", range(1, 7))
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_process_killed_at_any_step_leaves_old_or_new_models(folder, step, when):
    run = subprocess.run([sys.executable, "-c", KILLED, str(folder), str(step), when], check=False)
    assert run.returncode == 9
    loaded = load_models(folder)
    if loaded.n_classes == 4:
        assert_same(loaded, some_models())
    else:
        assert loaded.beta.tolist() == [[7.0]]
    assert (loaded.n_classes == 1) == (step > 5 or (step, when) == (5, "after"))  # 5: the manifest's rename
    save_models(some_models(2), folder, overwrite=True)
    assert_same(load_models(folder), some_models(2))
    assert files(folder) == ["manifest.json", tensors_file(folder).name]


def test_what_a_kill_leaves_of_a_first_save_is_no_hindrance_to_the_next(tmp_path):
    folder = tmp_path / "models"
    subprocess.run([sys.executable, "-c", KILLED, str(folder), "4", "after"], check=False)
    assert len(files(folder)) == 2
    save_models(some_models(), folder)
    assert files(folder) == ["manifest.json", tensors_file(folder).name]


def save_often(folder, seed):
    for i in range(20):
        save_models(some_models(seed + i), folder, overwrite=True)


def test_writers_and_a_reader_at_the_same_time_never_meet_half_a_save(folder):
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=save_often, args=(folder, seed)) for seed in (100, 200)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        loaded = load_models(folder)
        assert_same(loaded, some_models(loaded.provenance["seed"]))
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert files(folder) == ["manifest.json", tensors_file(folder).name]


# Damage


def test_a_changed_byte_anywhere_in_the_tensors_is_refused(folder):
    path = tensors_file(folder)
    data = path.read_bytes()
    rng = np.random.default_rng(0)
    for position in rng.choice(len(data), size=min(200, len(data)), replace=False):
        changed = bytearray(data)
        changed[position] ^= int(rng.integers(1, 256))
        path.write_bytes(changed)
        assert refusal(folder).startswith("FOLDER is damaged: its tensors have another sha256")
    path.write_bytes(data)
    assert_same(load_models(folder), some_models())


def test_tensors_cut_off_anywhere_are_refused(folder):
    path = tensors_file(folder)
    data = path.read_bytes()
    for n in range(0, len(data), 50):
        path.write_bytes(data[:n])
        assert refusal(folder).startswith("FOLDER is damaged: its tensors have another sha256")


def test_a_changed_byte_in_the_manifest_is_refused_or_changes_nothing(folder):
    path = folder / "manifest.json"
    data = path.read_bytes()
    n_refused = 0
    for position in range(len(data)):
        path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
        try:
            loaded = load_models(folder)
        except ModelError:
            n_refused += 1
        else:
            assert_same(loaded, some_models())
    assert n_refused > 0.8 * len(data)


def test_a_manifest_cut_off_anywhere_is_refused(folder):
    path = folder / "manifest.json"
    data = path.read_bytes()
    for n in range(len(data)):
        path.write_bytes(data[:n])
        assert refusal(folder).startswith("FOLDER/manifest.json is not JSON (")


def test_damaged_models_can_be_saved_again(folder):
    for damage in ("manifest.json", tensors_file(folder).name):
        (folder / damage).write_bytes(b"\xff")
        save_models(some_models(), folder, overwrite=True)
        assert_same(load_models(folder), some_models())
    tensors_file(folder).unlink()
    save_models(some_models(1), folder, overwrite=True)
    assert_same(load_models(folder), some_models(1))


# Folders that hold something else


def test_a_missing_folder_manifest_or_tensors_file_is_named(folder, tmp_path):
    wanted = "give a folder that save_models or `lcb learn` wrote"
    assert refusal(tmp_path / "no") == f"FOLDER/manifest.json is missing; {wanted}"
    name = tensors_file(folder).name
    assert refusal(folder / name) == f"FOLDER/manifest.json is missing; {wanted}"
    (folder / name).unlink()
    assert refusal(folder) == f"FOLDER has lost its {name}; save the models again, or restore them from a backup"
    (folder / "manifest.json").unlink()
    assert refusal(folder) == f"FOLDER/manifest.json is missing; {wanted}"


def test_a_manifest_that_is_a_folder_is_refused(tmp_path):
    (tmp_path / "manifest.json").mkdir()
    assert refusal(tmp_path).startswith("FOLDER/manifest.json could not be read (")


@pytest.mark.parametrize("text", ["[]", "{}", "3", '{"format": "onnx"}'])
def test_another_format_is_refused(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    assert refusal(tmp_path).startswith("FOLDER/manifest.json is not of format lcb-models; ")


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_another_format_version_is_refused(folder, version):
    rewrite(folder, format_version=version)
    said = f"FOLDER/manifest.json has format_version {version!r}, wanted 1; install the lcb that wrote it"
    assert refusal(folder) == said


@pytest.mark.parametrize("key", ["n_classes", "n_features", "features", "provenance", "sha256", "lcb"])
def test_a_manifest_that_lacks_a_key_or_has_it_of_another_type_is_refused(folder, key):
    rewrite(folder, **{key: 1.5})
    assert refusal(folder).startswith(f"FOLDER/manifest.json has no {key} of type ")
    rewrite(folder, drop=[key])
    assert refusal(folder).startswith(f"FOLDER/manifest.json has no {key} of type ")


def test_shapes_that_disagree_with_the_manifest_are_refused(folder):
    rewrite(folder, n_classes=5)
    assert refusal(folder).startswith("FOLDER has tensors of shapes {")


@pytest.mark.parametrize("features", [["a"], ["a", "b", "c", "d"], ["a", "b", 3], ["a", "b", ["c"]]])
def test_another_number_of_feature_names_is_refused(folder, features):
    rewrite(folder, features=features)
    assert " features of 3; " in refusal(folder)


def test_a_feature_name_that_stands_twice_is_refused(folder):
    rewrite(folder, features=["a", "b", "a"])
    assert refusal(folder).startswith("FOLDER holds no models: 2 different feature names")


@pytest.mark.parametrize(
    "name, values, said",
    [
        ("pi", np.full(4, 0.5), "FOLDER holds no models: pi sums to 2"),
        ("beta", np.full((4, 3), np.nan), "FOLDER holds no models: beta has 12 values that are not finite"),
        ("sigma2", np.zeros(4), "FOLDER holds no models: sigma2 has 0"),
        ("pi", np.full(4, 0.25, np.float32), "FOLDER has pi as float32, wanted float64"),
        ("beta", np.ones((4, 3), np.int64), "FOLDER has beta as int64, wanted float64"),
        ("beta", np.ones((3, 4)), "FOLDER has tensors of shapes {"),
        ("extra", np.ones(1), "FOLDER has tensors of shapes {"),
    ],
)
def test_tensors_that_are_no_models_are_refused(folder, name, values, said):
    models = some_models()
    tensors = {key: np.array(getattr(models, key)) for key in ("pi", "beta", "sigma2")}
    rewrite(folder, tensors=save(tensors | {name: values}))
    assert refusal(folder).startswith(said)


def test_tensors_that_are_not_safetensors_or_of_a_type_numpy_has_not_are_refused(folder):
    header = b'{"pi":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}}'
    for data in (b"garbage", b"", len(header).to_bytes(8, "little") + header + b"\0\0"):
        rewrite(folder, tensors=data)
        assert refusal(folder).startswith("FOLDER has tensors that are not safetensors (")


def test_the_map_of_features_is_kept_with_the_models(tmp_path):
    features = fit_features("pca:1+1", ["arts", "law", "film"], [[1, 0, 0], [0, 1, 0], [0, 1, 1]])
    models = LatentModels(pi=[1.0], beta=[[0.5, 2.0]], sigma2=[0.25], features=features.names)
    save_models(models, tmp_path / "with", feature_map=features)
    save_models(models, tmp_path / "without")
    np.testing.assert_array_equal(load_feature_map(tmp_path / "with").arms, features.arms)
    assert load_feature_map(tmp_path / "with").names == ("pca1", "constant")
    assert load_feature_map(tmp_path / "without") is None
    np.testing.assert_array_equal(load_models(tmp_path / "with").beta, models.beta)
    with pytest.raises(ModelError, match="the models have 2 features, their feature map makes 3"):
        save_models(models, tmp_path / "x", feature_map=fit_features("one-hot", ["a", "b", "c"], []))


def test_a_map_that_is_not_one_is_refused():
    kept = fit_features("one-hot", ["a", "b"], []).to_json()
    for broken in ({**kept, "mean": [0.0]}, {**kept, "directions": [["x"]]}, {"spec": "one-hot"}):
        with pytest.raises(InputError, match="fit and save it again"):
            FeatureMap.from_json(broken)
