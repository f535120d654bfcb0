// One picture or one clip with a map over it: what a figure is made of.

import { make } from "./dom.js";
import { Painter, greyness, turnGrey } from "./paint.js";

const fitted = ([width, height], side) => {
  const scale = side / Math.max(width, height);
  return { width: Math.max(1, Math.round(width * scale)), height: Math.max(1, Math.round(height * scale)) };
};

class View {
  constructor(item, grid, side, source) {
    this.item = item;
    this.grid = grid;
    this.source = source; // what holds the pixels
    this.canvas = make("canvas", { ...fitted(item.shown, side), "aria-hidden": "true" });
    this.painter = new Painter(this.canvas, grid);
    this.element = make("div", { class: "picture" }, source, this.canvas);
  }

  // Draw a map of this piece, or one slice of it; `strongest` is at full strength. Without a map nothing is lit.
  paint(map, strongest, look, grey) {
    this.painter.paint(map, strongest, look.colours, look.cold);
    this.source.style.filter = map && grey ? `grayscale(${greyness(look.opacity)})` : "";
  }

  // The picture and its map as a new canvas.
  compose(size, map, strongest, look, grey) {
    const layer = make("canvas", size);
    new Painter(layer, this.grid).paint(map, strongest, look.colours, look.cold);
    const sheet = make("canvas", size);
    const pen = sheet.getContext("2d");
    pen.imageSmoothingQuality = "high";
    pen.drawImage(this.source, 0, 0, size.width, size.height);
    if (map && grey) turnGrey(pen, greyness(look.opacity));
    pen.drawImage(layer, 0, 0);
    return sheet;
  }
}

export class Still extends View {
  constructor(item, grid, side, alt) {
    const [width, height] = item.shown;
    super(item, grid, side, make("img", { src: item.src, alt, width, height, draggable: "false" }));
    this.slice = 0;
  }
}

// The frame that a clock says; frames are drawn into a canvas, because an image that changes its source flickers.
export class Moving extends View {
  constructor(item, grid, side, name, clock) {
    const [width, height] = item.shown;
    super(item, grid, side, make("canvas", { class: "frame", role: "img", width, height }));
    this.name = name;
    this.clock = clock;
    this.show();
  }

  get slice() {
    return this.item.slices[this.clock.frame];
  }

  show() {
    const { frame, item } = this.clock;
    this.source.getContext("2d").drawImage(this.clock.frames[frame], 0, 0, ...item.shown);
    this.source.setAttribute(
      "aria-label",
      `${this.name}, frame ${frame + 1} of ${item.times.length}, at ${item.times[frame].toFixed(1)} seconds`,
    );
  }
}
