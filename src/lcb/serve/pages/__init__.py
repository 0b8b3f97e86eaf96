"""The pages people look at: files in `static/` served as they are, the headlines, the words and the charts they need.

Everything comes from the service's own host, and runs under a policy that lets nothing in from elsewhere.
"""
