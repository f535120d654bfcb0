// Words that could have been said: whose map to look at, and where the evidence differs from the word's that was said.

import { choice } from "./controls.js";
import { make, share, visible } from "./dom.js";

let made = 0; // choosers so far, because radio buttons of one name belong together

export class Candidates {
  constructor(choose) {
    this.choose = choose;
  }

  // A chooser for a word that has maps of others; nothing where there are none.
  chooser(word, maps) {
    const [said, ...others] = maps.instead(word);
    if (!others.length) return [];
    const chosen = { word, said: said[0], text: null, difference: true };
    const tell = () => this.choose(chosen.text === null ? null : { ...chosen });
    const options = [
      ["-1", visible(said[0]), "The map of what was said."],
      ...others.map(([text, , part], i) => [
        String(i),
        visible(text),
        `In this place it would reach ${share(part)} of the answer’s strongest word.`,
      ]),
    ];
    made += 1;
    const words = choice(`instead ${made}`, "Why this word and not another?", options, "-1", (value) => {
      chosen.text = value === "-1" ? null : others[Number(value)][0];
      tell();
    });
    const views = [
      ["difference", "Difference", "Warm: more evidence for what was said. Blue: more for the other."],
      ["map", "Its own map", "Where the evidence for the other word lies."],
    ];
    const view = choice(`view ${made}`, "Show", views, "difference", (value) => {
      chosen.difference = value === "difference";
      tell();
    });
    return [make("section", { class: "instead" }, words, view)];
  }

  // What a screen reader hears about the chosen candidate.
  spoken({ said, text, difference }) {
    const [one, two] = [visible(said), visible(text)];
    return difference ? `${one} rather than ${two}` : `${two} in place of ${one}`;
  }
}
