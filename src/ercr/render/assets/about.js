// Instructions for first-time readers, the meaning of the numbers, and the provenance.

import { byPointer, make } from "./dom.js";

export const heading = (panels) =>
  make(
    "header",
    {},
    make("h1", {}, panels.length > 1 ? "Image evidence for each word, side by side" : "Image evidence for each word"),
    make(
      "p",
      { class: "lead" },
      `${byPointer("Hover", "Tap")} a word to see where in the image the evidence for it lies.`,
    ),
    make(
      "p",
      { class: "keys", id: "ercr-keys" },
      "Click keeps a word, shift-click makes a phrase. Keyboard: arrows move, Enter keeps, Shift and arrows make a phrase, Escape clears.",
    ),
  );

const MEANING = [
  [
    "Evidence",
    "How strongly a part of the image speaks for the word, from 0 to 1. A word’s tint is its strongest evidence anywhere. It is not a proof that the model would say something else without that part.",
  ],
  [
    "Colours",
    "Run from 0 to the word’s strongest evidence, or to 0.25 if that is weaker, so that very little evidence does not look strong.",
  ],
  ["Probability", "Of the word given everything before it, by the model itself."],
  [
    "α and β",
    "The maps also contain evidence for earlier words. The maps of those words are averaged with weights α, scaled by the factor β, and subtracted. r says how similar the model’s predictions were at both words: the more similar, the less is subtracted.",
  ],
];

const plain = (value) =>
  Array.isArray(value) ? value.map(plain).join("/") : value === true ? "on" : value === false ? "off" : String(value);

const provenance = (panel) => {
  const settings = Object.entries(panel.settings)
    .map(([name, value]) => `${name}=${plain(value)}`)
    .join(", ");
  const versions = Object.entries(panel.versions)
    .map(([name, value]) => `${name} ${plain(value)}`)
    .join(", ");
  const coarse = panel.grid[0] === panel.tokens[0] ? "" : ` (stored here as ${panel.grid.join(" x ")})`;
  return [
    [
      panel.label,
      `model ${panel.model}, method ${panel.method}${settings ? ` (${settings})` : ""}, ${panel.tokens.join(" x ")} cells${coarse}${versions ? `; ${versions}` : ""}`,
    ],
  ];
};

const pictures = (images) =>
  images.map(({ size, shown, format, lossless }) => {
    const same = size[0] === shown[0] && lossless;
    return [
      "Image",
      same
        ? `${size.join(" x ")} pixels, as it was explained.`
        : `Shown at ${shown.join(" x ")} pixels, encoded as ${format}; explained at ${size.join(" x ")} pixels.`,
    ];
  });

export const about = (data) => {
  const panels = data.groups.flatMap((group) => group.panels);
  const rows = [...MEANING, ...pictures(data.images), ...panels.flatMap(provenance)];
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
