"""schemathesis on the OpenAPI document: no 5xx, and every answer is one that the document describes."""

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from serving_examples import Running, run_service

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of its own dependencies
    import schemathesis
    from schemathesis import GenerationMode
    from schemathesis.checks import not_a_server_error
    from schemathesis.core.result import Ok
    from schemathesis.specs.openapi.checks import (
        content_type_conformance,
        response_schema_conformance,
        status_code_conformance,
    )

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with run_service(tmp_path_factory.mktemp("schema"), max_body=1) as service:
        yield service


CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


@pytest.mark.parametrize("mode", list(GenerationMode))
def test_answers_are_as_described(running: Running, mode: GenerationMode) -> None:
    """Requests that fit the document, and requests that do not. `schemathesis run URL/openapi.json` makes thousands."""
    base = f"http://127.0.0.1:{running.client.port}"
    schema = schemathesis.openapi.from_url(f"{base}/openapi.json")
    operations = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    asked = set()
    for operation in operations:
        if mode is GenerationMode.NEGATIVE and not len(operation.body):
            continue  # nothing in it can be wrong

        @given(case=operation.as_strategy(generation_mode=mode))
        @settings(max_examples=10, suppress_health_check=list(HealthCheck), database=None)
        def ask(case: "schemathesis.Case[Any]") -> None:
            asked.add((case.method, case.path))
            case.call_and_validate(base_url=base, checks=CHECKS)

        ask()
    assert len(asked) == (11 if mode is GenerationMode.POSITIVE else 4)
