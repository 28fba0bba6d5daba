"""`shiftprism serve`: HTTP and a page on exported detectors; its flags are the fields of `Settings`."""

import hashlib
import logging
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shiftprism import __version__
from shiftprism.cli._flags import with_flags
from shiftprism.serving import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

_EXPORT = "import sys; from shiftprism.cli.serve import export_folder; sys.exit(export_folder(*sys.argv[1:]))"


def _serve(
    models: Annotated[
        list[str], typer.Argument(help="model.onnx or a detector's folder, or NAME=PATH; the first is the default.")
    ],
    store: Annotated[
        str | None,
        typer.Option(
            envvar="SHIFTPRISM_STORE",
            show_envvar=False,
            help="Where observations go: a file, or a postgresql:// URL; or $SHIFTPRISM_STORE. (shiftprism.sqlite)",
        ),
    ] = None,
    **flags: Any,
) -> None:
    """Serve detectors over HTTP, with a page at /. SIGTERM or Ctrl-C ends it when what was accepted is answered.

    Tokens come from --tokens, or from $SHIFTPRISM_TOKENS (name:token, with spaces between several).
    """
    given = flags if store is None else flags | {"store": store}
    run(find_models(models), Settings(**given))


serve = with_flags(_serve, Settings)


def find_models(words: list[str]) -> dict[str, Path]:
    """Names -> files. A detector's folder is exported first, unless that was done before."""
    from shiftprism._errors import wrong

    files: dict[str, Path] = {}
    for word in words:
        name, separator, place = word.partition("=")
        path = Path(place if separator else word)
        name = name if separator else path.name.removesuffix(".onnx")
        if name in files:
            raise wrong("models", "of different names", f"{name} twice", "write NAME=PATH")
        if not path.exists():
            raise wrong("models", "files or folders", f"{path}, where there is none", "correct the path")
        files[name] = export_cached(path) if path.is_dir() else path
    return files


def export_cached(folder: Path, name: str = "") -> Path:
    """The ONNX file of a detector's folder, from the cache where neither the folder nor the version has changed.

    A detector of the package is loaded by its `name`: it computes in another precision than its files have.
    """
    from shiftprism._errors import wrong

    if not (folder / "detector.json").is_file():
        advice = "give a model.onnx, or a folder that shiftprism fit wrote"
        raise wrong("models", "files, or folders of detectors", f"{folder}, which has no detector.json", advice)
    digest = hashlib.sha256(__version__.encode())
    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
        digest.update(f"{file.relative_to(folder)} {file.stat().st_size} ".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    cached = _cache_folder() / f"{digest.hexdigest()}.onnx"
    if not cached.exists():
        typer.echo(f"exporting {name or folder} to {cached}", err=True)
        cached.parent.mkdir(parents=True, exist_ok=True)
        # in a process of its own: torch takes hundreds of megabytes, and a service needs none of them
        command = [sys.executable, "-c", _EXPORT, name or str(folder), str(cached)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if done.returncode or not cached.exists():
            reason = (done.stdout.strip().splitlines() or ["its process ended"])[-1]
            raise OSError(f"{folder} could not be exported: {reason}")
    return cached


def export_folder(folder: str, to: str) -> int:
    """Export a detector's folder, in the process that `export_cached` starts: 0, or 1 and a line that says why not."""
    from shiftprism.cli._boundary import describe
    from shiftprism.detector import Detector
    from shiftprism.export import export

    try:
        export(Detector.load(folder), to)
    except Exception as error:
        typer.echo(describe(error))
        return 1
    return 0


def serve_digits(to: Path, port: int) -> None:
    """Serve the demo's detector of the digits 0 to 7; 8 and 9 are what it does not know. It is made once."""
    from shiftprism.cli._digits_story import make_story

    folder = to / "service"
    if not (folder / "detector" / "detector.json").exists():
        typer.echo("training on the handwritten digits 0 to 7, and fitting a detector …")
        story = make_story("cpu", lambda text, share: None)
        for name, shown in story.sets.items():
            _write_images(shown.images.numpy()[:40], folder / "images" / name.replace(" ", "-"))
        story.detector.save(folder / "detector")
    typer.echo(f"images to try are in {folder / 'images'}; the model never saw an 8 or a 9")
    run(find_models([f"digits={folder / 'detector'}"]), Settings(port=port, store=str(folder / "store.sqlite")))


def _write_images(images: Any, folder: Path) -> None:
    """Digits (N, 1, 8, 8) as image files, to be dropped on the page."""
    from PIL import Image

    folder.mkdir(parents=True, exist_ok=True)
    for number, image in enumerate(images):
        Image.fromarray(image[0]).save(folder / f"{number:02}.png")


def run(files: "Mapping[str, Path]", settings: Settings) -> None:
    """Serve until a signal comes. Logs are JSON lines on standard error."""
    from shiftprism.serving import Service, load_model, make_server

    _start_logs()
    listener = _listen(settings)  # first: nothing is made for a port that is taken
    try:
        service = Service(files, settings, load_model)
        server = make_server(service)
    except BaseException:
        listener.close()
        raise
    host = f"[{settings.host}]" if ":" in settings.host and not settings.host.startswith("[") else settings.host
    address = f"http://{host}:{listener.getsockname()[1]}"
    typer.echo(f"serving {', '.join(files)} on {address}, observations in {service.store.where}")
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:  # uvicorn has ended everything in order, and then repeats the signal
        return


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _listen(settings: Settings) -> "socket.socket":
    """The socket that clients connect to."""
    host = settings.host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # with the protocol's number: where it is missing, asyncio leaves Nagle's algorithm on, and answers take 40 ms more
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        if sys.platform != "win32":  # there it would let two services share a port
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, settings.port))
        listener.listen(2048)
        return listener
    except OSError as error:
        listener.close()
        reason = (error.strerror or str(error)).partition(" (while")[0]  # Python adds the address once more
        raise OSError(
            f"cannot listen on {host} port {settings.port}: {reason}; choose another --port or --host"
        ) from error


def _start_logs() -> None:
    from shiftprism.serving import JsonLines

    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines())
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)
    logging.getLogger("shiftprism").setLevel(logging.INFO)
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # a broken form is its sender's business


def _cache_folder() -> Path:
    import os

    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "shiftprism" / "exported"
