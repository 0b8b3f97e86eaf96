"""Where the head of a Ray cluster is, whether it answers, and what its refusals mean."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

from lcb.errors import ClusterError, InputError

Head = tuple[str, int]  # host and port
_PROBE_SECONDS = 5.0
_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])  # how gRPC begins: no settings
_SETTINGS = 4  # the kind of frame that a server of HTTP/2 answers first
_NEXT = "start one (docs/cluster.md), or leave out --on"


def find_head(address: str) -> Head:
    """Return host and port of the head of a cluster that answers there."""
    place = address
    if address == "ray":
        place = os.environ.get("RAY_ADDRESS", "")
        current = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray", "ray_current_cluster")
        if place in ("", "auto") and current.exists():
            place = current.read_text().strip()
        if not place:
            raise ClusterError(f"this machine belongs to no Ray cluster; {_NEXT}, or name its head: --on HOST:PORT")
    if place.startswith("ray://"):
        raise InputError(f"{place} is an address of the Ray client; give HOST:PORT of the head, usually port 6379")
    host, _, port = place.rpartition(":")
    if not host or not port.isdecimal():
        raise InputError(f"--on {address}; it is ray, local, or HOST:PORT of the head of a Ray cluster")
    if not answers((host, int(port))):
        raise ClusterError(f"no Ray cluster answers at {place}; {_NEXT}")
    if not _speaks_grpc((host, int(port))):
        raise ClusterError(
            f"what listens at {place} is no Ray cluster; give the port of the head, 6379 unless it was started with "
            "another, not that of the dashboard"
        )
    return host, int(port)


def answers(head: Head) -> bool:
    """Whether something listens there."""
    try:
        with socket.create_connection(head, timeout=_PROBE_SECONDS):
            return True
    except OSError:
        return False


def _speaks_grpc(head: Head) -> bool:
    """Whether a server of gRPC, as the head of a cluster is, listens there; Ray waits for minutes for anything else."""
    if os.environ.get("RAY_USE_TLS", "0") not in ("", "0"):
        return True  # it would want certificates first
    try:
        with socket.create_connection(head, timeout=_PROBE_SECONDS) as probe:
            probe.sendall(_HELLO)
            with probe.makefile("rb") as answer:
                frame = answer.read(9)
    except OSError:
        return False
    return len(frame) == 9 and frame[3] == _SETTINGS


def explain(words: str, head: Head | None) -> ClusterError:
    """Say what to do about an error of Ray."""
    place = "on this machine" if head is None else f"at {head[0]}:{head[1]}"
    versions = re.findall(r"Ray: (\S+)\s+Python: (\S+)", words)
    if "ersion mismatch" in words and len(versions) == 2:
        (there_ray, there), (here_ray, here) = versions
        return ClusterError(
            f"the cluster {place} runs Ray {there_ray} with Python {there}, this is Ray {here_ray} with Python {here}; "
            "use the same versions, or send the command there: ray job submit -- lcb learn ... --on ray"
        )
    if re.search(r"auth|[Tt]oken|UNAUTHENTICATED", words) or (head and "Failed to connect" in words):
        return ClusterError(
            f"the cluster {place} does not accept this process; if it asks for a token, set RAY_AUTH_MODE=token and "
            "RAY_AUTH_TOKEN (or RAY_AUTH_TOKEN_PATH) to what it was started with; else see whether the port is that of "
            "the head, 6379 unless it was started with another"
        )
    first = words.strip().splitlines()[0] if words.strip() else "no reason was given"
    return ClusterError(f"Ray does not start {place}: {first}; see docs/cluster.md")


def describe_version(node: str, there: str, here: str) -> str:
    """Say that a node has another version of lcb."""
    return f"the node {node} has lcb {there}, this is {here}; install the same on every node"
