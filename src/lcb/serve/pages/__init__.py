"""The web pages: the visitors' page, the study, the dashboard and one user's story.

HTML, CSS and JavaScript are files in `static/`; everything is loaded from the service's own host (`security`).
"""
