"""An application over HTTP: rows into topics, reads of views, their changes, health.

`server.py` runs it; `service.py` joins the rest to one ASGI application. What is served is in one
table, `operations.py`, of which the OpenAPI document is made. PURE: operations' descriptions,
`openapi`, `problems`, `questions`, `row_json`, `limits`, `key_journal`. Knows no App: what it
serves comes through `ports.py`. Who sends too much, or may not, is turned away in `guard.py`.
"""
