"""Colours, fonts and layout of the page: the look of the reports, with the system fonts of the visitor."""

from __future__ import annotations

from typing import Any

_FONTS = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "sans-serif"]
_MONO = ["ui-monospace", "Menlo", "Consolas", "monospace"]


def theme() -> Any:
    """Background, text and one accent colour, in light and dark mode."""
    import gradio as gr

    return gr.themes.Base(font=_FONTS, font_mono=_MONO, radius_size="sm", text_size="lg").set(
        body_background_fill="#ffffff",
        body_background_fill_dark="#16161a",
        body_text_color="#1b1b1f",
        body_text_color_dark="#ececf1",
        body_text_color_subdued="#5b5b66",
        body_text_color_subdued_dark="#a9a9b6",
        background_fill_primary="#ffffff",
        background_fill_primary_dark="#16161a",
        background_fill_secondary="#f6f6f9",
        background_fill_secondary_dark="#202027",
        border_color_primary="#dcdce4",
        border_color_primary_dark="#3a3a44",
        block_background_fill="#f6f6f9",
        block_background_fill_dark="#202027",
        block_label_background_fill="#f6f6f9",
        block_label_background_fill_dark="#202027",
        input_background_fill="#ffffff",
        input_background_fill_dark="#16161a",
        input_placeholder_color="#6b6b76",
        input_placeholder_color_dark="#9a9aa6",
        input_border_width="1px",
        input_border_color="#dcdce4",
        input_border_color_dark="#3a3a44",
        block_title_text_color="#1b1b1f",
        block_title_text_color_dark="#ececf1",
        block_label_text_color="#5b5b66",
        block_label_text_color_dark="#a9a9b6",
        color_accent="#1f5fbf",
        button_primary_background_fill="#1f5fbf",
        button_primary_background_fill_dark="#86b4ff",
        button_primary_border_color="#1f5fbf",
        button_primary_border_color_dark="#86b4ff",
        button_primary_background_fill_hover="#184c99",
        button_primary_background_fill_hover_dark="#a8c9ff",
        button_primary_text_color="#ffffff",
        button_primary_text_color_dark="#16161a",
        button_large_text_size="var(--text-md)",
        button_large_padding="0.625rem 1rem",
        button_secondary_background_fill="#ececf2",
        button_secondary_background_fill_dark="#33333d",
        link_text_color="#1f5fbf",
        link_text_color_dark="#86b4ff",
    )


CSS = """
.dark { --color-accent: #86b4ff; }
.gradio-container { width: 100%; max-width: 130rem !important; margin: 0 auto; }
.gradio-container > .main { padding: 0.75rem clamp(0.5rem, 2vw, 2rem) !important; }
.ercr-head h1 { font-size: 1.5rem; line-height: 1.2; margin: 0 0 0.25rem; }
.ercr-head p { color: var(--body-text-color-subdued); margin: 0 0 0.25rem; max-width: 60rem; }
.gradio-container .html-container { padding: 0; }
#image .source-selection .icon { color: var(--body-text-color-subdued); }
#image .source-selection .icon.selected { color: var(--link-text-color); }
.secondary-wrap input { padding-right: 2rem !important; text-overflow: ellipsis; outline: none !important; }
.wrap:has(> .wrap-inner input:focus-visible) { outline: 3px solid var(--color-accent); outline-offset: 2px; }
#more .form { border: 0; background: none; gap: 0.75rem; overflow: visible; }
#more .form > .block { padding: 0; border: 0; overflow: visible !important; }
#length .head { gap: 0.75rem; flex-wrap: nowrap; }
.dark #length input[type="range"] { --neutral-200: #3a3a44; }
.toast-wrap { inset: auto max(1rem, (100vw - 130rem) / 2) 1rem auto !important;
  width: min(26.5rem, 100vw - 2rem) !important; }
.toast-title { font-size: 1rem !important; }
.toast-title-row .chevron { display: none; }
.ercr-in { gap: 0.75rem; max-width: 30rem; }
.ercr-buttons { flex-wrap: nowrap; }
.ercr-out { min-height: 8rem; gap: 0.5rem; }
#answer [data-testid="status-tracker"] .error { display: none; }
#trouble:not(:has(.note)), #maps:not(:has(figure)), #report:not(:has(iframe)) { display: none; }
#examples .gallery { display: grid; grid-template-columns: repeat(6, minmax(0, 1fr)); gap: 0.375rem; }
#examples .gallery-item, #examples .gallery-item :is(span, .container) { display: block; width: 100%; }
#examples .gallery-item .container { height: auto; aspect-ratio: 1; }
#examples .gallery-item img { width: 100%; height: 100%; object-fit: cover; }
.said { font-size: 1.25rem; word-spacing: 0.12em; line-height: 1.9; margin: 0 0 0.75rem; white-space: pre-wrap;
  overflow-wrap: anywhere; }
.said .word { border-radius: 4px; padding: 0.1em 0.14em; margin: 0 -0.14em; unicode-bidi: isolate;
  forced-color-adjust: none; color: #000; --strong: #e15733;
  background: color-mix(in srgb, var(--strong) calc(100% * var(--share)), #fff); }
.said .word.tight { padding-inline-start: 0; margin-inline-start: 0; border-start-start-radius: 0;
  border-end-start-radius: 0; }
.dark .said .word { color: #fff; --strong: #fba60c;
  background: color-mix(in srgb, var(--strong) calc(100% * var(--share)), #16161a); }
.dark .said .word.hot { color: #000; }
.caret { display: inline-block; width: 2px; height: 1.1em; margin-left: 0.2em; vertical-align: text-bottom;
  background: var(--color-accent); }
.note { color: var(--body-text-color-subdued); margin: 0.25rem 0; }
.note.empty { display: grid; place-items: center; text-align: center; min-height: 16rem; margin: 0; padding: 1rem;
  border: 1px dashed var(--border-color-primary); border-radius: 6px; }
.note.trouble { color: var(--body-text-color); margin: 0; padding: 0.75rem 1rem; border-radius: 6px;
  border: 1px solid var(--border-color-primary); border-left: 4px solid #c4281c;
  background: var(--block-background-fill); }
.dark .note.trouble { border-left-color: #ff8a7a; }
.ercr-strip .prose { display: flex; flex-wrap: wrap; gap: 0.75rem; }
.ercr-strip figure { margin: 0; width: 7rem; }
.ercr-strip img { width: 100%; height: auto; border-radius: 4px; display: block; margin: 0; }
.ercr-strip figcaption { font-size: 0.875rem; text-align: center; overflow: hidden; text-overflow: ellipsis;
  white-space: nowrap; color: inherit; margin: 0.125rem 0 0; }
.kept { display: flex; flex-wrap: wrap; gap: 0.125rem 1.25rem; align-items: baseline; font-size: 0.9375rem;
  margin-bottom: 0.5rem; }
.kept span { color: var(--body-text-color-subdued); }
.kept a { padding: 0.25rem 0; }
.ercr-report iframe { width: 100%; height: max(36rem, calc(100vh - 14rem)); display: block; border-radius: 6px;
  border: 1px solid var(--border-color-primary); background: var(--background-fill-primary); }
footer .divider { display: none; }
:focus-visible { outline: 3px solid var(--color-accent) !important; outline-offset: 2px; }
@media (max-width: 760px) {
  .ercr-in { max-width: none; }
  .note.empty { min-height: 6rem; }
  .ercr-strip figure { width: 5.5rem; }
  .ercr-report iframe { height: 92vh; }
}
"""
