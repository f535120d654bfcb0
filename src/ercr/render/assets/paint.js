// A map over the image, in the same colours and with the same reading between cells as the library's overlays.

const FAINTEST = 0.25; // weaker maps are not brightened to the full range, so that very little evidence does not look strong
const DIM = 0.7;
const GREY = 1.5; // greying of the picture as a multiple of the opacity, where its own colours would look like evidence
const LUMINANCE = [0.2126, 0.7152, 0.0722];
const LEVELS = 1024;

export const top = (share) => Math.max(share, FAINTEST);

// How far the picture beneath a map is turned grey, by the style sheet's filter or in a canvas of its own.
export const greyness = (opacity) => Math.min(1, GREY * opacity);

export const turnGrey = (pen, amount) => {
  const image = pen.getImageData(0, 0, pen.canvas.width, pen.canvas.height);
  const { data } = image;
  for (let i = 0; i < data.length; i += 4) {
    const grey = LUMINANCE[0] * data[i] + LUMINANCE[1] * data[i + 1] + LUMINANCE[2] * data[i + 2];
    for (let c = i; c < i + 3; c++) data[c] += amount * (grey - data[c]);
  }
  pen.putImageData(image, 0, 0);
};

// Colour and weight at a share of the full strength: dim the image, then mix the colour in; as one layer over it.
const layer = (table, opacity, light) => {
  const weight = opacity * light;
  const alpha = 1 - (1 - DIM * opacity * (1 - light)) * (1 - weight);
  const entry = 3 * Math.min(255, Math.floor(255 * (0.3 + 0.7 * light) + 0.5));
  const colour = [0, 1, 2].map((c) => (alpha > 0 ? (table[entry + c] * weight) / alpha : 0));
  return [...colour, alpha];
};

// The layer for every level as 32-bit pixels, ready to be copied.
export const lookup = (table, opacity) => {
  const pixels = new Uint8ClampedArray(4 * LEVELS);
  for (let i = 0; i < LEVELS; i++) {
    const [r, g, b, alpha] = layer(table, opacity, i / (LEVELS - 1));
    pixels.set([r, g, b, 255 * alpha], 4 * i);
  }
  return new Uint32Array(pixels.buffer);
};

// A legend's colours: the layer over middle grey; with a table for negative values, those on the left.
const stops = (table, opacity) =>
  Array.from({ length: 17 }, (_, i) => {
    const [r, g, b, alpha] = layer(table, opacity, i / 16);
    const mixed = [r, g, b].map((c) => Math.round(c * alpha + 128 * (1 - alpha)));
    return `rgb(${mixed.join(" ")})`;
  });

export const gradient = (table, opacity, cold = null) => {
  const left = cold ? stops(cold, opacity).reverse() : [];
  return `linear-gradient(to right, ${[...left, ...stops(table, opacity)].join(", ")})`;
};

// Which two cells each pixel lies between, and how far: half-pixel centres, edge values beyond the outermost ones.
// Cells look at `centres`, shares of the image's side, which need not be evenly spaced.
const between = (pixels, centres, first, last) => {
  const low = new Int32Array(pixels);
  const part = new Float32Array(pixels);
  let before = 0;
  for (let i = 0; i < pixels; i++) {
    const place = (i + 0.5) / pixels;
    while (before < centres.length - 2 && centres[before + 1] <= place) before++;
    const step = centres.length > 1 ? centres[before + 1] - centres[before] : 1;
    const at = before + (place - centres[before]) / step;
    const kept = Math.min(Math.max(at, first), last);
    low[i] = Math.min(Math.floor(kept), Math.max(last - 1, first));
    part[i] = kept - low[i];
  }
  return { low, part, last };
};

export class Painter {
  constructor(canvas, panel) {
    this.pen = canvas.getContext("2d");
    this.columns = panel.grid[1];
    this.box = panel.box;
    const { width, height } = canvas;
    const [firstRow, lastRow, firstColumn, lastColumn] = panel.extent;
    this.x = between(width, panel.centres[1], firstColumn, lastColumn);
    this.y = between(height, panel.centres[0], firstRow, lastRow);
    this.image = this.pen.createImageData(width, height);
    this.pixels = new Uint32Array(this.image.data.buffer);
    this.rows = new Float32Array(panel.grid[0] * width);
  }

  // Draw `values`, with `strongest` at full strength; without values clear the layer. Values below 0 have colours of
  // their own.
  paint(values, strongest, colours, below = colours) {
    const { width, height } = this.image;
    this.pen.clearRect(0, 0, width, height);
    if (values) {
      this.#across(values, (LEVELS - 1) / strongest);
      this.#down(colours, below);
      this.pen.putImageData(this.image, 0, 0);
    }
    this.#hatch(width, height);
  }

  #across(values, scale) {
    const { low, part, last } = this.x;
    const width = low.length;
    for (let row = 0; row < this.rows.length / width; row++) {
      for (let x = 0; x < width; x++) {
        const at = row * this.columns + low[x];
        const next = low[x] < last ? values[at + 1] : values[at];
        this.rows[row * width + x] = (values[at] + (next - values[at]) * part[x]) * scale;
      }
    }
  }

  #down(colours, below) {
    const { low, part, last } = this.y;
    const width = this.x.low.length;
    for (let y = 0; y < low.length; y++) {
      const upper = low[y] * width;
      const lower = Math.min(low[y] + 1, last) * width;
      for (let x = 0; x < width; x++) {
        const value = this.rows[upper + x] + (this.rows[lower + x] - this.rows[upper + x]) * part[y];
        const level = Math.min(Math.abs(value) + 0.5, LEVELS - 1) | 0;
        this.pixels[y * width + x] = value < 0 ? below[level] : colours[level];
      }
    }
  }

  // Grey and hatch the parts that the model was not shown.
  #hatch(width, height) {
    const [left, above, right, below] = this.box;
    const inner = [
      Math.max(left, 0) * width,
      Math.max(above, 0) * height,
      Math.min(right, 1) * width,
      Math.min(below, 1) * height,
    ];
    if (inner[0] < 0.5 && inner[1] < 0.5 && inner[2] > width - 0.5 && inner[3] > height - 0.5) return;
    const pen = this.pen;
    pen.save();
    pen.beginPath();
    pen.rect(0, 0, width, height);
    pen.rect(inner[0], inner[1], inner[2] - inner[0], inner[3] - inner[1]);
    pen.clip("evenodd");
    pen.clearRect(0, 0, width, height);
    pen.fillStyle = "rgb(150 150 150 / 0.85)";
    pen.fillRect(0, 0, width, height);
    pen.strokeStyle = "rgb(60 60 60)";
    pen.lineWidth = 1;
    pen.beginPath();
    for (let x = 0; x < width + height; x += 10) {
      pen.moveTo(x, 0);
      pen.lineTo(x - height, height);
    }
    pen.stroke();
    pen.restore();
  }
}
