"""The HTTP API: routes, keys, rate limits, OpenAPI."""
