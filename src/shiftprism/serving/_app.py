"""The HTTP side: routes, documents and pages around a `Service`."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from shiftprism import __version__
from shiftprism._extras import need
from shiftprism.serving._answers import (
    Health,
    Labelled,
    ModelDescription,
    ModelList,
    Predictions,
    ProblemDetails,
    Readiness,
    StreamStatus,
    Truths,
)
from shiftprism.serving._bodies import read_body, read_images, read_json
from shiftprism.serving._guard import App, Guard
from shiftprism.serving._problems import MEDIA_TYPE, Problem, title
from shiftprism.serving._service import Service

if TYPE_CHECKING:
    from fastapi import FastAPI

_PAGES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
_BINARY = {"type": "string", "format": "binary"}
_IMAGES = {
    "required": True,
    "content": {
        "multipart/form-data": {
            "schema": {
                "type": "object",
                "required": ["image"],
                "additionalProperties": False,
                "properties": {"image": {"type": "array", "items": _BINARY, "minItems": 1}},
            }
        },
        "application/json": {
            "schema": {
                "type": "object",
                "required": ["images"],
                "additionalProperties": False,
                "properties": {
                    "images": {"type": "array", "items": {"type": "string", "format": "byte"}, "minItems": 1}
                },
            }
        },
        "application/octet-stream": {"schema": _BINARY},
        "image/png": {"schema": _BINARY},
        "image/jpeg": {"schema": _BINARY},
    },
}


def create_app(service: Service) -> App:
    """The ASGI application of a service."""
    need("fastapi", "serve")
    from fastapi import FastAPI, Request, Response
    from starlette.exceptions import HTTPException

    @asynccontextmanager
    async def lifespan(_: "FastAPI") -> AsyncIterator[None]:
        await service.start()
        yield
        await service.stop()

    app = FastAPI(
        title="ShiftPrism",
        version=__version__,
        summary="Class, calibrated confidence, and whether style or concept of an image has shifted.",
        lifespan=lifespan,
        docs_url=None,  # FastAPI's page loads scripts from elsewhere
        redoc_url=None,
        openapi_url=None,
    )

    def answer(value: Any, status: int = 200) -> Response:
        content = json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
        return Response(content, status, media_type="application/json")

    async def explain_problem(request: Request, error: Exception) -> Response:
        assert isinstance(error, Problem)
        return Response(error.to_bytes(), error.status, error.headers, MEDIA_TYPE)

    async def explain_status(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        problem = Problem(error.status_code, f"{title(error.status_code)}.")
        return Response(problem.to_bytes(), error.status_code, error.headers, MEDIA_TYPE)

    app.add_exception_handler(Problem, explain_problem)
    app.add_exception_handler(HTTPException, explain_status)

    async def predict(request: Request, name: str | None = None) -> Response:
        limits = service.settings
        with service.memory.lease() as lease:
            length = request.headers.get("content-length")
            body = await read_body(_chunks(request), length, lease, limits.body_bytes, limits.time_limit)
            images = await read_images(body, request.headers.get("content-type", ""), limits.max_images)
            request.scope["images"], request.scope["model"] = len(images), service.models.find(name).name
            return answer(await service.predict(name, images, request.scope["request_id"], lease))

    async def label(request: Request, name: str | None = None) -> Response:
        with service.memory.lease() as lease:
            length = request.headers.get("content-length")
            most = min(service.settings.body_bytes, 1 << 21)
            body = await read_body(_chunks(request), length, lease, most, service.settings.time_limit)
            if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
                raise Problem(415, "The Content-Type must be application/json.")
            return answer(await service.label(name, read_json(body)))

    async def status(name: str | None = None) -> Response:
        return answer(await service.status(name))

    async def describe(name: str) -> Response:
        return answer(service.describe(name))

    async def list_models() -> Response:
        return answer({"models": list(service.models.files)})

    async def healthz() -> Response:
        return answer({"status": "ok"})

    async def readyz() -> Response:
        reasons = await service.readiness()
        return answer({"ready": not reasons, "reasons": reasons}, 503 if reasons else 200)

    async def metrics() -> Response:
        return Response(await service.measure(), media_type=service.metrics.media_type)

    truths = {"required": True, "content": {"application/json": {"schema": _schema_of(Truths)}}}
    posts: tuple[tuple[str, Any, Any, dict[str, Any], str], ...] = (
        ("predict", predict, Predictions, _IMAGES, "Predict the classes of images, and say whether to trust them."),
        ("labels", label, Labelled, truths, "Report the true classes of earlier images."),
    )
    for word, handler, shape, body, summary in posts:
        for path in (f"/v1/{word}", f"/v1/models/{{name}}/{word}"):
            route = _hide_name(handler) if "name" not in path else handler
            errors = (400, 404, 408, 413, 415, 422, 503)
            app.post(
                path,
                response_model=shape,
                summary=summary,
                openapi_extra={"requestBody": body},
                responses=_problems(*errors),
                operation_id=_name_operation("post", path),
            )(route)
    gets: tuple[tuple[str, Any, Any, tuple[int, ...], str], ...] = (
        ("/v1/status", status, StreamStatus, (503,), "What the monitor says about the stream, now and over time."),
        ("/v1/models/{name}/status", status, StreamStatus, (404, 503), "What the monitor says about a model's stream."),
        ("/v1/models", list_models, ModelList, (), "The models, the default first."),
        ("/v1/models/{name}", describe, ModelDescription, (404,), "A detector and its in-distribution cloud."),
        ("/healthz", healthz, Health, (), "Whether the process runs. Needs no token."),
        ("/readyz", readyz, Readiness, (), "Whether requests can be answered. Needs no token."),
    )
    for path, handler, shape, more, summary in gets:
        route = _hide_name(handler) if "name" not in path else handler
        responses = _problems(*more) | ({503: {"model": Readiness}} if path == "/readyz" else {})
        operation = _name_operation("get", path)
        app.get(path, response_model=shape, summary=summary, responses=responses, operation_id=operation)(route)
    text: dict[int | str, dict[str, Any]] = {
        200: {"content": {service.metrics.media_type: {"schema": {"type": "string"}}}}
    }
    app.get("/metrics", summary="Numbers for Prometheus.", response_class=Response, responses=_problems() | text)(
        metrics
    )
    _add_pages(app)
    return Guard(app, service.settings, service.tokens, service.metrics)


async def _chunks(request: Any) -> AsyncIterator[bytes]:
    from starlette.requests import ClientDisconnect

    try:
        async for chunk in request.stream():
            yield chunk
    except ClientDisconnect:
        raise Problem(400, "The client has gone before its request was complete.") from None


def _hide_name(handler: Any) -> Any:
    """The handler for the default model: the same without `name`, which would become a query parameter."""
    import functools
    import inspect

    signature = inspect.signature(handler)
    parameters = [each for key, each in signature.parameters.items() if key != "name"]

    @functools.wraps(handler)
    async def without_name(*args: Any, **kwargs: Any) -> Any:
        return await handler(*args, **kwargs)

    without_name.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return without_name


def _name_operation(method: str, path: str) -> str:
    return "_".join([method, *(word.strip("{}") for word in path.split("/") if word)])


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The problems that a route may answer with; these three come from the guard of every route."""
    schema = {"$ref": "#/components/schemas/ProblemDetails"}
    every = {401, 403, 421, 500, *statuses}
    return {
        status: {"description": title(status), "content": {MEDIA_TYPE: {"schema": schema}}} for status in sorted(every)
    }


def _schema_of(shape: Any) -> dict[str, Any]:
    """The JSON schema of a dataclass, with everything that it refers to inside."""
    schema: dict[str, Any] = need("pydantic", "serve").TypeAdapter(shape).json_schema()
    definitions = schema.pop("$defs", {})

    def resolve(value: Any) -> Any:
        if isinstance(value, dict):
            if "$ref" in value:
                return resolve(definitions[value["$ref"].rpartition("/")[2]])
            return {key: resolve(each) for key, each in value.items()}
        return [resolve(each) for each in value] if isinstance(value, list) else value

    resolved: dict[str, Any] = resolve(schema)
    return resolved


def describe_api(app: "FastAPI") -> dict[str, Any]:
    """The OpenAPI document, with the problem that every route refers to."""
    document = app.openapi()
    document["components"]["schemas"]["ProblemDetails"] = _schema_of(ProblemDetails)
    document["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{}, {"bearer": []}]
    for path in ("/healthz", "/readyz"):
        for operation in document["paths"][path].values():
            operation["security"] = [{}]
    return document


def _add_pages(app: "FastAPI") -> None:
    """The page with its files, and the description of the API; read once, from the package."""
    from fastapi import Response

    folder = files("shiftprism.serving").joinpath("page")
    document = describe_api(app)
    pages = {path: (folder.joinpath(name).read_bytes(), media) for path, (name, media) in _PAGES.items()}
    pages["/openapi.json"] = json.dumps(document, ensure_ascii=False).encode(), "application/json"
    pages["/docs"] = _draw_api(document).encode(), "text/html; charset=utf-8"
    for path, (content, media) in pages.items():

        async def send_page(content: bytes = content, media: str = media) -> Response:
            return Response(content, media_type=media)

        app.router.add_route(path, _ignore_request(send_page), methods=["GET"], include_in_schema=False)


def _ignore_request(handler: Any) -> Any:
    async def respond(_: Any) -> Any:
        return await handler()

    return respond


def _draw_api(document: dict[str, Any]) -> str:
    """The API as a plain page."""
    rows = []
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            statuses = ", ".join(sorted(operation["responses"]))
            rows.append(
                f"<tr><th scope=row><code>{method.upper()} {escape(path)}</code></th>"
                f"<td>{escape(operation['summary'])}</td><td>{escape(statuses)}</td></tr>"
            )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>ShiftPrism: the HTTP interface</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="/icon.svg">'
        '<link rel="stylesheet" href="/page.css">'
        f"</head><body><main><h1>The HTTP interface</h1><p>{escape(document['info']['summary'])} "
        'The whole description, for machines: <a href="/openapi.json">openapi.json</a>.</p>'
        '<div class="wide" tabindex="0" role="region" aria-label="Routes"><table><thead><tr><th scope=col>Route</th>'
        "<th scope=col>What it does</th><th scope=col>Answers</th></tr></thead>"
        f"<tbody>{''.join(rows)}</tbody></table></div></main></body></html>"
    )
