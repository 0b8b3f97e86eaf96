"""The pages in a browser: what draws their charts (`bundle`), the charts themselves (`specs`), and static files.

Everything comes from the service's own host, and runs under `default-src 'self'` without unsafe words.
"""
