// One picture with a map over it, its legend, and the button that saves both.

import { make, number, share } from "./dom.js";
import { Painter, gradient, greyness, top, turnGrey } from "./paint.js";

const SAVED_SIDE = 800; // small pictures are enlarged when saved

const fitted = ([width, height], side) => {
  const scale = side / Math.max(width, height);
  return { width: Math.max(1, Math.round(width * scale)), height: Math.max(1, Math.round(height * scale)) };
};

export class Figure {
  constructor(image, panel, maps, side) {
    this.maps = maps;
    this.panel = panel;
    this.range = null;
    this.picture = make("img", {
      src: image.src,
      alt: "The image that was explained",
      width: image.shown[0],
      height: image.shown[1],
      draggable: "false",
    });
    this.canvas = make("canvas", { ...fitted(image.shown, side), "aria-hidden": "true" });
    this.painter = new Painter(this.canvas, panel);
    this.caption = make("strong", { class: "shown", title: panel.label });
    this.bar = make("span", { class: "bar" });
    this.peak = make("span", { class: "peak" });
    this.save = make(
      "button",
      {
        type: "button",
        class: "save",
        title: "Save the picture as PNG",
        "aria-label": `Save the picture of ${panel.label} as PNG`,
      },
      "Save",
    );
    this.save.addEventListener("click", () => this.download());
    const unseen = panel.whole
      ? []
      : [
          make(
            "p",
            { class: "unseen" },
            `Hatched: ${share(1 - panel.seen)} of the image, which the model was not shown.`,
          ),
        ];
    this.element = make(
      "figure",
      { "aria-label": `Evidence over the image, ${panel.label}` },
      make("div", { class: "picture" }, this.picture, this.canvas),
      make(
        "figcaption",
        {},
        make("div", { class: "title" }, this.caption, this.save),
        make(
          "div",
          { class: "scale", "aria-hidden": "true" },
          make("span", { class: "unit" }, "evidence"),
          make("span", {}, "0"),
          this.bar,
          this.peak,
        ),
        ...unseen,
      ),
    );
  }

  // Draw a range of words as `look` says: { stage, colours, table, opacity, name, title }.
  draw(range, look) {
    this.range = range;
    this.look = look;
    const there = range && this.maps.has(look.stage);
    const evidence = there ? this.maps.evidence(look.stage, range) : 0;
    this.painter.paint(there ? this.maps.values(look.stage, range) : null, top(evidence), look.colours);
    this.picture.style.filter = there ? `grayscale(${greyness(look.opacity)})` : "";
    this.caption.textContent = look.title(this.panel, there ? evidence : null);
    this.bar.style.backgroundImage = gradient(look.table, look.opacity);
    this.peak.textContent = there ? number(top(evidence)) : "1";
  }

  // The picture as it is shown, at its own size or larger.
  compose() {
    const { naturalWidth, naturalHeight } = this.picture;
    const times = Math.max(1, Math.ceil(SAVED_SIDE / Math.max(naturalWidth, naturalHeight)));
    const size = { width: naturalWidth * times, height: naturalHeight * times };
    const layer = make("canvas", size);
    const there = this.range && this.maps.has(this.look.stage);
    const evidence = there ? this.maps.evidence(this.look.stage, this.range) : 0;
    new Painter(layer, this.panel).paint(
      there ? this.maps.values(this.look.stage, this.range) : null,
      top(evidence),
      this.look.colours,
    );
    const sheet = make("canvas", size);
    const pen = sheet.getContext("2d");
    pen.imageSmoothingQuality = "high";
    pen.drawImage(this.picture, 0, 0, size.width, size.height);
    if (there) turnGrey(pen, greyness(this.look.opacity));
    pen.drawImage(layer, 0, 0);
    return sheet;
  }

  download() {
    const plain = (text) =>
      text
        .replace(/[^\p{L}\p{N}]+/gu, "-")
        .replace(/^-|-$/g, "")
        .slice(0, 40);
    const name = [plain(this.look.name), plain(this.panel.label), "evidence"].filter(Boolean).join("-");
    this.compose().toBlob((blob) => {
      const link = make("a", { href: URL.createObjectURL(blob), download: `${name}.png` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    }, "image/png");
  }
}
