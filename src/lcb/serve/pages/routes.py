"""The routes of all pages."""

from __future__ import annotations

from collections.abc import Iterable

from lcb.serve.pages.files import Files
from lcb.serve.pages.operator import Operator
from lcb.serve.pages.study import Simulation, Study
from lcb.serve.pages.visitors import Visitors
from lcb.serve.web.app import App
from lcb.serve.web.endpoint import Ask, Call, Handler, Reply, Scope, json_reply, refuse_other_sites


class Pages:
    """The visitors' page, the study and the operator's pages, as an extension of the application."""

    def __init__(self, app: App, simulation: Simulation | None = None) -> None:
        self.files = Files()
        self.visitors = Visitors(app.service)
        self.study = Study(self.visitors, simulation)
        self.operator = Operator(app, self.visitors)

    def start(self) -> None:
        """Start background work; called inside the event loop."""
        self.study.start()

    async def stop(self) -> None:
        await self.study.stop()

    def check_session(self, scope: Scope, needed: str) -> str | None:
        return self.operator.check_session(scope, needed)

    def routes(self) -> Iterable[Call]:
        """All routes of the pages; visitors and operators are identified by cookies."""
        visitors, study, operator = self.visitors, self.study, self.operator
        return [
            Call("GET", "/dashboard", self.serve_page("dashboard.html"), ""),
            Call("GET", "/users/{user:path}", self.serve_page("story.html"), ""),
            Call("GET", "/static/vega.js", operator.vega, ""),
            Call("GET", "/page/session", operator.session, ""),
            Call("POST", "/page/login", same_site(operator.login), ""),
            Call("POST", "/page/logout", same_site(operator.logout), ""),
            Call("GET", "/page/dashboard/charts", operator.charts, "reader"),
            Call("GET", "/page/dashboard/events", operator.events, "reader"),
            Call("POST", "/page/dashboard/retrain", operator.retrain, "admin"),
            Call("POST", "/page/dashboard/activate", operator.activate, "admin"),
            Call("GET", "/page/users/{user:path}/story", operator.story, "reader"),
            Call("POST", "/page/users/{user:path}/verify", operator.verify, "reader"),
            Call("GET", "/", self.serve_page("index.html"), ""),
            Call("GET", "/study", self.serve_page("study.html"), ""),
            Call("GET", "/static/{name}", self.serve_file, ""),
            Call("GET", "/page/visit", visitors.get_progress, ""),
            Call("POST", "/page/visit", same_site(visitors.visit), ""),
            Call("POST", "/page/answer", same_site(visitors.answer), ""),
            Call("GET", "/page/study/results", study.results, ""),
            Call("GET", "/page/study/results.csv", study.export, ""),
            Call("GET", "/page/study/visitors", self.count_simulated_visitors, ""),
            Call("POST", "/page/study/visitors", study.add_visitors, "writer"),
        ]

    async def count_simulated_visitors(self, ask: Ask) -> Reply:
        """Return how many of the last simulated visitors are running and done, and whether the client may add more."""
        counts = {"running": self.study.running, "done": self.study.done}
        return json_reply(counts | {"may": self.operator.is_allowed(ask, "writer")})

    def serve_page(self, name: str) -> Handler:
        async def reply(ask: Ask) -> Reply:
            return self.files.reply(name, ask)

        return reply

    async def serve_file(self, ask: Ask) -> Reply:
        return self.files.reply(ask.path["name"], ask)


def same_site(handler: Handler) -> Handler:
    """Wrap a handler to refuse requests that a browser sends for a page of another site."""

    async def checked(ask: Ask) -> Reply:
        refuse_other_sites(ask.scope)
        return await handler(ask)

    return checked
