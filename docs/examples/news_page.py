"""A news page that asks a decision service which story to lead with, and works without it too.

    lcb serve                                  the service, in one terminal
    python docs/examples/news_page.py          the page, in another; open http://127.0.0.1:8080

LCB_URL is the address of a service elsewhere, LCB_KEY a key for it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from html import escape

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from lcb import AsyncClient
from lcb.client import Item, ServiceError, Unreachable

SECTIONS = ("world", "sport", "science", "culture")
log = logging.getLogger("news_page")


@dataclass(frozen=True)
class Story:
    id: str
    section: str
    headline: str

    @property
    def x(self) -> tuple[float, ...]:
        """The features of a story: its section, one-hot."""
        return tuple(float(self.section == section) for section in SECTIONS)


STORIES = {
    story.id: story
    for story in (
        Story("harbour", "world", "Harbour reopens after a year of repairs"),
        Story("relay", "sport", "Relay team wins by a hand's breadth"),
        Story("comet", "science", "A comet to be seen without a telescope"),
        Story("opera", "culture", "The opera house lowers its prices"),
    )
}
EDITORS_CHOICE = "harbour"


class Advice:
    """The decision service: a client with a short timeout asks it, a patient one reports to it."""

    def __init__(self, url: str, key: str | None, patience: float) -> None:
        self.quick = AsyncClient(url, key, timeout=patience, deadline=patience, retries=0)
        self.patient = AsyncClient(url, key, timeout=5, deadline=30)
        self.later: asyncio.Queue[Callable[[], Awaitable[object]]] = asyncio.Queue(maxsize=10_000)

    async def lead(self, reader: str) -> tuple[Story, str]:
        """Return the lead story and the decision id; the editor's story if the service does not answer in time."""
        try:
            decision = await self.quick.decide(reader, list(STORIES))
            return STORIES[decision.arm], decision.decision_id
        except (ServiceError, Unreachable) as error:
            log.warning("the editor decides: %s", error)
        id = secrets.token_hex(13)
        shown = {"chosen": EDITORS_CHOICE, "chosen_propensity": 1.0, "decision_id": id}
        self.tell(partial(self.patient.decide, reader, list(STORIES), **shown))
        return STORIES[EDITORS_CHOICE], id

    def reward(self, decision_id: str, reward: float) -> None:
        self.tell(partial(self.patient.rewards, {decision_id: reward}))

    def tell(self, message: Callable[[], Awaitable[object]]) -> None:
        """Queue a message to the service; messages are sent in order, in the background."""
        try:
            self.later.put_nowait(message)
        except asyncio.QueueFull:
            log.error("10,000 messages wait for the service; one is dropped")

    async def send_queued(self) -> None:
        while True:
            message = await self.later.get()
            await self._send(message)
            self.later.task_done()

    async def _send(self, message: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await message()
                return
            except (ServiceError, Unreachable) as error:
                if not error.again:
                    log.error("refused: %s", error)
                    return
                await asyncio.sleep(0.5)


def news_page(url: str, key: str | None = None, patience: float = 0.05) -> Starlette:
    """Return the page as an ASGI application; the service may stop and start meanwhile."""
    advice = Advice(url, key, patience)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        items = [Item(story.id, x=story.x, title=story.headline) for story in STORIES.values()]
        advice.tell(partial(advice.patient.put_items, items, replace=True))
        sender = asyncio.create_task(advice.send_queued())
        yield
        sender.cancel()
        await advice.quick.close()
        await advice.patient.close()

    async def front(request: Request) -> Response:
        reader = request.cookies.get("reader") or secrets.token_hex(16)
        story, decision_id = await advice.lead(reader)
        words = {"id": story.id, "headline": escape(story.headline), "section": story.section}
        answer = HTMLResponse(FRONT.format(**words, decision=escape(decision_id)))
        answer.set_cookie("reader", reader, max_age=31_536_000, httponly=True, samesite="lax")
        return answer

    async def story(request: Request) -> Response:
        found = STORIES.get(request.path_params["id"])
        if found is None:
            return HTMLResponse("no such story", 404)
        return HTMLResponse(f"<!doctype html><title>{found.headline}</title><h1>{escape(found.headline)}</h1>")

    async def beacon(request: Request) -> Response:
        """`navigator.sendBeacon` posts the decision id here; the path says whether the story was read."""
        body = await request.body()
        if len(body) > 64:
            return Response(status_code=413)
        advice.reward(body.decode(errors="replace"), 1.0 if request.url.path == "/read" else 0.0)
        return Response(status_code=204)

    async def script(request: Request) -> Response:
        return Response(SCRIPT, media_type="text/javascript")

    routes = [
        Route("/", front),
        Route("/story/{id}", story),
        Route("/beacon.js", script),
        Route("/read", beacon, methods=["POST"]),
        Route("/left", beacon, methods=["POST"]),
    ]
    return Starlette(routes=routes, lifespan=lifespan)


FRONT = """<!doctype html>
<html lang="en">
<title>The Daily Arm</title>
<script type="module" src="/beacon.js"></script>
<h1>The Daily Arm</h1>
<p>{section}</p>
<h2><a id="lead" href="/story/{id}" data-decision="{decision}">{headline}</a></h2>
</html>
"""
SCRIPT = """const lead = document.getElementById("lead");
let read = false;
lead.addEventListener("click", () => {
  read = true;
  navigator.sendBeacon("/read", lead.dataset.decision);
});
window.addEventListener("pagehide", () => {
  if (!read) navigator.sendBeacon("/left", lead.dataset.decision);
});
"""

if __name__ == "__main__":
    import uvicorn

    uvicorn.run(news_page(os.environ.get("LCB_URL", "http://127.0.0.1:8000"), os.environ.get("LCB_KEY")), port=8080)
