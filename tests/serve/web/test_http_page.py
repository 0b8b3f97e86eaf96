"""The examples of docs/http.md are sent to a service, and it answers what the page shows (... stands for anything)."""

from __future__ import annotations

import asyncio
import re
import shlex
from pathlib import Path

from lcb.serve.config.settings import Settings
from support.http_inside import inside

PAGE = Path(__file__).parents[3] / "docs" / "http.md"


def examples() -> list[tuple[str, str]]:
    """Command and expected answer of every `$ curl` line."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", PAGE.read_text(), flags=re.DOTALL):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, answer = part.partition("\n")
            found.append((command, answer.strip()))
    return found


def parsed(command: str) -> tuple[str, str, str | None]:
    """Method, path and body of a line of curl."""
    words = shlex.split(command)
    assert words.pop(0) == "curl"
    method, path, body = None, "", None
    while words:
        word = words.pop(0)
        if word == "-X":
            method = words.pop(0)
        elif word == "-d":
            body = words.pop(0)
        else:
            path = word.removeprefix("localhost:8000")
    return method or ("GET" if body is None else "POST"), path, body


def test_the_page_shows_what_the_service_answers(tmp_path):
    async def ask() -> None:
        settings = Settings(store=str(tmp_path / "lcb.db"), categories=("sport", "arts", "science"))
        async with inside(settings) as (_, client):
            for command, expected in examples():
                method, path, body = parsed(command)
                answer = await client.request(method, path, content=body)
                pattern = ".*".join(re.escape(piece) for piece in expected.split("..."))
                assert re.fullmatch(pattern, answer.text), f"$ {command}\nanswers\n{answer.text}\nnot\n{expected}"

    assert len(examples()) == 20
    asyncio.run(ask())
