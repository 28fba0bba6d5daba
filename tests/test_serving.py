"""The service on a real socket: predictions, labels, statuses, batches, replacement, and a stop that loses nothing."""

import base64
import json
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from serving_examples import Brightness, Running, made_picture, png, run_service
from shiftprism.store import MonitorFold, open_store
from shiftprism.verdicts import Verdicts


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with run_service(tmp_path_factory.mktemp("service")) as service:
        yield service


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """What happens in the background happens within a minute, on a busy machine too."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(what)


def test_three_ways_to_send_an_image_agree_with_the_detector(running: Running) -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (12, 10, 3), dtype=np.uint8)
    expected = Brightness()(pixels.transpose(2, 0, 1)[None])
    picture, client = png(pixels), running.client
    raw = client.ask("POST", "/v1/predict", picture, {"Content-Type": "image/png"})
    for answer in (client.predict(picture), client.predict_form(picture), raw):
        assert answer.status == 200, answer.body
        (prediction,) = answer.json["predictions"]
        id_, sentence = prediction.pop("id"), prediction.pop("sentence")
        assert prediction == expected.to_dicts()[0]
        assert sentence == str(expected[0])
        assert len(id_) == 36
        assert answer.json["request"] == answer.headers["x-request-id"]
        assert answer.json["detector"] == "brightness-1"


def test_images_of_several_sizes_are_answered_in_order(running: Running) -> None:
    shapes = [(8, 8), (4, 9), (8, 8), (9, 4), (4, 9)]
    rng = np.random.default_rng(0)
    pictures = [rng.integers(0, 256, (*shape, 3), dtype=np.uint8) for shape in shapes]
    answer = running.client.predict_form(*map(png, pictures))
    found = [each["style"] for each in answer.json["predictions"]]
    assert found == [float(Brightness()(each.transpose(2, 0, 1)[None]).style[0]) for each in pictures]


def test_a_bad_image_among_good_ones_is_a_row_with_its_reason(running: Running) -> None:
    good = made_picture()
    answer = running.client.predict(good, good[:60], b"words", good)
    assert answer.status == 200
    rows = answer.json["predictions"]
    assert [row["id"] is None for row in rows] == [False, True, True, False]
    assert [row.get("error", {}).get("status") for row in rows] == [None, 422, 415, None]
    assert rows[0]["style"] == rows[3]["style"]
    assert running.client.predict(b"words").status == 415
    assert running.client.predict(good[:60]).status == 422


@pytest.mark.parametrize(
    ("content_type", "body", "status"),
    [
        ("text/plain", b"hello", 415),
        ("", b"hello", 415),
        ("application/json", b"{", 400),
        ("application/json", b"[" * 100_000, 400),
        ("application/json", b"\xff\xfe", 400),
        ("application/json", b"[]", 422),
        ("application/json", b'{"images": "abc"}', 422),
        ("application/json", b'{"images": ["%%%"]}', 422),
        ("application/json", b'{"images": []}', 422),
        ("application/json", b'{"images": [""]}', 422),
        ("application/json", b'{"images": ["AAAA"], "more": 1}', 422),
        ("multipart/form-data", b"x", 400),
        ("multipart/form-data; boundary=b", b"--b\r\nContent-Disposition: form-data; name=image\r\n\r\nabc", 400),
        ("multipart/form-data; boundary=b", b"no boundary at all", 400),
        ("multipart/form-data; boundary=b", b"--b--\r\n", 422),
        (
            "multipart/form-data; boundary=b",
            b"--b\r\nContent-Disposition: form-data; name=other\r\n\r\nabc\r\n--b--\r\n",
            422,
        ),
        ("image/png", b"", 422),
    ],
)
def test_bodies_that_are_not_images_have_their_status(
    running: Running, content_type: str, body: bytes, status: int
) -> None:
    answer = running.client.ask("POST", "/v1/predict", body, {"Content-Type": content_type})
    assert answer.status == status, answer.body
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json["status"] == status


def test_an_unknown_route_model_or_method_is_a_problem(running: Running) -> None:
    client = running.client
    for method, path, status in (
        ("GET", "/nowhere", 404),
        ("GET", "/v1/models/other", 404),
        ("POST", "/v1/models/other/predict", 404),
        ("GET", "/v1/models/other/status", 404),
        ("DELETE", "/v1/predict", 405),
        ("GET", "/../../etc/passwd", 404),
        ("GET", "/%2e%2e/page.css", 404),
    ):
        body = made_picture() if method == "POST" else None
        answer = client.ask(method, path, body, {"Content-Type": "image/png"} if body else {})
        assert answer.status == status, path
        assert answer.headers["content-type"] == "application/problem+json"
    assert client.predict(made_picture(), path="/v1/models/shapes/predict").status == 200


def test_truth_comes_late_by_number_name_or_none(running: Running) -> None:
    client = running.client
    ids = [row["id"] for row in client.predict(*[made_picture(seed) for seed in range(3)]).json["predictions"]]
    before = client.get("/v1/status").json["labelled"]["count"]
    missing = "00000000-0000-4000-8000-000000000000"
    labels = [{"id": ids[0].upper(), "label": 1}, {"id": ids[1], "label": "dark"}, {"id": ids[2], "label": None}]
    answer = client.post_json("/v1/labels", {"labels": [*labels, {"id": missing, "label": 0}]})
    assert answer.json == {"stored": 3, "unknown": [missing]}
    assert client.get("/v1/status").json["labelled"]["count"] == before + 3
    stream = running.service.models.find(None).stream
    truth = dict(zip((found := running.service.store.read(stream)).id, found.truth.tolist(), strict=True))
    assert [truth[id_] for id_ in ids] == [1, 0, -1]
    wrong_labels: tuple[Any, ...] = (2, -1, "cat", True, 1.5, [], {})
    for label in wrong_labels:
        assert client.post_json("/v1/labels", {"labels": [{"id": ids[0], "label": label}]}).status == 422
    wrong_bodies: tuple[Any, ...] = (
        {},
        {"labels": []},
        {"labels": [1]},
        {"labels": [{"id": "x", "label": 1}]},
        [],
        None,
    )
    for value in wrong_bodies:
        assert client.post_json("/v1/labels", value).status == 422
    assert client.post_json("/v1/labels", {"labels": [{"id": missing, "label": 0}]}).status == 404


def test_the_status_follows_the_stream_to_an_alarm_of_the_right_kind(tmp_path: Path) -> None:
    with run_service(tmp_path) as running:
        client = running.client
        assert client.get("/v1/status").json["observations"] == 0
        for first in range(0, 192, 48):
            client.predict(*[made_picture(seed) for seed in range(first, first + 48)])
        early = wait_for(lambda: (s := client.get("/v1/status").json)["observations"] == 192 and s, "not folded")
        assert early["level"] == "ok"
        for first in range(0, 96, 48):
            client.predict(*[made_picture(seed, brightness=140) for seed in range(first, first + 48)])
        late = wait_for(lambda: (s := client.get("/v1/status").json)["observations"] == 288 and s, "not folded")
        assert (late["level"], late["kind"]) == ("alarm", "covariate")
        assert abs(late["since"] - 192) <= 10
        assert late["sentence"].startswith("Alarm: the style of the images has shifted")
        assert sum(window["images"] for window in late["history"]) == 288
        assert max(window["log10_e_covariate"] for window in late["history"]) > 2
        numbers = client.get("/metrics").body.decode()
        assert 'shiftprism_monitor_alarm{kind="covariate",model="shapes"} 1.0' in numbers
        assert 'shiftprism_monitor_level{model="shapes"} 2.0' in numbers
        flagged = [line for line in numbers.splitlines() if 'verdicts_total{kind="covariate"' in line]
        assert float(flagged[0].split()[-1]) >= 90
    with open_store(tmp_path / "store.sqlite") as store:
        (stream,) = store.streams()
        until, replayed, stored = store.replay(stream, MonitorFold())
        assert replayed == stored
        assert until == stream.sequence == 288


class Counting(Brightness):
    """Remembers the sizes of its batches, and waits for a signal."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.go = threading.Event()
        self.go.set()

    def __call__(self, images: Any) -> Verdicts:
        assert self.go.wait(60)
        self.sizes.append(len(images))
        return super().__call__(images)


def test_requests_that_come_together_share_a_batch(tmp_path: Path) -> None:
    detector = Counting()
    with run_service(tmp_path, {"shapes": detector}, batch=8) as running, ThreadPoolExecutor(20) as pool:
        detector.go.clear()
        answers = [pool.submit(running.client.predict, made_picture(seed)) for seed in range(20)]
        wait_for(lambda: running.service.waiting == 20, "not all accepted")
        waiting = running.service.models.find("shapes").batcher._jobs
        wait_for(lambda: len(waiting) >= 12, "not all decoded")  # the others are in the batch that waits
        detector.go.set()
        found = [answer.result() for answer in answers]
    assert {answer.status for answer in found} == {200}
    assert max(detector.sizes) == 8
    assert sum(detector.sizes) == 21  # one more when it was loaded
    expected = [float(Brightness()(np.asarray([_pixels(made_picture(seed))])).style[0]) for seed in range(20)]
    assert [answer.json["predictions"][0]["style"] for answer in found] == expected


class Poisoned(Counting):
    """Fails on a batch with a black image, and refuses images of one size."""

    def __call__(self, images: Any) -> Verdicts:
        if images.shape[-1] == 11:
            raise ValueError("Expected `images` to be less long and narrow")
        verdicts = super().__call__(images)
        if len(images) > 1 and (images.max((1, 2, 3)) == 0).any():
            raise RuntimeError("out of something")
        if images.max() == 0 and images.shape[-1] == 16:
            raise RuntimeError("out of something")
        return verdicts


def test_a_request_that_fails_does_not_fail_those_in_its_batch(tmp_path: Path) -> None:
    detector = Poisoned()
    black = png(np.zeros((16, 16, 3), np.uint8))
    with run_service(tmp_path, {"shapes": detector}, batch=8) as running, ThreadPoolExecutor(5) as pool:
        detector.go.clear()
        pictures = [made_picture(0), made_picture(1), black, made_picture(2), made_picture(3)]
        answers = [pool.submit(running.client.predict, picture) for picture in pictures]
        wait_for(lambda: running.service.waiting == 5, "not all accepted")
        time.sleep(0.5)  # until they are decoded
        detector.go.set()
        assert [answer.result().status for answer in answers] == [200, 200, 500, 200, 200]
        refused = running.client.predict(made_picture(size=11))
        assert refused.status == 422
        assert "narrow" not in refused.json["detail"]


def _pixels(picture: bytes) -> Any:
    import io

    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(picture))).transpose(2, 0, 1)


def test_a_full_queue_is_503_with_retry_after_and_others_are_answered(tmp_path: Path) -> None:
    detector = Counting()
    with run_service(tmp_path, {"shapes": detector}, max_queue=4) as running, ThreadPoolExecutor(4) as pool:
        detector.go.clear()
        waiting = [pool.submit(running.client.predict, made_picture(seed)) for seed in range(4)]
        wait_for(lambda: running.service.waiting == 4, "not all accepted")
        refused = running.client.predict(made_picture())
        assert refused.status == 503
        assert int(refused.headers["retry-after"]) >= 1
        assert running.client.get("/healthz").status == 200
        detector.go.set()
        assert [each.result().status for each in waiting] == [200] * 4
        assert running.client.predict(made_picture()).status == 200


def test_a_stop_answers_and_stores_what_was_accepted(tmp_path: Path) -> None:
    detector = Counting()
    with ThreadPoolExecutor(6) as pool:
        with run_service(tmp_path, {"shapes": detector}) as running:
            detector.go.clear()
            waiting = [pool.submit(running.client.predict, made_picture(seed)) for seed in range(6)]
            wait_for(lambda: running.service.waiting == 6, "not all accepted")
            threading.Timer(0.5, detector.go.set).start()
        answers = [each.result() for each in waiting]
    assert [answer.status for answer in answers] == [200] * 6
    with open_store(tmp_path / "store.sqlite") as store:
        (stream,) = store.streams()
        ids = {answer.json["predictions"][0]["id"] for answer in answers}
        assert set(store.read(stream).id) == ids
        assert stream.sequence == 6, "the last observations were folded"


class Renewed(Brightness):
    fingerprint = "brightness-2"

    def __init__(self) -> None:
        super().__init__()
        self.reference = self.reference._replace(detector=self.fingerprint)


def test_a_detector_is_replaced_while_requests_are_answered(tmp_path: Path) -> None:
    detectors: dict[str, Any] = {"shapes": Brightness(), "other": Brightness()}
    with run_service(tmp_path, detectors) as running:
        client = running.client
        running.service.models.load = lambda path: detectors[path.stem]
        first = client.predict(made_picture()).json["predictions"][0]["id"]
        failures: list[int] = []
        stop = threading.Event()

        def keep_asking() -> None:
            while not stop.is_set():
                status = client.predict(made_picture()).status
                if status != 200:
                    failures.append(status)

        with ThreadPoolExecutor(2) as pool:
            asking = [pool.submit(keep_asking) for _ in range(2)]
            detectors["shapes"] = Renewed()
            (tmp_path / "shapes.onnx").write_text("22")
            wait_for(lambda: client.predict(made_picture()).json["detector"] == "brightness-2", "not replaced")
            stop.set()
            for each in asking:
                each.result()
        assert failures == []
        assert client.get("/v1/models").json == {"models": ["shapes", "other"]}
        assert client.get("/v1/models/other").json["detector"] == "brightness-1"
        assert client.get("/v1/status").json["detector"] == "brightness-2", "a new detector starts a new monitor"
        labels = {"labels": [{"id": first, "label": 0}]}
        assert client.post_json("/v1/labels", labels).status == 200, "its truth belongs to the detector before"
        # a file that cannot be loaded changes nothing but a word
        running.service.models.load = lambda path: (_ for _ in ()).throw(ValueError("damaged"))
        (tmp_path / "shapes.onnx").write_text("333")
        wait_for(lambda: client.get("/v1/models/shapes").json["problem"], "not noticed")
        assert client.predict(made_picture()).json["detector"] == "brightness-2"
        assert client.get("/readyz").status == 200


@pytest.mark.parametrize("keep", [False, True])
def test_images_are_kept_only_when_asked(tmp_path: Path, keep: bool) -> None:
    picture = made_picture()
    with run_service(tmp_path, keep_images=keep) as running:
        (row,) = running.client.predict(picture).json["predictions"]
        assert running.service.store.image(row["id"]) == (picture if keep else None)
    stored = b"".join(path.read_bytes() for path in tmp_path.glob("store.sqlite*"))
    assert (picture[:64] in stored) == keep


def test_a_store_that_fails_is_503_and_unready_and_comes_back(tmp_path: Path) -> None:
    with run_service(tmp_path) as running:
        client = running.client
        assert client.get("/readyz").status == 200
        blocker = sqlite3.connect(tmp_path / "store.sqlite", isolation_level=None)
        running.service.store._database._writer.execute("PRAGMA busy_timeout = 50")  # type: ignore[attr-defined]
        blocker.execute("BEGIN IMMEDIATE")
        answer = client.predict(made_picture())
        assert answer.status == 503
        assert "retry-after" in answer.headers
        assert client.get("/readyz").status == 503
        assert client.get("/healthz").status == 200
        blocker.execute("ROLLBACK")
        blocker.close()
        assert client.predict(made_picture()).status == 200
        assert client.get("/readyz").json == {"ready": True, "reasons": []}


def test_old_observations_go_when_their_days_are_over(tmp_path: Path) -> None:
    with run_service(tmp_path) as running:
        running.client.predict(made_picture())
        wait_for(lambda: running.client.get("/v1/status").json["observations"] == 1, "not folded")
    time.sleep(0.05)
    with run_service(tmp_path, keep_days=1e-7) as running:
        stream = running.service.models.find(None).stream
        running.service.streams.fold()
        running.service.streams.prune()
        assert len(running.service.store.read(stream)) == 0
        assert running.client.get("/v1/status").json["observations"] == 1


def test_the_description_of_the_api_names_every_route(running: Running) -> None:
    document = running.client.get("/openapi.json").json
    assert {"/v1/predict", "/v1/labels", "/v1/status", "/healthz", "/readyz", "/metrics"} < set(document["paths"])
    shape = document["components"]["schemas"]["Prediction"]["properties"]
    (row,) = running.client.predict(made_picture()).json["predictions"]
    assert set(row) == set(shape) - {"error"}
    page = running.client.get("/docs").body.decode()
    assert "POST /v1/models/{name}/predict" in page
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_base64_of_the_docs_example_runs(running: Running) -> None:
    body = json.dumps({"images": [base64.b64encode(made_picture()).decode()]})
    headers = {"Content-Type": "application/json; charset=utf-8"}
    assert running.client.ask("POST", "/v1/predict", body.encode(), headers).status == 200


def test_serving_imports_no_torch() -> None:
    import subprocess
    import sys

    code = (
        "import sys, shiftprism.serving as s\n"
        "s.Service, s.make_server, s.create_app\n"
        "heavy = {'torch', 'scipy', 'sklearn', 'matplotlib'} & set(sys.modules)\nassert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 0, done.stderr
