// Whether a word was seen in the image or guessed, in words and bars.

import { bars, make, number } from "./dom.js";

export const isGuess = (found) => Boolean(found?.content && found.verdict === "guessed");

// "seen 0.82"; words such as "the" name nothing, so they have no verdict.
export const verdict = (found) => {
  if (!found) return "";
  return found.content ? `${found.verdict} ${number(found.seen)}` : "names nothing";
};

// What the word was read with instead of its image.
const WITHOUT = { text: "image effect", grey: "against grey", noise: "against noise" };

const signed = (value) => (value < 0 ? `−${number(-value, 1)}` : `+${number(value, 1)}`);

// What the verdict is made of: each number with a bar that is full where it speaks for the word as clearly as it can.
const parts = (found, probability) => [
  ...Object.entries(found.effect).map(([kind, nats]) => [
    WITHOUT[kind] ?? `against ${kind}`,
    Math.max(0, nats) / 6,
    signed(nats),
    1,
  ]),
  ...(found.rank === null ? [] : [["best rank", 1 - Math.log10(found.rank) / 4, String(found.rank), 1]]),
  ...(found.lens === null ? [] : [["best spelt", found.lens, number(found.lens), 1]]),
  ...(found.focus === null ? [] : [["focus", found.focus, number(found.focus), 1]]),
  ["probability", probability, number(probability), 1],
];

const ABOUT = {
  seen: "The image speaks for this word.",
  unsure: "The image speaks for this word, but not clearly.",
  guessed: "Little in the image speaks for this word: the text before it explains it, or nothing does.",
};

// "Raised by what the image spells (+1.9), lowered by the model’s doubt (−0.4)."
const moves = (found) => {
  const said = (sign) =>
    found.moves.filter(([, value]) => Math.sign(value) === sign).map(([about, value]) => `${about} (${signed(value)})`);
  const [up, down] = [said(1), said(-1)];
  const parts = [up.length ? `raised by ${up.join(", ")}` : "", down.length ? `lowered by ${down.join(", ")}` : ""];
  const text = parts.filter(Boolean).join("; ");
  return text && `${text[0].toUpperCase()}${text.slice(1)}.`;
};

export const grounds = (found, probability) => {
  if (!found) return [];
  const block = make("section", {}, make("h3", {}, "Seen or guessed?"));
  if (!found.content) block.append(make("p", {}, "This word names nothing that an image could show."));
  else block.append(make("p", {}, ABOUT[found.verdict]));
  block.append(
    bars([...(found.content ? [["seen", found.seen, number(found.seen), 1]] : []), ...parts(found, probability)], "What speaks for it"),
  );
  if (found.content && found.moves?.length) block.append(make("p", {}, moves(found)));
  return [block];
};
