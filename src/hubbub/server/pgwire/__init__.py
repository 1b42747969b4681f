"""The PostgreSQL wire: psql, notebooks, DBeaver and every driver ask through it. No dependency of its own.

`listener` accepts connections and signs people in (`scram`); `session` speaks the protocol (`messages`,
`statements`, `values`, `variables`, `copy_formats`); `query_routing` takes each query to the service, or to
the catalogs (`catalog`, `catalog_sql`), which hold what is declared and nothing else.
"""
