"""Ask a running service about images, and report the truth later: python examples/service_client.py URL IMAGE...

Only Python's own library. Start the service with `shiftprism serve DETECTOR`; set SHIFTPRISM_TOKEN where it has tokens.
"""

import base64
import json
import os
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any


class Client:
    """A few calls of the service; /docs of the service has all of them."""

    def __init__(self, url: str, token: str = "") -> None:
        self.url = url.rstrip("/")
        self.headers = {"Content-Type": "application/json"} | ({"Authorization": f"Bearer {token}"} if token else {})

    def call(self, path: str, body: object = None) -> Any:
        """GET, or POST with a body. An answer that is a problem becomes a ValueError with its sentence."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, self.headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            raise ValueError(json.load(error)["detail"]) from error

    def predict(self, images: list[bytes]) -> list[dict[str, Any]]:
        """One prediction for each image, in order."""
        encoded = [base64.b64encode(image).decode() for image in images]
        predictions: list[dict[str, Any]] = self.call("/v1/predict", {"images": encoded})["predictions"]
        return predictions

    def report_truth(self, truths: dict[str, str]) -> int:
        """The true class of earlier predictions, by their ids; how many were stored."""
        labels = [{"id": key, "label": name} for key, name in truths.items()]
        return int(self.call("/v1/labels", {"labels": labels})["stored"])

    def status(self) -> str:
        """What the monitor says about the stream."""
        return str(self.call("/v1/status")["sentence"])


def main(url: str, *paths: str) -> None:
    client = Client(url, os.environ.get("SHIFTPRISM_TOKEN", ""))
    for path, prediction in zip(paths, client.predict([Path(path).read_bytes() for path in paths]), strict=True):
        problem = prediction.get("error")
        print(f"{path}: {problem['detail'] if problem else prediction['sentence']}")
    print(client.status())


if __name__ == "__main__":
    main(*sys.argv[1:])
