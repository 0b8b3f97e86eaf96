"""Ten services side by side, started as the template unit starts them: memory and CPU of each while it is idle.

    python benchmarks/several.py [--services 10] [--seconds 10]

Each has its own settings, store, key, port and dashboard.  Before measuring, each makes a decision with its own key,
refuses the key of its neighbour, and shows its dashboard's sign-in.  Read from /proc: memory (RSS), that of the process
alone (USS: private pages), and the share of a core.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

UNIT = Path(__file__).parents[1] / "deploy" / "lcb@.service"
NAMES = ["shop", "news", "music", "films", "books", "games", "travel", "recipes", "sports", "radio"]
LCB = Path(sys.executable).parent / "lcb"
ASK = b'{"user": "ann", "arms": [{"id": "a", "x": [1, 0]}, {"id": "b", "x": [0, 1]}]}'


def read_unit(name: str, folder: Path) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment of the template unit, with its folders below `folder`."""
    text = UNIT.read_text().replace("%i", name)
    command = re.search(r"^ExecStart=(.+)$", text, re.MULTILINE)[1].replace("/opt/lcb/bin/lcb", str(LCB))
    given = re.search(r"^Environment=(.+)$", text, re.MULTILINE)[1]
    for place in ("/etc/lcb", "/var/lib/lcb", "/var/cache/lcb"):
        command, given = (one.replace(place, f"{folder}{place}") for one in (command, given))
    return command.split(), {**os.environ, **dict(one.split("=", 1) for one in given.split())}


def start(name: str, port: int, folder: Path, pages: bool) -> tuple[subprocess.Popen[bytes], str]:
    """Start one service; return it and its key."""
    command, env = read_unit(name, folder)
    for variable in ("LCB_STORE", "NUMBA_CACHE_DIR"):
        Path(env[variable]).parent.mkdir(parents=True, exist_ok=True)
    settings = Path(command[-1])
    settings.parent.mkdir(parents=True, exist_ok=True)
    settings.write_text(f"port = {port}\npages = {str(pages).lower()}\n")
    made = subprocess.run([LCB, "keys", "create", name, "--scope", "writer"], env=env, capture_output=True, check=True)
    key = made.stdout.decode().split()[-1]
    return subprocess.Popen(command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL), key


def ask(port: int, path: str, key: str, body: bytes | None = None) -> int:
    """Return the status of a request."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def wait_for(port: int) -> None:
    for _ in range(1200):
        try:
            if ask(port, "/readyz", "") == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    sys.exit(f"no service on port {port} after two minutes; start one by hand and look at its log")


def read_memory(pid: int) -> tuple[float, float]:
    """Return the megabytes of a process, and of these those that it shares with nobody."""
    sums: dict[str, int] = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, size = line.split()[:2]
        sums[name] = int(size)
    return sums["Rss:"] / 1024, (sums["Private_Clean:"] + sums["Private_Dirty:"]) / 1024


def read_cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def find_ports(n: int) -> list[int]:
    probes = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [probe.getsockname()[1] for probe in probes]
    for probe in probes:
        probe.close()
    return ports


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--services", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--no-pages", action="store_true")
    given = parser.parse_args()
    names, running = NAMES[: given.services], []
    with tempfile.TemporaryDirectory() as folder:
        try:
            ports, keys = find_ports(len(names)), []
            for name, port in zip(names, ports, strict=True):
                process, key = start(name, port, Path(folder), not given.no_pages)
                running.append(process)
                keys.append(key)
            for i, port in enumerate(ports):
                wait_for(port)
                own, other = (ask(port, "/v1/decisions", key, ASK) for key in (keys[i], keys[i - 1]))
                page = ask(port, "/dashboard", "")
                wanted = (200, 401 if len(keys) > 1 else 200, 404 if given.no_pages else 200)
                if (own, other, page) != wanted:
                    sys.exit(
                        f"{names[i]}: own key, other key, dashboard answered {own}, {other}, {page}; wanted {wanted}"
                    )
            before = [read_cpu(one.pid) for one in running]
            time.sleep(given.seconds)
            shares = [(read_cpu(one.pid) - was) / given.seconds for one, was in zip(running, before, strict=True)]
            memory = [read_memory(one.pid) for one in running]
            total, alone = ([one[i] for one in memory] for i in range(2))
            words = f"{statistics.median(total):.0f} MB, {statistics.median(alone):.0f} MB of it its own"
            print(f"{len(running)} services, each with its key, port and dashboard; the median takes {words},")
            share, together = 100 * statistics.median(shares), sum(alone) + total[0] - alone[0]
            print(f"and {share:.1f} % of a core; all together {together:.0f} MB")
        finally:
            for one in running:
                one.send_signal(signal.SIGTERM)
            for one in running:
                one.wait(30)


if __name__ == "__main__":
    main()
