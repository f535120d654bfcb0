// Instructions for first-time readers, the meaning of the numbers, and the provenance.

import { byPointer, make } from "./dom.js";
import { pieceNames } from "./figure.js";

export const heading = (panels, { items = [null] }, moving) =>
  make(
    "header",
    {},
    make("h1", {}, panels.length > 1 ? "Image evidence for each word, side by side" : "Image evidence for each word"),
    make(
      "p",
      { class: "lead" },
      `${byPointer("Hover", "Tap")} a word to see where in ${items.length > 1 ? "the pictures" : moving ? "the clip" : "the image"} the evidence for it lies.${moving ? ` ${byPointer("Click", "Tap")} it to go to the moment with most of it.` : ""}`,
    ),
    make(
      "p",
      { class: "keys", id: "ercr-keys" },
      "Click keeps a word, shift-click makes a phrase. Keyboard: arrows move, Enter keeps, Shift and arrows make a phrase, Escape clears.",
    ),
  );

const GROUNDED = [
  [
    "Seen or guessed",
    "A number from 0 to 1, and the tint of a word: of words with such signals, the share whose thing is in the image. Guessed words have a dotted line. It was fitted on names of things, so it says less about other words.",
  ],
  [
    "What it is made of",
    "Image effect: how much the image raises the log-probability of the word, in nats (0.7 doubles it); the same text was read again without the image. Best rank: of the word among all words that any visual token spells; 1 is the first. Best spelt: its highest probability at a visual token. Focus: how compact the evidence is that earlier words do not share. Probability: of the word, by the model itself.",
  ],
];

const MEANING = [
  [
    "Evidence",
    "How strongly a part of the image speaks for the word. Its strength is measured in the method’s own unit, before maps are stretched to their colours; in percent of what the answer’s strongest word reaches. It is not a proof that the model would say something else without that part.",
  ],
  [
    "Colours",
    "Run from 0 to the word’s highest evidence, or to 25 % of the strongest word’s if that is more, so that very little evidence does not look strong.",
  ],
  ["Probability", "Of the word given everything before it, by the model itself."],
  [
    "α and β",
    "The maps also contain evidence for earlier words. The maps of those words are averaged with weights α, scaled by the factor β, and subtracted. r says how similar the model’s predictions were at both words: the more similar, the less is subtracted.",
  ],
];

const SPREAD = [
  [
    "Share of the evidence",
    "How the evidence for the word is spread over the pictures, or over the time of a clip. A picture counts the same whatever its size, and as much as one step of a clip’s time.",
  ],
];

const plain = (value) =>
  Array.isArray(value) ? value.map(plain).join("/") : value === true ? "on" : value === false ? "off" : String(value);

// The grids of several pictures and clips are named one after another.
const grids = (panel, name) =>
  (panel.pieces ?? [panel])
    .map((piece) => (piece.slices > 1 ? `${piece.slices} x ` : "") + piece[name].join(" x "))
    .join(" + ");

const cells = (panel) => grids(panel, "tokens");

const coarse = (panel) =>
  grids(panel, "grid") === cells(panel) ? "" : ` (stored here as ${grids(panel, "grid")})`;

const provenance = (panel) => {
  const settings = Object.entries(panel.settings)
    .map(([name, value]) => `${name}=${plain(value)}`)
    .join(", ");
  const versions = Object.entries(panel.versions)
    .map(([name, value]) => `${name} ${plain(value)}`)
    .join(", ");
  return [
    [
      panel.label,
      `model ${panel.model}, method ${panel.method}${settings ? ` (${settings})` : ""}, ${cells(panel)} cells${coarse(panel)}${versions ? `; ${versions}` : ""}`,
    ],
  ];
};

const named = (items) => pieceNames(items).map((name, i) => [name, items[i]]);

const pictures = (images) =>
  images.flatMap(({ items, ...one }) => (items ? named(items) : [["Image", one]])).map(([name, item]) => {
    const { size, shown, format, lossless, times } = item;
    const same = size[0] === shown[0] && lossless;
    return [
      name + (times ? `, ${times.length} frames` : ""),
      same
        ? `${size.join(" x ")} pixels, as it was explained.`
        : `Shown at ${shown.join(" x ")} pixels, encoded as ${format}; explained at ${size.join(" x ")} pixels.`,
    ];
  });

export const about = (data) => {
  const panels = data.groups.flatMap((group) => group.panels);
  const calibrations = [...new Set(data.groups.flatMap(({ grounding }) => (grounding ? [grounding.calibration] : [])))];
  const rows = [
    ...(calibrations.length ? [...GROUNDED, ["Calibration", calibrations.join(", ")]] : []),
    ...MEANING,
    ...(data.images.some(({ items }) => items) ? SPREAD : []),
    ...pictures(data.images),
    ...panels.flatMap(provenance),
  ];
  const list = make(
    "dl",
    {},
    ...rows.flatMap(([term, text]) => [make("dt", {}, term), make("dd", {}, make("bdi", {}, text))]),
  );
  return make(
    "footer",
    {},
    make("details", {}, make("summary", {}, "What the numbers mean, and how this was made"), list),
  );
};
