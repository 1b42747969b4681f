"""The OpenAPI document of the REST interface, served at `/api/v1/openapi.json`."""

from typing import Any

__all__ = ["describe_api"]

_TEXT: dict[str, Any] = {"type": "string"}
_NUMBER = {
    "description": "A number; as a text it is exact, also as a fraction such as 1/10.",
    "oneOf": [{"type": "number"}, {"type": "string", "maxLength": 100}],
}
_FLAG = {"type": "boolean"}
_COUNT = {"type": "integer", "minimum": 1, "maximum": (1 << 20) - 1}
_QUESTION_FIELDS: dict[str, Any] = {
    "sql": {"type": "string", "maxLength": 100_000, "description": "One SELECT statement."},
    "epsilon": {**_NUMBER, "description": "The privacy cost ε of the whole query; or give error."},
    "error": {
        "type": "object",
        "additionalProperties": _NUMBER,
        "description": "Half-widths of confidence intervals by output: the least ε that keeps them is found.",
    },
    "delta": {**_NUMBER, "description": "The additive slack δ."},
    "rows_per_unit": _COUNT,
    "groups_per_unit": _COUNT,
    "rows_per_group": _COUNT,
    "bounds": {"type": "object", "description": 'Public bounds of columns: [low, high], or "auto".'},
    "keys": {
        "type": "object",
        "additionalProperties": {"type": "array"},
        "description": "Public group keys of columns.",
    },
    "confidence": {**_NUMBER, "description": "The confidence level of the intervals."},
    "bounding_report": _FLAG,
    "intervals": _FLAG,
    "allow_large_epsilon": _FLAG,
    "deadline": {
        "type": "number",
        "exclusiveMinimum": 0,
        "description": "Seconds after which the answer may leave.",
    },
}
_SCHEMAS: dict[str, Any] = {
    "Question": {
        "type": "object",
        "required": ["sql"],
        "additionalProperties": False,
        "properties": _QUESTION_FIELDS,
    },
    "RunRequest": {
        "type": "object",
        "required": ["sql"],
        "additionalProperties": False,
        "properties": {
            **_QUESTION_FIELDS,
            "again": {**_FLAG, "description": "Charge anew a question that failed."},
        },
    },
    "TokenRequest": {
        "type": "object",
        "required": ["name"],
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 100},
            "datasets": {"type": "array", "items": _TEXT, "description": "Where it may be used."},
            "role": {"enum": ["reader", "analyst", "owner"], "description": "The most that it allows."},
            "epsilon": {**_NUMBER, "description": "The most ε that may be spent through it."},
            "days": {"type": "number", "exclusiveMinimum": 0, "maximum": 366},
        },
    },
    "Error": {
        "type": "object",
        "required": ["error"],
        "properties": {
            "error": {
                "type": "object",
                "required": ["code", "what", "why", "fix", "parameter"],
                "properties": {
                    **dict.fromkeys(("code", "what", "why", "fix"), _TEXT),
                    "parameter": {"type": ["string", "null"]},
                },
            }
        },
    },
    "Plan": {
        "type": "object",
        "required": ["dataset", "epsilon", "delta", "errors", "columns", "deadline", "loss", "is_asked"],
        "properties": {"dataset": _TEXT, "epsilon": _TEXT, "delta": _TEXT, "columns": {"type": "array"}},
    },
    "Answer": {
        "type": "object",
        "required": ["dataset", "sql", "entry", "timestamp", "is_new", "loss", "result"],
        "properties": {"entry": {"type": "integer"}, "is_new": _FLAG, "result": {"type": "object"}},
    },
    "Object": {"type": "object"},
}
_ERRORS = {
    400: "a parameter cannot be used",
    401: "nobody is signed in",
    402: "it does not fit the budget; nothing was charged",
    403: "this person may not do that",
    404: "there is no such thing, or it is not for this person",
    409: "the idempotency key names another request",
    413: "the request is too large",
    415: "the request is not JSON",
    422: "refused or unsupported: it would not be private, or not exact",
    429: "too many requests",
    500: "the stored outcome of the charge is a failure, or the server failed",
    503: "not now; nothing was charged",
}
_BINARY = {"schema": {"type": "string", "format": "binary"}}
_TABLE_FORMATS = {
    "text/csv": {"schema": _TEXT},
    "application/vnd.apache.parquet": _BINARY,
    "application/vnd.apache.arrow.stream": _BINARY,
    "image/svg+xml": {"schema": _TEXT},
}


def _answer(schema: str, text: str, *, is_table: bool = False) -> dict[str, Any]:
    json_form = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {"description": text, "content": {**json_form, **(_TABLE_FORMATS if is_table else {})}}


def _parameter(name: str, place: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": schema}


_PLACES = {
    "dataset": _parameter("dataset", "path", _TEXT),
    "entry": _parameter("entry", "path", {"type": "integer", "minimum": 1}),
    "token_id": _parameter("token_id", "path", _TEXT),
}


def _operation(
    name: str,
    summary: str,
    answer: dict[str, Any],
    errors: tuple[int, ...],
    *,
    status: int = 200,
    body: str | None = None,
    parameters: tuple[dict[str, Any], ...] = (),
    is_open: bool = False,
    takes_password: bool = False,
) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    every = sorted({401, 429, 503, *errors})
    schemes: list[dict[str, list[str]]] = [{"token": []}]
    if takes_password:
        schemes.append({"password": []})
    out: dict[str, Any] = {
        "operationId": name,
        "summary": summary,
        "security": [{}, *schemes] if is_open else schemes,
        "responses": {
            str(status): answer,
            **{str(each): {"description": _ERRORS[each], "content": error} for each in every},
        },
    }
    if parameters:
        out["parameters"] = list(parameters)
    if body is not None:
        schema = {"$ref": f"#/components/schemas/{body}"}
        out["requestBody"] = {"required": True, "content": {"application/json": {"schema": schema}}}
    return out


_QUESTION_ERRORS = (400, 402, 403, 404, 413, 415, 422, 500)
_KEY = _parameter("Idempotency-Key", "header", {"type": "string", "minLength": 1, "maxLength": 255})
_PATHS: dict[str, dict[str, Any]] = {
    "/api/v1/datasets": {
        "get": _operation("listDatasets", "The datasets one has a role in", _answer("Object", "datasets"), ())
    },
    "/api/v1/functions": {
        "get": _operation("listFunctions", "The SQL functions", _answer("Object", "functions"), ())
    },
    "/api/v1/datasets/{dataset}": {
        "get": _operation(
            "describeDataset",
            "What is declared: tables, unit, bounds, keys; never rows",
            _answer("Object", "declarations"),
            (403, 404),
        )
    },
    "/api/v1/datasets/{dataset}/plan": {
        "post": _operation(
            "planQuestion",
            "Cost, expected error and columns of an answer; free, reads no row",
            _answer("Plan", "the plan"),
            _QUESTION_ERRORS,
            body="Question",
        )
    },
    "/api/v1/datasets/{dataset}/run": {
        "post": _operation(
            "askQuestion",
            "Charge, run and return a question; the same again is free",
            _answer("Answer", "the answer", is_table=True),
            (*_QUESTION_ERRORS, 409),
            body="RunRequest",
            parameters=(_KEY,),
        )
    },
    "/api/v1/datasets/{dataset}/history": {
        "get": _operation(
            "listHistory",
            "Charged questions, the latest first",
            _answer("Object", "history"),
            (400, 403, 404),
            parameters=(
                _parameter("before", "query", {"type": "integer", "minimum": 1}),
                _parameter("limit", "query", {"type": "integer", "minimum": 1, "maximum": 1000}),
            ),
        )
    },
    "/api/v1/datasets/{dataset}/history/{entry}": {
        "get": _operation(
            "showAnswer",
            "A stored answer again, free",
            _answer("Answer", "the answer", is_table=True),
            (400, 403, 404, 500),
        )
    },
    "/api/v1/datasets/{dataset}/budget": {
        "get": _operation(
            "showBudget", "What is spent and left", _answer("Object", "budget"), (403, 404, 422)
        )
    },
    "/api/v1/datasets/{dataset}/label": {
        "get": _operation(
            "showLabel", "The privacy label", _answer("Object", "label"), (403, 404), is_open=True
        )
    },
    "/api/v1/datasets/{dataset}/publications": {
        "get": _operation(
            "listPublications",
            "Releases that the owner published",
            _answer("Object", "publications"),
            (403, 404),
            is_open=True,
        )
    },
    "/api/v1/datasets/{dataset}/publications/{entry}": {
        "get": _operation(
            "showPublication",
            "A published release",
            _answer("Object", "the table", is_table=True),
            (400, 403, 404, 422),
            is_open=True,
        )
    },
    "/api/v1/tokens": {
        "get": _operation(
            "listTokens",
            "One's own tokens, without their secrets",
            _answer("Object", "tokens"),
            (),
            takes_password=True,
        ),
        "post": _operation(
            "makeToken",
            "Make a token, with user and password; its secret is shown once",
            _answer("Object", "the token with its secret"),
            (400, 403, 413, 415),
            status=201,
            body="TokenRequest",
            takes_password=True,
        ),
    },
    "/api/v1/tokens/{token_id}": {
        "delete": _operation(
            "revokeToken",
            "Revoke a token of one's own, with user and password; a token revokes itself alone",
            {"description": "it is revoked"},
            (400, 403),
            status=204,
            takes_password=True,
        )
    },
}


def describe_api() -> dict[str, Any]:
    """Return the OpenAPI document."""
    paths = {}
    for path, operations in _PATHS.items():
        places = [place for name, place in _PLACES.items() if f"{{{name}}}" in path]
        paths[path] = {**operations, **({"parameters": places} if places else {})}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hubbub",
            "version": "1",
            "description": "Private answers about tables; every charge is durable before anything runs.",
        },
        "paths": paths,
        "components": {
            "schemas": _SCHEMAS,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "password": {"type": "http", "scheme": "basic"},
            },
        },
    }
