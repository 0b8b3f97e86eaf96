"""The routes of the pages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lcb.serve.pages.files import Files
from lcb.serve.pages.operator import Operator
from lcb.serve.pages.study import Study
from lcb.serve.pages.visitors import Visitors
from lcb.serve.web.endpoint import Ask, Handler, Reply, json_reply, refuse_other_sites

if TYPE_CHECKING:
    from lcb.serve.web.app import App


class Pages:
    """What people look at; `stop` ends what runs in the background."""

    def __init__(self, app: App) -> None:
        self.files = Files()
        self.visitors = Visitors(app.service)
        self.study = Study(self.visitors)
        self.operator = Operator(app, self.visitors)

    def start(self) -> None:
        """From inside the event loop."""
        self.study.start()

    async def stop(self) -> None:
        await self.study.stop()

    def routes(self) -> Iterable[tuple[str, str, Handler, str]]:
        """Method, path, function, scope; visitors and operators are known by their cookies."""
        visitors, study, operator = self.visitors, self.study, self.operator
        return [
            ("GET", "/dashboard", self.page("dashboard.html"), ""),
            ("GET", "/users/{user:path}", self.page("story.html"), ""),
            ("GET", "/static/vega.js", operator.vega, ""),
            ("GET", "/page/session", operator.session, ""),
            ("POST", "/page/login", own(operator.login), ""),
            ("POST", "/page/logout", own(operator.logout), ""),
            ("GET", "/page/dashboard/charts", operator.charts, "reader"),
            ("GET", "/page/dashboard/events", operator.events, "reader"),
            ("POST", "/page/dashboard/retrain", own(operator.retrain), "admin"),
            ("POST", "/page/dashboard/activate", own(operator.activate), "admin"),
            ("GET", "/page/users/{user:path}/story", operator.story, "reader"),
            ("POST", "/page/users/{user:path}/verify", own(operator.verify), "reader"),
            ("GET", "/", self.page("index.html"), ""),
            ("GET", "/study", self.page("study.html"), ""),
            ("GET", "/static/{name}", self.file, ""),
            ("GET", "/page/visit", visitors.look, ""),
            ("POST", "/page/visit", own(visitors.visit), ""),
            ("POST", "/page/answer", own(visitors.answer), ""),
            ("GET", "/page/study/results", study.results, ""),
            ("GET", "/page/study/results.csv", study.export, ""),
            ("GET", "/page/study/visitors", self.let_in_so_far, ""),
            ("POST", "/page/study/visitors", own(study.let_in), "writer"),
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
