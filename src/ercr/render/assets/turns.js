// The conversation before the answer: who said what, with pictures and clips in their places.

import { make } from "./dom.js";
import { Sentence } from "./sentence.js";
import { pieceNames } from "./figure.js";

const WHO = { user: "User", assistant: "Assistant", system: "System" };

const thumbnail = (item, name) =>
  make(
    "span",
    { class: "thumb" },
    make("img", { src: item.src ?? item.frames[0], alt: "", width: item.shown[0], height: item.shown[1] }),
    name,
  );

// The turns as one block, and the sentences in it.
export const conversation = (turns, words, image, selection) => {
  const items = image.items ?? [image];
  const names = pieceNames(items);
  const sentences = [];
  const bubbles = turns.map(({ role, parts }, number) => {
    const made = parts.map((part) => {
      if (part.piece !== undefined) return thumbnail(items[part.piece], names[part.piece]);
      if (part.text !== undefined) return make("p", {}, part.text);
      const [start, stop] = part.words;
      const own = words.slice(start, stop).map(([space, text], i) => [i ? space : "", text]);
      const sentence = new Sentence(own, start, `${WHO[role]}, turn ${number + 1}`, selection);
      sentence.element.classList.add("asked");
      sentences.push(sentence);
      return sentence.element;
    });
    const label = make("h3", {}, WHO[role]);
    return make("li", { class: `turn ${role}` }, label, ...made);
  });
  // it scrolls, so it must be reachable without a pointer
  const list = make("ol", {}, ...bubbles);
  const element = make("div", { class: "turns", role: "region", tabindex: "0", "aria-label": "Conversation" }, list);
  return { element, sentences };
};
