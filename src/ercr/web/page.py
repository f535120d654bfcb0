"""The page: inputs on one side, results on the other; layout and event handlers only."""

from __future__ import annotations

from typing import Any

from ercr.web.answer_html import note
from ercr.web.service import Service
from ercr.zoo.defaults import PROMPT, default_model, offered_models

_HEADING = (
    "<h1>Which part of the picture does each word rest on?</h1>"
    "<p>Choose a picture and ask about it. The model answers, and every word shows what it was read from. "
    "Or type a sentence, and see which of its words the picture supports.</p>"
)
_PLACEHOLDER = "The answer and its maps appear here."
_NO_COMPARISON = ("Nothing", "")
# on a small screen, or with the options open, the answer is outside the window
_SHOW_ANSWER = """() => {
  const answer = document.getElementById("answer"), { top } = answer.getBoundingClientRect();
  if (top < 0 || top > innerHeight / 3) answer.scrollIntoView({ behavior: "smooth" });
}"""
# the framework's picture buttons have no labels for screen readers
_NAME_EXAMPLES = """() => document.querySelectorAll("#examples button").forEach(
  (button, index) => button.setAttribute("aria-label", `Drawn example ${index + 1}`))"""
_MODEL_RUNS = "model"  # one concurrency limit for all events that run a model
# short events do not queue: the framework loses an event that joins the queue while the one before it leaves
_UNQUEUED = {"preprocess": False, "queue": False, "show_progress": "hidden", "api_visibility": "private"}


def build(service: Service) -> Any:
    """The page with its events and named API endpoints, ready to be mounted."""
    import gradio as gr

    with gr.Blocks(title="ercr", analytics_enabled=False, fill_width=True) as page:
        gr.HTML(_HEADING, elem_classes="ercr-head")
        with gr.Row(elem_classes="ercr-main"):
            with gr.Column(scale=2, min_width=300, elem_classes="ercr-in"):
                image, trouble, drawn = _picture(gr, service)
                more = _more(gr, service)
                texts = _texts(gr, service)
                with gr.Row(elem_classes="ercr-buttons"):
                    start = gr.Button("Explain", variant="primary", min_width=100, scale=2, elem_id="explain")
                    stop = gr.Button("Stop", min_width=80, elem_id="stop")
                choices = _choices(gr, service)
            with gr.Column(scale=5, min_width=300, elem_classes="ercr-out"):
                views = [
                    gr.HTML(note(_PLACEHOLDER, "empty"), elem_classes="ercr-answer", elem_id="answer"),
                    gr.HTML(elem_classes="ercr-strip", elem_id="maps"),
                    gr.HTML(elem_classes="ercr-report", elem_id="report"),
                ]
        asked = {"image": image, **texts, **choices, "more": more}
        _connect_events(gr, service, asked, views, start, stop)
        model = choices["model"]
        image.upload(
            lambda sent: (*_check_upload(gr, service, sent), _default_model_update(gr, service, drawn=False)),
            image,
            [image, trouble, model],
            **_UNQUEUED,
        )
        if drawn is not None:
            drawn.click(
                lambda index: (service.example(index), "", _default_model_update(gr, service, drawn=True)),
                drawn,
                [image, trouble, model],
                **_UNQUEUED,
            )
        _endpoints(gr, service, asked)
        page.load(None, js=_NAME_EXAMPLES, api_visibility="private")
    page.queue(max_size=service.limits.queue, api_open=False)
    return page


def _picture(gr: Any, service: Service) -> tuple[Any, Any, Any]:
    """The picture input, the element for its error message, and the drawn examples, if there are any."""
    image = gr.Image(
        label="Picture",
        type="filepath",
        sources=["upload", "webcam", "clipboard"],
        height="min(36vh, 20rem)",
        buttons=["fullscreen"],
        elem_id="image",
    )
    # by default the API's description shows an address here, and addresses are not opened
    image.example_payload = lambda: {"path": "photo.jpg", "meta": {"_type": "gradio.FileData"}}
    trouble = gr.HTML(elem_id="trouble")
    if not service.examples:
        return image, trouble, None
    samples = [[str(path)] for path in service.examples]
    drawn = gr.Dataset(components=[image], samples=samples, type="index", label="Drawn examples", elem_id="examples")
    return image, trouble, drawn


def _more(gr: Any, service: Service) -> Any:
    """Further pictures, and videos where they are accepted; closed, because most people ask about one picture."""
    what = "More pictures, or a video" if service.limits.videos else "More pictures"
    with gr.Accordion(what, open=False, elem_id="several"):
        return gr.File(
            label=what,
            file_count="multiple",
            file_types=["image", *(["video"] if service.limits.videos else [])],
            type="filepath",
            height=160,
            elem_id="files",
        )


def _default_model_update(gr: Any, service: Service, drawn: bool) -> Any:
    """Select the default model for the new picture, if the page offers exactly the default models."""
    names = service.model_cache.names
    return default_model(drawn=drawn).name if len(names) > 1 and names == offered_models() else gr.skip()


def _check_upload(gr: Any, service: Service, image: Any) -> tuple[Any, str]:
    """Check an upload at once; a wrong one is removed and its error shown."""
    error = service.upload_error(image)
    return (gr.skip(), "") if error is None else (None, note(error, "trouble"))


def _texts(gr: Any, service: Service) -> dict[str, Any]:
    most = service.limits.prompt_characters
    prompt = gr.Textbox(PROMPT, label="Prompt", max_length=most, max_lines=6, elem_id="prompt")
    sentence = gr.Textbox(
        label="Sentence to check (optional)",
        placeholder="Empty: the model answers",
        max_length=most,
        max_lines=6,
        elem_id="sentence",
    )
    return {"prompt": prompt, "sentence": sentence}


def _choices(gr: Any, service: Service) -> dict[str, Any]:
    """Model, methods and length, in the order of `Service.stream`."""
    names, most = service.model_cache.names, service.limits.answer_tokens
    methods = [(f"{name}: {title}", name) for name, title in service.methods.items()]
    model = gr.Dropdown(names, value=names[0], label="Model", visible=len(names) > 1, elem_id="model")
    with gr.Accordion("Method, comparison, length", open=False, elem_id="more"):
        method = gr.Dropdown(methods, value="ercr", label="Method", elem_id="method")
        other = gr.Dropdown([_NO_COMPARISON, *methods], value="", label="Compare with", elem_id="other")
        length = gr.Slider(1, most, value=min(64, most), step=1, label="Longest answer, in tokens", elem_id="length")
    return {"model": model, "method": method, "other": other, "length": length}


def _connect_events(gr: Any, service: Service, asked: dict[str, Any], views: list[Any], start: Any, stop: Any) -> None:
    """The events of the page. The framework does not convert values, because `tasks.py` checks them as they are."""

    running = gr.on(
        [start.click, asked["prompt"].submit, asked["sentence"].submit],
        service.stream,
        list(asked.values()),
        views,
        preprocess=False,
        show_progress_on=views[0],
        scroll_to_output=True,
        concurrency_limit=service.limits.concurrent,
        concurrency_id=_MODEL_RUNS,
        api_visibility="private",
    )
    running.success(None, js=_SHOW_ANSWER, api_visibility="private")
    stop.click(None, cancels=[running], api_visibility="private")


def _endpoints(gr: Any, service: Service, asked: dict[str, Any]) -> None:
    """The named endpoints; the page's own inputs give them their labels, choices and defaults."""
    outputs = [
        gr.Textbox(label="Answer", visible=False),
        gr.JSON(label="Words", visible=False),
        gr.File(label="Report", visible=False),
    ]
    sentence = gr.Textbox(label="Sentence", visible=False)
    other = gr.Dropdown(list(service.methods), value="tam", label="Other method", visible=False)
    images = gr.File(label="Pictures", file_count="multiple", visible=False)
    images.example_payload = lambda: [{"path": "photo.jpg", "meta": {"_type": "gradio.FileData"}}]
    parts = asked | {"sentence": sentence, "other": other, "images": images}
    for function, inputs in (
        (service.explain, "image prompt model method length"),
        (service.explain_several, "images prompt model method length"),
        (service.explain_sentence, "image sentence prompt model method"),
        (service.compare, "image prompt model method other length"),
    ):
        gr.Button(visible=False).click(
            function,
            [parts[name] for name in inputs.split()],
            outputs,
            preprocess=False,
            api_name=function.__name__,
            api_description=function.__doc__,
            concurrency_limit=service.limits.concurrent,
            concurrency_id=_MODEL_RUNS,
        )
