"""`ercr serve`: a web page and its API."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ercr.commands.output import notes
from ercr.errors import InputError, require
from ercr.web.limits import Limits

_DEFAULTS = Limits()


def serve(
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--model", "-m", help="Model to offer; repeatable. Visitors cannot load others.", show_default=False
        ),
    ] = None,
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 also accepts other machines, which need a password.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 chooses a free one.")] = 7860,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            help="Another host name under which visitors reach this server, as behind a proxy; repeatable.",
            show_default=False,
        ),
    ] = None,
    password_file: Annotated[
        Path | None,
        typer.Option(help="File with the password; without it, a random one is used.", show_default=False),
    ] = None,
    no_password: Annotated[
        bool, typer.Option("--no-password", help="Accept other machines without a password.")
    ] = False,
    max_upload: Annotated[float, typer.Option(help="Largest upload, in MB.")] = _DEFAULTS.upload_mb,
    max_pixels: Annotated[float, typer.Option(help="Largest picture, in megapixels.")] = _DEFAULTS.megapixels,
    max_answer: Annotated[int, typer.Option(help="Longest answer, in tokens.")] = _DEFAULTS.answer_tokens,
    max_prompt: Annotated[
        int, typer.Option(help="Longest prompt or sentence, in characters.")
    ] = _DEFAULTS.prompt_characters,
    concurrent: Annotated[int, typer.Option(help="Requests that run at a time.")] = _DEFAULTS.concurrent,
    queue: Annotated[int, typer.Option(help="Requests that may wait.")] = _DEFAULTS.queue,
    keep: Annotated[
        float, typer.Option(help="Minutes after which uploads and results are deleted.")
    ] = _DEFAULTS.keep_minutes,
    max_stored: Annotated[
        float, typer.Option(help="Disk space for all uploads and results, in MB.")
    ] = _DEFAULTS.stored_mb,
    videos: Annotated[
        bool, typer.Option("--videos", help="Also accept videos, which PyAV decodes in this process.")
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:0, …")] = "auto",
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16 or float16.")] = "auto",
) -> None:
    """Show a page on which anyone can try a model on their own pictures."""
    from ercr.commands.options import check_device, check_options, load_model
    from ercr.web.access_rules import AccessRules, allowed_hosts
    from ercr.web.server import check_installed, run
    from ercr.zoo.defaults import default_model, offered_models

    check_options(None, dtype)
    limits = Limits(
        **_positive(
            upload_mb=("--max-upload", max_upload),
            megapixels=("--max-pixels", max_pixels),
            answer_tokens=("--max-answer", max_answer),
            prompt_characters=("--max-prompt", max_prompt),
            concurrent=("--concurrent", concurrent),
            queue=("--queue", queue),
            keep_minutes=("--keep", keep),
            stored_mb=("--max-stored", max_stored),
        ),
        videos=videos,
    )
    access = AccessRules(allowed_hosts(allow_host or []), _password(host, password_file, no_password))
    check_installed()
    if videos:
        require("Videos are read with PyAV", "video", "av")
    check_device(device)

    def ready(address: str) -> None:
        if not models:
            notes.print(default_model().sentence, markup=False, soft_wrap=True)
        notes.print(f"Serving at {address} (stop with Ctrl+C).", soft_wrap=True)
        if access.password is not None and password_file is None:
            notes.print(f"Password, shown this once: {access.password} (with any user name).", soft_wrap=True)
        elif no_password:
            notes.print("There is no password: anyone who can reach this machine can use the server.")

    run(host, port, limits, models or offered_models(), lambda name: load_model(name, device, dtype), ready, access)


def _password(host: str, file: Path | None, none: bool) -> str | None:
    """The password: the given one, or a random one if other machines can reach the server."""
    from ercr.web.access_rules import new_password, read_password
    from ercr.web.server import reachable_by_others

    if file is not None:
        if none:
            raise InputError("Give --password-file or --no-password, not both.")
        return read_password(file)
    return new_password() if reachable_by_others(host) and not none else None


def _positive(**limits: tuple[str, float]) -> dict[str, Any]:
    """The limits by name; each must be more than 0, and the error names the option."""
    for option, value in limits.values():
        if not value > 0:
            raise InputError(f"{option} must be more than 0, not {value:g}.")
    return {name: value for name, (_, value) in limits.items()}
