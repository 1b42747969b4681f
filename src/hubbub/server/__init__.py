"""`hubbub serve`: one process beside the data, through which a team asks. Rows, noise and budget stay in it.

The doors (`rest`, the PostgreSQL wire, the console, MCP) hold no logic: they sign somebody in, call
`service.Service` and render what it returns. Nothing else is imported here: starlette is an extra.
"""
