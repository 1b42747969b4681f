"""Random requests by the OpenAPI document: every answer is as described, and none is a crash."""

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from hubbub.server.app import make_app
from hubbub.server.openapi import describe_api
from server.hospital import make_token, open_hospital

pytestmark = pytest.mark.long
OPERATIONS = [
    (path, method)
    for path, operations in describe_api()["paths"].items()
    for method in operations
    if method != "parameters"
]


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served") / "hospital"
    service = open_hospital(folder, 'requests_per_minute = 10000000\nallowed_hosts = ["testserver"]')
    yield service
    service.close()


@pytest.mark.parametrize(("path", "method"), OPERATIONS)
def test_requests_by_the_document_are_answered_as_described(service, path, method):
    import schemathesis
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

    schema = schemathesis.openapi.from_asgi("/api/v1/openapi.json", make_app(service))
    token = make_token(service, "ada")
    checks = [
        not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
    ]  # fmt: skip

    @settings(
        max_examples=150, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(case=schema[path][method.upper()].as_strategy())
    def check(case):
        if "dataset" in case.path_parameters:
            case.path_parameters = {**case.path_parameters, "dataset": "visits"}
        case.call_and_validate(headers={"authorization": f"Bearer {token}"}, checks=checks)

    check()
