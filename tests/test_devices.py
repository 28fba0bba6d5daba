"""Devices: which one is chosen, that work stays on it, and that Outputs come back whole. No test here needs a GPU."""

import json
import os
import time
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from typer.testing import CliRunner

from python_device import OtherTensor, Stream, register
from shiftprism import Classifier, _devices, _tasks, adapt, predict
from shiftprism._files import write_tensors
from shiftprism._tasks import run_tasks
from shiftprism.benchmark import Plan, _cells, study
from shiftprism.classifier import _predict
from shiftprism.cli import app
from shiftprism.datasets import load
from shiftprism.edits import predict_mirrored
from shiftprism.heads import HEADS, SNGP
from shiftprism.outputs import Outputs
from shiftprism.training import PRESETS, Setup, _processes, _runs, run, train

DIGITS = load("digits", "test")
register()


def machine(monkeypatch: pytest.MonkeyPatch, gpus: int = 0, mps: bool = False) -> None:
    """torch as it would answer on another machine."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: mps)


def test_auto_is_cuda_then_mps_then_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, gpus=2, mps=True)
    assert _devices.choose_device() == torch.device("cuda")
    assert _devices.list_devices() == _devices.list_devices("cuda") == ["cuda:0", "cuda:1"]
    assert _devices.list_devices("cuda:1") == ["cuda:1"]
    assert (_devices.count_jobs(), _devices.count_jobs("cuda:1"), _devices.count_jobs("cpu")) == (
        2,
        1,
        _devices.count_cores(),
    )
    machine(monkeypatch, mps=True)
    assert _devices.choose_device() == torch.device("mps")
    assert _devices.count_jobs() == 1
    machine(monkeypatch)
    assert _devices.choose_device() == torch.device("cpu")
    assert _devices.count_jobs() == _devices.count_cores()


def test_cores_are_those_that_the_process_may_use() -> None:
    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system has no affinity")
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert (_devices.count_jobs("cpu"), _tasks.count_threads(1)) == (1, 1)
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.parametrize(
    ("asked", "threads"), [("", 8), ("1", 1), ("3", 3), ("64", 8), ("2,4", 2), ("all", 8), ("0", 8)]
)
def test_a_limit_on_threads_is_kept(monkeypatch: pytest.MonkeyPatch, asked: str, threads: int) -> None:
    monkeypatch.setattr(_tasks, "count_cores", lambda: 8)
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert _tasks.count_threads(1) == threads
    assert _tasks.count_threads(8) == 1


@pytest.mark.parametrize(
    ("name", "gpus", "message"),
    [
        ("cuda", 0, "cuda, which torch does not see; there is cpu"),
        ("mps", 1, "mps, which torch does not see; there is cuda, cpu"),
        ("cuda:2", 2, "one of 2 CUDA devices but got cuda:2"),
        ("gpu", 1, "auto, cpu, cuda, cuda:N or mps but got 'gpu'"),
        ("cuda:", 1, "but got 'cuda:'"),
        ("cuda:-1", 1, "but got 'cuda:-1'"),
        ("cpu:0", 1, "but got 'cpu:0'"),
        ("", 1, "but got ''"),
    ],
)
def test_a_device_that_is_not_there_is_one_line(
    name: str, gpus: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine(monkeypatch, gpus)
    with pytest.raises(ValueError, match=message) as caught:
        _devices.choose_device(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("command", ["train", "calibrate", "benchmark", "demo", "fit", "score", "explain"])
def test_every_command_that_forwards_has_the_option(command: str) -> None:
    shown = CliRunner().invoke(app, [command, "--help"]).output
    assert "--device" in shown
    assert "auto, cpu, cuda, cuda:N or mps" in " ".join(shown.replace("│", " ").split())


def test_a_wrong_device_leaves_no_folder(tmp_path: Path) -> None:
    for words in (
        ["train", "--preset", "smoke", "--out"],
        ["benchmark", "--suite", "digits", "--out"],
        ["demo", "--to"],
    ):
        done = CliRunner().invoke(app, [*words, str(tmp_path / "out"), "--device", "cuda:7"])
        assert isinstance(done.exception, ValueError)
        assert "cuda:7" in str(done.exception)
        assert not (tmp_path / "out").exists()


def test_a_model_with_float64_stays_off_mps(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, mps=True)
    assert next(_devices.move(SNGP(2, 2), "auto").parameters()).device.type == "cpu"
    with pytest.raises(ValueError, match="float64 for this model but got mps; choose cpu"):
        _devices.move(SNGP(2, 2), "mps")


def test_the_python_device_refuses_to_mix() -> None:
    """Otherwise the tests below would prove nothing."""
    there = torch.ones(3).to("other")
    assert (there.device, type(there)) == (torch.device("other:0"), OtherTensor)
    assert (there + 1).sum().item() == 6
    for mix in (torch.add, torch.mul, lambda first, second: torch.cat([first, second])):
        with pytest.raises(RuntimeError, match="two devices"):
            mix(there, torch.ones(3))
        with pytest.raises(RuntimeError, match="two devices"):
            mix(torch.ones(3), there)


@pytest.mark.parametrize("head", HEADS)
def test_predict_follows_the_model(head: str) -> None:
    classifier = Classifier.build("digits", head, DIGITS.names, channels=1)
    expected, _ = predict(classifier, DIGITS)
    classifier.to("other")
    with pytest.raises(RuntimeError, match="two devices"):
        classifier.outputs(DIGITS.images)
    batches = [
        (DIGITS.images[:300].to("other"), DIGITS.labels[:300].to("other")),
        (DIGITS.images[300:], DIGITS.labels[300:]),
    ]
    for outputs, labels in (predict(classifier, DIGITS), predict(classifier, batches)):
        assert labels is not None
        assert {field.device.type for field in (*outputs, labels)} == {"cpu"}
        torch.testing.assert_close(outputs, expected)
        assert torch.equal(labels, DIGITS.labels)


def test_outputs_are_read_only_after_their_copy_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """The path of CUDA, on a device whose copies are NaN until they are waited for."""
    classifier = Classifier.build("digits", "alpha-beta", DIGITS.names, channels=1)
    expected, _ = predict(classifier, DIGITS)
    pinned: list[int] = []

    def pin(images: Tensor) -> Tensor:
        pinned.append(len(images))
        return images

    monkeypatch.setattr(_predict, "_COPIES_ASIDE", ("other",))
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    monkeypatch.setattr(Tensor, "pin_memory", pin)
    for batch in (100, 1000):  # several batches, the last one smaller, and one alone
        outputs, _ = predict(classifier.to("other"), DIGITS, batch=batch)
        torch.testing.assert_close(outputs, expected)
    assert pinned == [100, 100, 100, 100, 100, 96, 596]


class Small(nn.Module):
    def __init__(self, bias: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
        )
        self.fc = nn.Linear(8, 10, bias=bias)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.body(images))
        return logits


def preprocess(images: Tensor) -> Tensor:
    return (images.double() / 255 - 0.3) / 0.7


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_adapt_keeps_the_precision_of_the_model(dtype: torch.dtype, bias: bool) -> None:
    model = Small(bias).to(dtype).eval()
    adapted = adapt(model, DIGITS.images[:4], [0.3], [0.7])
    wide = torch.promote_types(dtype, torch.float32)
    assert {parameter.dtype for parameter in adapted.backbone.parameters()} == {dtype}
    assert {parameter.dtype for parameter in adapted.head.parameters()} == {wide}
    outputs, _ = predict(adapted, DIGITS)
    assert {field.dtype for field in outputs} == {wide}
    with torch.no_grad():
        expected = model(preprocess(DIGITS.images).to(dtype)).to(wide)
    tolerance = 8 * torch.finfo(dtype).eps
    torch.testing.assert_close(outputs.logits, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_images_of_another_precision_than_the_model(dtype: torch.dtype) -> None:
    """Float32 images are what a loader gives, and a whole Classifier may be cast too."""
    floats = DIGITS.images[:50].float() / 255
    adapted = adapt(Small().to(dtype), floats[:4])
    assert predict(adapted, floats)[0].N == 50
    assert predict(adapted.float(), floats.double())[0].logits.dtype == torch.float32
    for head in ("alpha-beta", "cosine", "duq"):
        built = Classifier.build("digits", head, DIGITS.names, channels=1)
        expected = predict(built, floats)[0].predictions
        agreement = (predict(built.to(dtype), floats)[0].predictions == expected).float().mean()
        assert agreement > 0.8, head


def test_adapt_stays_on_the_device_of_the_model() -> None:
    model = Small().eval()
    expected = predict(adapt(model, DIGITS.images[:4], [0.3], [0.7]), DIGITS)[0]
    model.to("other")
    for example in (DIGITS.images[:4], DIGITS.images[:4].to("other")):
        adapted = adapt(model, example, [0.3], [0.7])
        assert {tensor.device.type for tensor in adapted.state_dict().values()} == {"other"}
        torch.testing.assert_close(predict(adapted, DIGITS)[0], expected)


@pytest.mark.parametrize("backbone", ["fast", "resnet20", "wrn-16-4", "small"])
def test_channels_last(backbone: str) -> None:
    images = torch.randint(256, (4, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    classifier = Classifier.build(backbone, "alpha-beta", ("a", "b"))
    expected, _ = predict(classifier, images)
    last = images.to(memory_format=torch.channels_last)
    torch.testing.assert_close(predict(classifier, last)[0], expected, rtol=1e-4, atol=1e-4)
    classifier.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    torch.testing.assert_close(predict(classifier, last)[0], expected, rtol=1e-4, atol=1e-4)


@pytest.fixture
def other_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    """ "auto" is the Python device."""
    choose = lambda name="auto": torch.device("other" if name == "auto" else name)  # noqa: E731
    for module in (_devices, _runs, _processes, _tasks):
        monkeypatch.setattr(module, "choose_device", choose)


def test_mirror_images_are_averaged_on_the_device_of_the_head() -> None:
    here = Classifier.build("digits", "alpha-beta", DIGITS.names, channels=1)
    there = Classifier.build("digits", "alpha-beta", DIGITS.names, channels=1).to("other")
    ours, theirs = (predict_mirrored(classifier, DIGITS.images[:9])[0] for classifier in (here, there))
    assert theirs.logits.device.type == "cpu"
    torch.testing.assert_close(theirs, ours)


@pytest.mark.parametrize(
    ("head", "change"),
    [("alpha-beta", {}), ("alpha-beta", {"pixmix": 0.7}), ("alpha-beta", {"rotation": 0.5}), ("sngp", {}), ("duq", {})],
)
def test_training_on_a_device_gives_the_weights_of_the_cpu(head: str, change: dict[str, Any]) -> None:
    here = Classifier.build("digits", head, DIGITS.names, channels=1)
    there = Classifier.build("digits", head, DIGITS.names, channels=1).to("other")
    for classifier in (here, there):
        train(classifier, DIGITS, replace(PRESETS["smoke"], epochs=1, **change))
    assert there.mean.device.type == "other"
    assert there.fingerprint() == here.fingerprint()


@pytest.mark.usefixtures("other_by_default")
def test_a_run_stays_on_its_device_and_its_files_are_those_of_the_cpu(tmp_path: Path) -> None:
    setup = Setup("digits", "digits", "alpha-beta", replace(PRESETS["smoke"], epochs=1))
    there, here = run(tmp_path / "there", setup), run(tmp_path / "here", setup, device="cpu")
    resumed = run(tmp_path / "here", setup, resume=True)
    assert [done.classifier.mean.device.type for done in (there, here, resumed)] == ["other", "cpu", "other"]
    assert there.result["test_accuracy"] == here.result["test_accuracy"]
    assert Classifier.load(tmp_path / "there").fingerprint() == here.classifier.fingerprint()


@pytest.mark.usefixtures("other_by_default")
def test_a_cell_forwards_on_its_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where: list[str] = []

    def watch(classifier: Classifier, *args: Any, **kwargs: Any) -> tuple[Outputs, Tensor | None]:
        where.append(classifier.mean.device.type)
        return predict(classifier, *args, **kwargs)

    monkeypatch.setattr(_cells, "predict", watch)
    few = DIGITS.rows(slice(200))  # a device in Python is slow
    tensors = {
        f"{split}_{name}": getattr(few, name).clone() for split in ("train", "test") for name in ("images", "labels")
    }
    write_tensors(tmp_path / "few.safetensors", tensors, {"names": json.dumps(few.names)})
    options: dict[str, Any] = {"scores": ("msp",), "calibrators": ("temperature",), "corruptions": ("contrast",)}
    options |= {"data": str(tmp_path / "few.safetensors"), "hold_out": ("9",), "backbone": "digits", "images": 20}
    plan = Plan(models=("vanilla",), seeds=1, preset="smoke", settings={"epochs": 1}, **options)
    assert study(plan, tmp_path / "there").failed == {}
    assert set(where) == {"other"}
    where.clear()
    run_folder = tmp_path / "there/cells/few.safetensors-vanilla-0/run"
    for device, expected in (("auto", "other"), ("cpu", "cpu")):
        given = replace(plan, models=(), seeds=0, runs=(f"mine={run_folder}",), settings={})
        assert study(given, tmp_path / device, device=device).failed == {}
        assert set(where) == {expected}
        where.clear()


def test_jobs_side_by_side_take_different_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_tasks, "list_devices", lambda device: ["cuda:0", "cuda:1"])

    def work(item: int, threads: int, device: str) -> tuple[str, float, float]:
        began = time.monotonic()
        # the first task is long: the other device has to take all others
        time.sleep(3.0 if item == 0 else 0.3)
        return device, began, time.monotonic()

    tasks = [task.result for task in run_tasks(work, range(5), jobs=2, device="cuda")]
    assert {device for device, _, _ in tasks} == {"cuda:0", "cuda:1"}
    for name in ("cuda:0", "cuda:1"):
        spans = sorted((began, ended) for device, began, ended in tasks if device == name)
        assert all(first[1] <= second[0] for first, second in pairwise(spans))
    alone = [task.result[0] for task in run_tasks(lambda item, threads, device: (device,), range(3), jobs=1)]
    assert alone == ["cuda:0"] * 3


def test_several_processes_and_clusters_choose_their_own_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="auto, cpu or cuda on a cluster but got cuda:0"):
        study(Plan(suite="digits"), tmp_path / "out", cluster="local", device="cuda:0")
    assert not (tmp_path / "out").exists()
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="auto, cpu or cuda for 2 processes but got cuda:1"):
        _processes.Processes("cuda:1")


def test_a_lost_node_ends_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster has 100 cores, then 5: more tasks are under way than it could take now."""

    class Ray:
        exceptions = SimpleNamespace(RayError=ConnectionError)
        asked = 0

        def cluster_resources(self) -> dict[str, float]:
            self.asked += 1
            return {"CPU": 100 if self.asked < 3 else 5}

        def put(self, value: Any) -> Any:
            return value

        def remote(self, **options: Any) -> Any:
            # what stands for a task under way is a function that does it
            return lambda task: SimpleNamespace(remote=lambda *words: lambda: task(*words))

        def wait(self, running: list[Any], num_returns: int) -> tuple[list[Any], list[Any]]:
            return running[:1], running[1:]

        def get(self, task: Any) -> Any:
            return task()

    monkeypatch.setattr(_tasks, "connect", lambda cluster: nullcontext(Ray()))
    tasks = run_tasks(lambda item, threads, device: item + 1, range(300), cluster="local")
    assert sorted(task.result for task in tasks) == list(range(1, 301))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::ResourceWarning", "ignore::DeprecationWarning")
def test_ray_gives_each_task_a_gpu_of_its_own_where_there_are_some() -> None:
    """GPUs that are only declared: Ray counts them and shows each task its own, though nothing can compute there."""
    if "SHIFTPRISM_NO_SKIP" not in os.environ:
        pytest.importorskip("ray", reason='no ray: pip install "shiftprism[cluster]"')
    import ray

    def work(item: int, threads: int, device: str) -> tuple[str, str, float, float]:
        began = time.monotonic()
        time.sleep(1.0)
        return device, os.environ.get("CUDA_VISIBLE_DEVICES", ""), began, time.monotonic()

    quiet: dict[str, Any] = {"include_dashboard": False, "log_to_driver": False, "configure_logging": False}
    ray.init(num_cpus=4, num_gpus=2, **quiet)
    try:
        for device in ("auto", "cuda"):
            tasks = [task.result for task in run_tasks(work, range(4), cluster="local", device=device)]
            assert {(name, gpu) for name, gpu, _, _ in tasks} == {(device, "0"), (device, "1")}
            for gpu in ("0", "1"):
                spans = sorted((began, ended) for _, mine, began, ended in tasks if mine == gpu)
                assert all(first[1] <= second[0] for first, second in pairwise(spans))
        on_cpus = [task.result for task in run_tasks(work, range(4), cluster="local", device="cpu")]
        assert {(name, gpu) for name, gpu, _, _ in on_cpus} == {("cpu", "")}
    finally:
        ray.shutdown()
    ray.init(num_cpus=2, num_gpus=0, **quiet)
    try:
        assert {task.result[0] for task in run_tasks(work, range(2), cluster="local", device="auto")} == {"cpu"}
        with pytest.raises(ValueError, match="one that the cluster has but got cuda"):
            list(run_tasks(work, range(2), cluster="local", device="cuda"))
    finally:
        ray.shutdown()
