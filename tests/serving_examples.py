"""A running service for tests: a real server on a free port, in a thread or in a process of its own."""

import base64
import http.client
import io
import json
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from postgres import free_port
from shiftprism.serving import Detector, Service, Settings, make_server
from shiftprism.verdicts import KINDS, Reference, Verdicts


@dataclass
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Client:
    """Speaks to a service; one connection for each request."""

    port: int
    token: str | None = None

    def ask(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        own = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        try:
            connection.request(method, path, body, own | dict(headers or {}))
            response = connection.getresponse()
            return Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        finally:
            connection.close()

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})

    def post_json(self, path: str, value: Any) -> Answer:
        return self.ask("POST", path, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def predict(self, *images: bytes, path: str = "/v1/predict") -> Answer:
        return self.post_json(path, {"images": [base64.b64encode(image).decode() for image in images]})

    def predict_form(self, *images: bytes, name: str = "image") -> Answer:
        boundary = uuid.uuid4().hex
        head = f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"; filename="x.png"\r\n\r\n'.encode()
        body = b"".join(head + image + b"\r\n" for image in images) + f"--{boundary}--\r\n".encode()
        content_type = f"multipart/form-data; boundary={boundary}"
        return self.ask("POST", "/v1/predict", body, {"Content-Type": content_type})


def png(pixels: "NDArray[np.uint8]") -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def made_picture(seed: int = 0, size: int = 16, brightness: float = 128.0) -> bytes:
    pixels = np.random.default_rng(seed).normal(brightness, 20, (size, size, 3))
    return png(pixels.clip(0, 255).astype(np.uint8))


class Brightness:
    """A detector by closed form, for tests of the service alone: brightness is its style, contrast its concept."""

    names = ("dark", "bright")
    fingerprint = "brightness-1"
    size: tuple[int, int | None, int | None] = (3, None, None)

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        held_out = self._scores(rng.normal(128, 20, (400, 3, 16, 16)).clip(0, 255))
        self._held_out = held_out
        edges: Any = [np.sort(each)[::8] for each in self._scores(rng.normal(128, 20, (400, 3, 16, 16)).clip(0, 255))]
        counts: Any = [
            np.bincount(np.searchsorted(edge, each), minlength=len(edge) + 1)[None]
            for edge, each in zip(edges, held_out, strict=True)
        ]
        points = np.stack(held_out, 1)
        self.reference = Reference._make((self.fingerprint, self.names, *edges, *counts, points, 0.05, 0.9, True))

    @staticmethod
    def _scores(images: "NDArray[Any]") -> "tuple[NDArray[np.float64], NDArray[np.float64]]":
        values = images.astype(np.float64)
        return -abs(values.mean((1, 2, 3)) - 128), -abs(values.std((1, 2, 3)) - 20)

    def __call__(self, images: "NDArray[np.uint8]") -> Verdicts:
        scores = self._scores(images)
        p_covariate, p_concept = (
            (1 + np.searchsorted(np.sort(known), each, side="right")) / (len(known) + 1)
            for known, each in zip(self._held_out, scores, strict=True)
        )
        combined = np.minimum(2 * np.minimum(p_covariate, p_concept), 1)
        kind = np.where(combined > 0.05, KINDS[0], np.where(p_covariate <= p_concept, KINDS[1], KINDS[2]))
        label = (images.mean((1, 2, 3)) >= 128).astype(np.int64)
        sure = np.full(len(images), 0.9)
        return Verdicts(label, sure, *scores, p_covariate, p_concept, combined, kind, names=self.names)


class Running:
    """A service in a thread of this process."""

    def __init__(self, service: Service, client: Client) -> None:
        self.service, self.client = service, client


@contextmanager
def run_service(folder: Path, detectors: Mapping[str, Detector] | None = None, **settings: Any) -> Iterator[Running]:
    """A real server on a free port while the block lasts. Detectors are given; their files only say when to load."""
    given = dict(detectors if detectors is not None else {"shapes": Brightness()})
    files = {name: folder / f"{name}.onnx" for name in given}
    for path in files.values():
        path.write_text("1")
    port = free_port()
    defaults: dict[str, Any] = {"store": str(folder / "store.sqlite"), "decoders": 1}
    chosen = Settings(port=port, **(defaults | settings))
    service = Service(files, chosen, lambda path: given[path.stem])
    server = make_server(service)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            thread.join(0.02)
        yield Running(service, Client(port))
    finally:
        server.should_exit = True
        thread.join()
