"""Make the files of tests/compatibility/data with the lcb that is installed: python tests/compatibility/make.py DATA

It uses the command line, the HTTP API and the names of `import lcb`, so that it runs with every version of lcb.
facts.py computes DATA/expected.json, which the tests compare with.
"""

from __future__ import annotations

import csv
import json
import random
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

import lcb
from lcb.models import weight_covariance

LCB = str(Path(sys.executable).with_name("lcb"))
SCOPES = ("reader", "writer", "admin")
BANDITS = (
    "thompson", "posterior-mean", "exp3", "exp4", "exp4p", "epoch-greedy", "iltcb", "mucb", "mmts", "coarse-fine",
    "linucb", "lints", "uniform",
)  # fmt: skip
ITEMS = [
    {"id": "final", "title": "The final", "categories": ["sport"]},
    {"id": "opera", "categories": ["arts"]},
    {"id": "comet", "title": "A comet", "categories": ["science", "arts"]},
    {"id": "race", "categories": ["sport", "science"]},
]


def main(data: Path) -> None:
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True)
    make_tables(data)
    make_log(data)
    make_models(data)
    asked: dict[str, list[Any]] = {}
    asked["once.db"] = make_main_store(data / "once.db")
    asked["vectors.db"] = make_vector_store(data / "vectors.db")
    for rule in ("sum", "last"):
        asked[f"{rule}.db"] = make_rule_store(data / f"{rule}.db", rule)
    (data / "asked.json").write_text(json.dumps(asked, indent=0) + "\n")
    run("log", "export", data / "once.db", data / "exported.parquet", "--missing", "0")
    run("log", "export", data / "once.db", data / "exported")
    run("log", "export", data / "vectors.db", data / "exported_vectors")


def run(*arguments: object, folder: Path | None = None) -> str:
    done = subprocess.run([LCB, *map(str, arguments)], capture_output=True, text=True, cwd=folder)
    if done.returncode:
        raise RuntimeError(f"lcb {' '.join(map(str, arguments))}: {done.stderr or done.stdout}")
    return done.stdout


# Tables, an imported log, models


def make_tables(data: Path) -> None:
    """One event table as CSV, TSV and JSON lines; the last with lists of features and of user features."""
    chance = random.Random(1)
    rows = []
    for i in range(120):
        hour, age = round(chance.random(), 3), round(chance.gauss(0, 1), 3)
        reward = round(hour - age * (1 if i % 12 < 6 else -1) + chance.gauss(0, 0.1), 3)
        rows.append({"user": f"u{i % 12:02d}", "reward": reward, "hour": hour, "age": age, "seen": f"Ann, {i}"})
    for name, delimiter in (("events.csv", ","), ("events.tsv", "\t")):
        with open(data / name, "w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter)
            writer.writeheader()
            writer.writerows(rows)
    with open(data / "clicks.jsonl", "w") as file:
        for i in range(140):
            user, arm = i % 20, chance.randrange(3)
            clicked = chance.random() < (0.9 if arm == user % 3 else 0.1)
            x, user_x = [float(j == arm) for j in range(3)], [1.0, float(user % 2)]
            row = {"user": user, "reward": [-1, 2][clicked], "x": x, "user_x": user_x}
            file.write(json.dumps(row | {"item": f"i{arm}", "time": 1000 - i}) + "\n")


def make_log(data: Path) -> None:
    """Ratings with times, propensities, a feature, duplicates, rows out of order, and a table of items."""
    chance = random.Random(2)
    genres = ["action", "drama", "comedy", "war"]
    with open(data / "films.csv", "w") as file:
        file.write("film,title,genres\n")
        for i in range(12):
            file.write(f'f{i:02d},"Film, {i}",{"|".join(chance.sample(genres, 1 + i % 2))}\n')
    with open(data / "ratings.csv", "w") as file:
        file.write("viewer,film,stars,at,chance,hour\n")
        for i in range(300):
            viewer, film = f"v{chance.randrange(25):02d}", f"f{chance.randrange(12):02d}"
            stars = chance.choice([1, 2, 3, 4, 4.5, 5])
            at = f"2024-05-{1 + chance.randrange(28):02d} {chance.randrange(24):02d}:00:00"
            row = f"{viewer},{film},{stars},{at},{chance.choice([0.05, 0.25, 1])},{i % 24}\n"
            file.write(row * (1 + (i % 50 == 0)))
    columns = ["--user", "viewer", "--item", "film", "--rating", "stars", "--time", "at", "--propensity", "chance"]
    items = ["--items", data / "films.csv", "--item-categories", "genres", "--features", "hour", "--like", "4"]
    run("import", data / "ratings.csv", *columns, *items, "--out", data / "log")
    run("import", data / "clicks.jsonl", "--features", "x", "--out", data / "clicks.parquet")


def make_models(data: Path) -> None:
    run("learn", data / "events.csv", "--columns", "hour,age", "--classes", 2, "--out", data / "models" / "named")
    run("learn", data / "clicks.jsonl", "--classes", 3, "--out", data / "models" / "clicks")
    for name, features in (("pca", "pca:2+1"), ("one_hot", "one-hot")):
        run("learn", data / "log", "--features", features, "--like", 4, "--classes", 2, "--out", data / "models" / name)
    named, stats = (
        lcb.load_models(data / "models" / "named"),
        lcb.read_log(data / "events.csv", columns=["hour", "age"]),
    )
    sure = named.with_covariance(weight_covariance(named, stats))
    lcb.save_models(sure, data / "models" / "covariance")


# Stores


@contextmanager
def service(store: Path, settings: str, *flags: str, key: str = "") -> Iterator[httpx.Client]:
    """A service on `store`, stopped as an operator stops it: its snapshots are written."""
    config = store.with_suffix(".toml")
    config.write_text(settings)
    with socket.socket() as any_free:
        any_free.bind(("127.0.0.1", 0))
        port = any_free.getsockname()[1]
    command = [LCB, "serve", "--store", str(store), "--config", str(config), "--port", str(port), "--no-pages", *flags]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60, trust_env=False, headers=headers)
    try:
        for _ in range(600):
            try:
                if client.get("/readyz").status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.05)
        yield client
    finally:
        process.terminate()
        process.wait(60)
        client.close()
        config.unlink()


class Asker:
    """Sends requests of known ids; `asked` keeps the requests with their answers."""

    def __init__(self, client: httpx.Client, asked: list[Any]) -> None:
        self.client, self.asked, self.n = client, asked, 0

    def send(self, method: str, path: str, **body: Any) -> dict[str, Any]:
        answer = self.client.request(method, path, json=body or None)
        if answer.status_code >= 300:
            raise RuntimeError(f"{method} {path} {body}: {answer.text}")
        return dict(answer.json()) if answer.content else {}

    def decide(self, user: str, id: str, **more: Any) -> dict[str, Any]:
        request = {"user": user, "decision_id": id, **more}
        answer = self.send("POST", "/v1/decisions", **request)
        self.keep("/v1/decisions", request, answer)
        return answer

    def reward(self, id: str, reward: float, **more: Any) -> None:
        request = {"decision_id": id, "reward": reward, **more}
        self.keep("/v1/rewards", request, self.send("POST", "/v1/rewards", **request))

    def keep(self, path: str, request: dict[str, Any], answer: dict[str, Any]) -> None:
        """One of five: enough to see that an answer is what it was."""
        if self.n % 5 == 0:
            self.asked.append([path, request, answer])
        self.n += 1

    def retrain(self) -> None:
        n_before = len(self.send("GET", "/v1/models")["versions"])
        self.send("POST", "/v1/models/retrain")
        for _ in range(600):
            if len(self.send("GET", "/v1/models")["versions"]) > n_before:
                return
            time.sleep(0.1)
        raise RuntimeError("no model version was learned")


def make_main_store(path: Path) -> list[Any]:
    """A catalogue with categories, warm-up users, two versions, a roll back, lists, an erasure, keys."""
    tables = "".join(f'[[recommenders]]\nname = "{bandit}"\nbandit = "{bandit}"\n' for bandit in BANDITS)
    settings = (
        'rewards = "once"\nreward_range = [0.0, 1.0]\ncategories = ["sport", "arts", "science"]\n'
        + tables
        + '[[recommenders]]\nname = "everyone"\nbandit = "linucb"\nscope = "everyone"\nsettings = { width = 0.5 }\n'
        + '[[recommenders]]\nname = "sampled"\nbandit = "lints"\nscope = "everyone"\n'
        + '[learning]\nn_warmup_users = 10000\nretrain_every = "none"\nn_classes = 2\nheld_out = 0.2\n'
    )
    keys = {scope: run("keys", "create", scope, "--scope", scope, "--store", path).strip() for scope in SCOPES}
    run("keys", "create", "gone", "--scope", "writer", "--store", path)
    run("keys", "revoke", "gone", "--store", path)
    chance, asked = random.Random(3), []
    with service(path, settings, key=keys["admin"]) as client:
        asker = Asker(client, asked)
        asker.send("PUT", "/v1/items", items=ITEMS)
        converse(asker, chance, "warm", 18)
        asker.retrain()
        converse(asker, chance, "new", 45)
    with service(path, settings, key=keys["admin"]) as client:
        asker = Asker(client, asked)
        asker.send("PUT", "/v1/items", items=[{"id": "quiz", "categories": ["arts"]}], remove=["opera"])
        asker.retrain()
        asker.send("POST", "/v1/models/2/activate")
        converse(asker, chance, "later", 8)
        asker.send("POST", "/v1/models/1/activate")
        converse(asker, chance, "back", 6)
        for user in ("warm3", "new5"):
            asker.send("DELETE", f"/v1/users/{user}")
        asked[:] = [one for one in asked if one[1]["decision_id"].split("-")[0] not in ("warm3", "new5")]
        converse(asker, chance, "new", 4, start=60)
    return asked


def converse(asker: Asker, chance: random.Random, name: str, n_users: int, start: int = 0) -> None:
    """Each user: the whole catalogue, some items, a list, an arm the caller chose; three of four users give rewards.

    The third user of a recommender and those after stop at the first decision: the store stays small.
    """
    seen: Counter[str] = Counter()
    for i in range(start, start + n_users):
        user, ids = f"{name}{i}", [item["id"] for item in asker.send("GET", "/v1/items")["items"]]
        answers = [asker.decide(user, f"{user}-0")]
        recommender = answers[0]["recommender"]
        seen[recommender] += 1
        if seen[recommender] > 2:
            continue
        answers.append(asker.decide(user, f"{user}-1", arms=[{"id": id} for id in ids[1:]]))
        answers.append(asker.decide(user, f"{user}-2", k=2))
        if recommender != "exp4p":
            answers.append(asker.decide(user, f"{user}-3", chosen=chance.choice(ids), chosen_propensity=0.25))
        given = [
            one["reward_id"]
            for answer in answers
            for one in answer.get("slots", [{"reward_id": answer["decision_id"]}])
        ]
        chance.shuffle(given)
        for id in given[: 3 if i % 4 else 0]:
            asker.reward(id, float(chance.random() < 0.5))


def make_vector_store(path: Path) -> list[Any]:
    """Features in the requests and in the items, user features, models given at the start, a shadow."""
    chance, asked = random.Random(4), []
    models = path.with_name("models") / "named"
    settings = (
        '[[recommenders]]\nname = "lcb"\nsettings = { gamma = 0.1, eta = 0.5 }\n'
        '[[recommenders]]\nname = "own"\nbandit = "linucb"\n'
    )
    with service(path, settings, "--models", str(models)) as client:
        asker = Asker(client, asked)
        asker.send("PUT", "/v1/items", items=[{"id": f"i{j}", "x": [j / 3, 1.0 - j]} for j in range(4)])
        for i in range(10):
            arms = [{"id": f"a{j}", "x": [chance.gauss(0, 1), chance.gauss(0, 1)]} for j in range(3)]
            asker.decide(f"v{i}", f"v{i}-0", arms=arms)
            asker.decide(f"v{i}", f"v{i}-1")
            asker.decide(f"v{i}", f"v{i}-2", arms=[{"id": f"b{j}", "x": [chance.random()]} for j in range(3)], x=[0.5])
            for j in range(i % 4):
                asker.reward(f"v{i}-{j}", chance.gauss(0, 1))
    with service(path, settings, "--models", str(models), "--shadow") as client:
        asker = Asker(client, asked)
        for i in range(6):
            asker.decide(f"v{i}", f"v{i}-3", chosen=f"i{i % 4}", **({"chosen_propensity": 0.5} if i % 2 else {}))
            asker.reward(f"v{i}-3", float(i % 2))
    return asked


def make_rule_store(path: Path, rule: str) -> list[Any]:
    """Several rewards for one decision under another rule, where the state is of one user and of everyone.

    The features have one number that is not 0: products with them are the same on every processor.
    """
    chance, asked = random.Random(5), []
    settings = (
        f'rewards = "{rule}"\n[[recommenders]]\nname = "own"\nbandit = "lints"\n'
        '[[recommenders]]\nname = "everyone"\nbandit = "linucb"\nscope = "everyone"\n'
    )
    with service(path, settings) as client:
        asker = Asker(client, asked)
        for i in range(16):
            arms = [{"id": "a", "x": [1, 0]}, {"id": "b", "x": [0, 2]}, {"id": "c", "x": [0, 0.5]}]
            user = f"v{i % 6}"
            asker.decide(user, f"d{i}", arms=arms)
            for j in range(i % 4):
                asker.reward(f"d{i}", round(chance.random(), 2), **({"reward_id": f"r{j}"} if rule == "sum" else {}))
            if i > 8 and rule == "last":
                asker.reward(f"d{i - 8}", round(chance.random(), 2))
    return asked


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
