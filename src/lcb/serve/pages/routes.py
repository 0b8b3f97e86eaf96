"""The routes of all pages."""

from __future__ import annotations

from collections.abc import Iterable
from functools import wraps

from lcb.serve.decide.validation import check_user
from lcb.serve.pages.files import Files
from lcb.serve.pages.operator import ActivateVersion, LoginRequest, Operator
from lcb.serve.pages.study import AddVisitorsRequest, Simulation, Study
from lcb.serve.pages.visitors import AnswerRequest, Visitors, VisitRequest
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
        json, html = "application/json", "text/html"
        log_in, log_out = same_site(operator.login), same_site(operator.logout)
        visit, answer = same_site(visitors.visit), same_site(visitors.answer)
        activate = Call(
            "POST", "/page/dashboard/activate", operator.activate, "admin", ActivateVersion, json, (404, 409)
        )
        add = Call("POST", "/page/study/visitors", study.add_visitors, "writer", AddVisitorsRequest, json, (409,))
        calls = [
            Call("GET", "/dashboard", self.serve_page("dashboard.html"), "", None, html),
            Call("GET", "/users/{user:path}", self.serve_story, "", None, html, (404,)),
            Call("GET", "/static/vega.js", operator.vega, "", None, "text/javascript"),
            Call("GET", "/page/session", operator.session, "", None, json),
            Call("POST", "/page/login", log_in, "", LoginRequest, json, (401, 403), status=204),
            Call("POST", "/page/logout", log_out, "", None, json, (403,), status=204),
            Call("GET", "/page/dashboard/charts", operator.charts, "reader", None, json),
            Call("GET", "/page/dashboard/events", operator.events, "reader", None, "text/event-stream"),
            Call("POST", "/page/dashboard/retrain", operator.retrain, "admin", None, json, (409,), status=202),
            activate,
            Call("GET", "/page/users/{user:path}/story", operator.story, "reader", None, json, (404,)),
            Call("POST", "/page/users/{user:path}/verify", operator.verify, "reader", None, json, (404,)),
            Call("GET", "/", self.serve_page("index.html"), "", None, html),
            Call("GET", "/study", self.serve_page("study.html"), "", None, html),
            Call("GET", "/static/{name}", self.serve_file, "", None, "*/*", (404,)),
            Call("GET", "/page/visit", visitors.get_progress, "", None, json),
            Call("POST", "/page/visit", visit, "", VisitRequest, json, (403, 409)),
            Call("POST", "/page/answer", answer, "", AnswerRequest, json, (403, 404, 410)),
            Call("GET", "/page/study/results", study.results, "", None, json),
            Call("GET", "/page/study/results.csv", study.export, "", None, "text/csv"),
            Call("GET", "/page/study/visitors", self.count_simulated_visitors, "", None, json),
            add._replace(status=202),
        ]
        return [call._replace(is_page=True) for call in calls]

    async def count_simulated_visitors(self, ask: Ask) -> Reply:
        """Return how many of the last simulated visitors are running and done, and whether the client may add more."""
        counts = {"running": self.study.running, "done": self.study.done}
        return json_reply(counts | {"may": self.operator.is_allowed(ask, "writer")})

    def serve_page(self, name: str) -> Handler:
        async def reply(ask: Ask) -> Reply:
            return self.files.reply(name, ask)

        reply.__doc__ = f"Return the page {name}."
        return reply

    async def serve_story(self, ask: Ask) -> Reply:
        """Return the page of a user's story."""
        check_user(ask.path["user"])
        return self.files.reply("story.html", ask)

    async def serve_file(self, ask: Ask) -> Reply:
        """Return a style sheet, script or picture of the pages."""
        return self.files.reply(ask.path["name"], ask)


def same_site(handler: Handler) -> Handler:
    """Wrap a handler to refuse requests that a browser sends for a page of another site."""

    @wraps(handler)
    async def checked(ask: Ask) -> Reply:
        refuse_other_sites(ask.scope)
        return await handler(ask)

    return checked
