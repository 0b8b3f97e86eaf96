"""The routes of the pages."""

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
            Call("GET", "/dashboard", self.page("dashboard.html"), ""),
            Call("GET", "/users/{user:path}", self.page("story.html"), ""),
            Call("GET", "/static/vega.js", operator.vega, ""),
            Call("GET", "/page/session", operator.session, ""),
            Call("POST", "/page/login", own(operator.login), ""),
            Call("POST", "/page/logout", own(operator.logout), ""),
            Call("GET", "/page/dashboard/charts", operator.charts, "reader"),
            Call("GET", "/page/dashboard/events", operator.events, "reader"),
            Call("POST", "/page/dashboard/retrain", own(operator.retrain), "admin"),
            Call("POST", "/page/dashboard/activate", own(operator.activate), "admin"),
            Call("GET", "/page/users/{user:path}/story", operator.story, "reader"),
            Call("POST", "/page/users/{user:path}/verify", own(operator.verify), "reader"),
            Call("GET", "/", self.page("index.html"), ""),
            Call("GET", "/study", self.page("study.html"), ""),
            Call("GET", "/static/{name}", self.file, ""),
            Call("GET", "/page/visit", visitors.look, ""),
            Call("POST", "/page/visit", own(visitors.visit), ""),
            Call("POST", "/page/answer", own(visitors.answer), ""),
            Call("GET", "/page/study/results", study.results, ""),
            Call("GET", "/page/study/results.csv", study.export, ""),
            Call("GET", "/page/study/visitors", self.let_in_so_far, ""),
            Call("POST", "/page/study/visitors", own(study.let_in), "writer"),
        ]

    async def let_in_so_far(self, ask: Ask) -> Reply:
        """How many, and whether the one who asks may let in more."""
        return json_reply(self.study.count() | {"may": self.operator.may(ask, "writer")})

    def page(self, name: str) -> Handler:
        async def reply(ask: Ask) -> Reply:
            return self.files.reply(name, ask)

        return reply

    async def file(self, ask: Ask) -> Reply:
        return self.files.reply(ask.path["name"], ask)


def own(handler: Handler) -> Handler:
    """Only for our own pages: a browser that comes from elsewhere says so."""

    async def checked(ask: Ask) -> Reply:
        refuse_other_sites(ask.scope)
        return await handler(ask)

    return checked
