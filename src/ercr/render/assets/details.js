// Details of the shown words: numbers, the model's candidates, and what was subtracted.

import { bars, make, number, share, visible } from "./dom.js";
import { grounds, verdict } from "./grounding.js";
import { Candidates } from "./candidates.js";
import { pieceNames } from "./figure.js";
import { seconds } from "./player.js";

// Where the evidence is strongest: the part of the picture, which of several, and when.
const where = (maps, stage, range, items) => {
  const { piece, slice, cell } = maps.highest(maps.values(stage, range));
  const { grid, centres } = maps.pieces[piece];
  const x = centres[1][cell % grid[1]];
  const y = centres[0][Math.floor(cell / grid[1])];
  const third = (value, names) => names[Math.min(2, Math.max(0, Math.floor(3 * value)))];
  const [upright, across] = [third(y, ["top", "middle", "bottom"]), third(x, ["left", "centre", "right"])];
  const part = upright === "middle" && across === "centre" ? "centre" : `${upright} ${across}`;
  const which = items.length > 1 ? ` of ${pieceNames(items)[piece].toLowerCase()}` : "";
  const { spans } = items[piece];
  const when = spans ? `, from ${spans[slice].map((time) => seconds(time, spans.at(-1)[1])).join(" to ")} seconds` : "";
  return part + which + when;
};

export class Details {
  // `choose` is told which candidate's map to show; `grounding` says of each word whether it was seen; `items` are the
  // pictures and clips.
  constructor(open, grounding, items, choose) {
    this.grounding = grounding;
    this.items = items;
    this.candidates = new Candidates(choose);
    this.title = make("bdi", {});
    this.facts = make("span", { class: "facts" });
    this.body = make("div", { class: "body", tabindex: "0", role: "region", "aria-label": "About the shown word" });
    this.element = make("details", { class: "card", open }, make("summary", {}, this.title, this.facts), this.body);
    this.spoken = make("p", { class: "aloud", role: "status", "aria-live": "polite" });
  }

  // Show the details of a range of words, for one step of one panel; `other` is the candidate whose map is shown.
  show(words, range, maps, table, stage, other) {
    const key = JSON.stringify([range, stage, maps.panel.label]);
    if (other && key === this.key) return this.#say(this.candidates.spoken(other)); // the chooser keeps the focus
    this.key = key;
    this.body.replaceChildren();
    this.body.scrollTop = 0;
    if (!range) {
      this.title.textContent = "No word chosen";
      this.facts.textContent = "";
      this.body.append(
        make("p", {}, "Choose a word to see what the model could have said instead and what was subtracted."),
      );
      return this.#say("");
    }
    const rows = table.rows.slice(...range).flat();
    const probability = rows.reduce((product, row) => product * table.tokens[row][1], 1);
    const held = maps.has(stage) ? stage : "result";
    const strength = Math.max(0, ...maps.panel.strength.slice(...range));
    const part = maps.share(held, range);
    const place = part > 0 ? `, strongest at the ${where(maps, held, range, this.items)}` : "";
    const single = range[1] - range[0] === 1;
    const found = single ? this.grounding?.words[range[0]] : null;
    const amount =
      held === "context"
        ? `subtracted ${share(part)}`
        : `strength ${number(strength)} ${maps.panel.unit} (${share(part)})`.replace("  ", " ");
    this.title.textContent = `“${words}”`;
    this.facts.textContent = [verdict(found), amount, `probability ${number(probability)}`].filter(Boolean).join(", ");
    if (single)
      this.body.append(
        ...grounds(found, probability),
        ...this.candidates.chooser(range[0], maps),
        this.#instead(rows, table),
        this.#context(range[0], maps, table),
      );
    else
      this.body.append(
        make(
          "p",
          {},
          "A phrase: the map is the maximum over its words, the probability their product. Choose one word to see its candidates and context.",
        ),
      );
    return this.#say(`${words}: ${this.facts.textContent}${place}`);
  }

  #instead(rows, table) {
    const block = make("section", {}, make("h3", {}, "The model’s candidates"));
    if (rows.length === 1) {
      const entries = table.tokens[rows[0]][2].map(([text, p]) => [text, p, number(p), 1]);
      block.append(bars(entries, "Candidates and their probabilities"));
      return block;
    }
    for (const row of rows) {
      const [text, p, candidates] = table.tokens[row];
      const others = candidates
        .slice(0, 3)
        .map(([other, q]) => `${visible(other)} ${number(q)}`)
        .join(", ");
      block.append(
        make(
          "p",
          {},
          make("bdi", {}, make("b", {}, visible(text))),
          ` ${number(p)}; candidates: `,
          make("bdi", {}, others),
        ),
      );
    }
    return block;
  }

  #context(word, maps, table) {
    const context = maps.panel.context;
    const block = make("section", {}, make("h3", {}, "Subtracted context"));
    if (!context) {
      block.append(make("p", {}, `Method ${maps.panel.method} subtracts nothing.`));
      return block;
    }
    const [beta, count, listed] = context[word];
    if (!count) {
      block.append(make("p", {}, "No earlier word, so nothing was subtracted."));
      return block;
    }
    const most = listed[0][1];
    const entry = ([row, alpha, relevance]) => [
      table.tokens[row][0],
      alpha,
      number(alpha, 3) + (relevance === null ? "" : `, r ${number(relevance)}`),
      most,
    ];
    const split = count > 12 ? 12 : listed.length;
    block.append(
      make(
        "p",
        {},
        `β ${number(beta)} times the mean map of ${count} earlier ${count === 1 ? "token" : "tokens"}, weighted by α${split < count ? "; the heaviest:" : ":"}`,
      ),
      bars(listed.slice(0, split).map(entry), "Earlier tokens and their weight alpha"),
    );
    if (listed.length > split) {
      block.append(
        make("p", {}, "and the lightest:"),
        bars(listed.slice(split).map(entry), "The tokens with the least weight"),
      );
    }
    return block;
  }

  // Announce to screen readers once the selection has not changed for a moment.
  #say(text) {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => {
      this.spoken.textContent = text;
    }, 300);
  }
}
