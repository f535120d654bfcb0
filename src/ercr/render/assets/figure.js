// One picture with a map over it, its legend, and the button that saves both.

import { make, share, visible } from "./dom.js";
import { Painter, gradient, greyness, top, turnGrey } from "./paint.js";

const SAVED_SIDE = 800; // small pictures are enlarged when saved

const fitted = ([width, height], side) => {
  const scale = side / Math.max(width, height);
  return { width: Math.max(1, Math.round(width * scale)), height: Math.max(1, Math.round(height * scale)) };
};

export class Figure {
  constructor(image, panel, maps, side) {
    this.image = image;
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
    this.unit = make("span", { class: "unit" }, "evidence");
    this.least = make("span", {}, "0");
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
          this.unit,
          this.least,
          this.bar,
          this.peak,
        ),
        ...unseen,
      ),
    );
  }

  // Draw a range of words as `look` says: { stage, colours, cold, table, coldTable, opacity, grey, name, title, other }.
  // `other` is another word in the place of the first one: its text, and whether the difference is shown.
  draw(range, look) {
    this.range = range;
    this.look = look;
    const shown = this.shown();
    this.painter.paint(shown?.values ?? null, top(shown?.share ?? 0), look.colours, look.cold);
    this.picture.style.filter = shown && this.grey ? `grayscale(${greyness(look.opacity)})` : "";
    this.caption.textContent = look.title(this.panel, shown);
    this.bar.style.backgroundImage = gradient(look.table, look.opacity, shown?.signed ? look.coldTable : null);
    this.unit.textContent = shown?.signed ? visible(look.other.text) : "evidence";
    this.least.textContent = shown?.signed ? "" : "0";
    this.peak.textContent = shown?.signed ? visible(look.other.said) : share(shown ? top(shown.share) : 1);
  }

  get grey() {
    return this.look.grey ?? this.image.warm;
  }

  // The values to paint, and how strong the strongest is; null where there are none.
  shown() {
    const { range, look, maps } = this;
    if (!range) return null;
    if (look.other) {
      const column = maps.instead(range[0]).findIndex(([text], i) => i > 0 && text === look.other.text);
      if (column < 0) return null;
      return look.other.difference
        ? { values: maps.difference(range[0], column), share: 1, signed: true }
        : { values: maps.other(range[0], column), share: maps.instead(range[0])[column][2] };
    }
    if (!maps.has(look.stage)) return null;
    return { values: maps.values(look.stage, range), share: maps.share(look.stage, range) };
  }

  // The picture as it is shown, at its own size or larger.
  compose() {
    const { naturalWidth, naturalHeight } = this.picture;
    const times = Math.max(1, Math.ceil(SAVED_SIDE / Math.max(naturalWidth, naturalHeight)));
    const size = { width: naturalWidth * times, height: naturalHeight * times };
    const layer = make("canvas", size);
    const shown = this.shown();
    new Painter(layer, this.panel).paint(
      shown?.values ?? null,
      top(shown?.share ?? 0),
      this.look.colours,
      this.look.cold,
    );
    const sheet = make("canvas", size);
    const pen = sheet.getContext("2d");
    pen.imageSmoothingQuality = "high";
    pen.drawImage(this.picture, 0, 0, size.width, size.height);
    if (shown && this.grey) turnGrey(pen, greyness(this.look.opacity));
    pen.drawImage(layer, 0, 0);
    return sheet;
  }

  download() {
    const plain = (text) =>
      text
        .replace(/[^\p{L}\p{N}]+/gu, "-")
        .replace(/^-|-$/g, "")
        .slice(0, 40);
    const { name: said, other } = this.look;
    const words = other ? [plain(said), other.difference ? "less" : "but", plain(other.text)] : [plain(said)];
    const name = [...words, plain(this.panel.label), "evidence"].filter(Boolean).join("-");
    this.compose().toBlob((blob) => {
      const link = make("a", { href: URL.createObjectURL(blob), download: `${name}.png` });
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    }, "image/png");
  }
}
