// Pictures and clips with a map over them, their legend, and the button that saves them.

import { make, share, visible } from "./dom.js";
import { gradient, top } from "./paint.js";
import { Moving, Still } from "./view.js";
import { Player } from "./player.js";

const SAVED_SIDE = 800; // small pictures are enlarged when saved
const GAP = 12; // pixels between several of them

// How many stand side by side: four of them two by two rather than three and one.
export const columns = (count) => (count < 4 ? count : count === 4 ? 2 : count < 10 ? 3 : 4);

// `Picture 1`, `Clip 2`; one picture or clip alone has no number.
export const pieceNames = (items) =>
  items.map((item, i) => `${item.frames ? "Clip" : "Picture"}${items.length > 1 ? ` ${i + 1}` : ""}`);

export class Figure {
  // `clocks` has one for each clip, and null for each picture.
  constructor(image, panel, maps, side, clocks) {
    this.image = image;
    this.maps = maps;
    this.panel = panel;
    this.range = null;
    this.clocks = clocks;
    const items = image.items ?? [image];
    this.names = pieceNames(items);
    this.views = items.map((item, i) => this.#view(item, maps.pieces[i], side / Math.sqrt(items.length), i));
    this.players = clocks.map((clock, i) => clock && new Player(clock, this.names[i]));
    for (const clock of clocks) clock?.changed.push(() => this.move(clock));
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
    this.element = make(
      "figure",
      { "aria-label": `Evidence over the image, ${panel.label}` },
      image.items ? this.#pieces() : this.views[0].element,
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
        ...this.#unseen(),
      ),
    );
  }

  #view(item, grid, side, i) {
    if (item.frames) return new Moving(item, grid, side, this.names[i], this.clocks[i]);
    const alt = this.image.items ? this.names[i] : "The image that was explained";
    return new Still(item, grid, side, alt);
  }

  #pieces() {
    this.parts = this.views.map(() => make("span", { class: "part" }));
    const aspects = this.views.map(({ item: { shown } }) => shown[0] / shown[1]);
    const abreast = columns(aspects.length);
    const rows = aspects.map((_, i) => aspects.slice(i, i + abreast)).filter((_, i) => i % abreast === 0);
    const widest = Math.max(...rows.map((row) => row.reduce((a, b) => a + b)));
    const pieces = this.views.map((view, i) => {
      const [width, height] = view.item.shown;
      const label = make("div", { class: "which" }, make("span", {}, this.names[i]), this.parts[i]);
      const player = this.players[i] ? [this.players[i].element] : [];
      const parts = [...(aspects.length > 1 ? [label] : []), ...player]; // one clip alone needs no name
      const piece = make("div", { class: player.length ? "piece clip" : "piece" }, view.element, ...parts);
      piece.style.setProperty("--aspect", width / height);
      piece.style.setProperty("--share-of-row", width / height / widest);
      return piece;
    });
    return make("div", { class: "pieces" }, ...pieces);
  }

  #unseen() {
    const several = this.maps.pieces.length > 1;
    return this.maps.pieces.flatMap(({ whole, seen }, i) => {
      const what = several ? this.names[i].toLowerCase() : "the image";
      const told = `Hatched: ${share(1 - seen)} of ${what}, which the model was not shown.`;
      return whole ? [] : [make("p", { class: "unseen" }, told)];
    });
  }

  // Draw a range of words as `look` says: { stage, colours, cold, table, coldTable, opacity, grey, name, title, other }.
  // `other` is another word in the place of the first one: its text, and whether the difference is shown.
  draw(range, look) {
    this.range = range;
    this.look = look;
    const shown = (this.found = this.shown());
    this.views.forEach((_, i) => this.#paint(i));
    this.#tellShares(shown);
    this.caption.textContent = look.title(this.panel, shown);
    this.bar.style.backgroundImage = gradient(look.table, look.opacity, shown?.signed ? look.coldTable : null);
    this.unit.textContent = shown?.signed ? visible(look.other.text) : "evidence";
    this.least.textContent = shown?.signed ? "" : "0";
    this.peak.textContent = shown?.signed ? visible(look.other.said) : share(shown ? top(shown.share) : 1);
  }

  // How much of the evidence each piece has, and how it is spread over the time of a clip.
  #tellShares(shown) {
    if (!this.parts) return;
    const spread = shown && !shown.signed ? this.maps.spread(shown.values, this.look.other ? null : this.range, this.look.stage) : null;
    this.views.forEach((_, i) => {
      const total = spread ? spread[i].reduce((sum, part) => sum + part, 0) : 0;
      const told = [share(total), make("span", { class: "long" }, " of the evidence")];
      this.parts[i].replaceChildren(...(spread && this.views.length > 1 ? told : []));
      this.parts[i].style.setProperty("--share", total.toFixed(3));
      const name = this.look.other ? visible(this.look.other.text) : this.look.name;
      this.players[i]?.plot(spread?.[i] ?? null, name);
    });
  }

  // The map of one piece, at the moment that is shown.
  #map(i) {
    return this.found ? this.maps.part(this.found.values, i, this.views[i].slice) : null;
  }

  #paint(i) {
    this.views[i].paint(this.#map(i), top(this.found?.share ?? 0), this.look, this.grey);
  }

  // A clip shows another frame, or begins or ends to play.
  move(clock) {
    const i = this.clocks.indexOf(clock);
    this.views[i].show();
    this.players[i].show();
    if (this.look) this.#paint(i);
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

  // The picture as it is shown, at its own size or larger; several at one height, side by side.
  compose() {
    const high = Math.max(...this.views.map(({ item }) => item.shown[1]));
    const sizes = this.views.map(({ item: { shown } }) => (this.views.length > 1 ? [(shown[0] * high) / shown[1], high] : shown));
    const longest = Math.max(...sizes.flat());
    const times = Math.max(1, Math.ceil(SAVED_SIDE / longest));
    const sheets = this.views.map((view, i) => {
      const [width, height] = sizes[i].map((side) => Math.round(side * times));
      return view.compose({ width, height }, this.#map(i), top(this.found?.share ?? 0), this.look, this.grey);
    });
    if (sheets.length === 1) return sheets[0];
    const width = sheets.reduce((sum, sheet) => sum + sheet.width + GAP, -GAP);
    const row = make("canvas", { width, height: sheets[0].height });
    const pen = row.getContext("2d");
    pen.fillStyle = "#fff";
    pen.fillRect(0, 0, row.width, row.height);
    sheets.reduce((left, sheet) => {
      pen.drawImage(sheet, left, 0);
      return left + sheet.width + GAP;
    }, 0);
    return row;
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
