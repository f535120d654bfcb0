// Explanations of one image that share their words: figures beside a text, moved by one selection.

import { beforePaint, make, share, visible } from "./dom.js";
import { Selection } from "./selection.js";
import { Sentence } from "./sentence.js";
import { tints } from "./tint.js";
import { Figure, columns } from "./figure.js";
import { Details } from "./details.js";
import { choice } from "./controls.js";
import { conversation } from "./turns.js";

const SIDE = { one: 768, several: 384 }; // pixels of a map's longer side; more figures are smaller and must stay quick
const NARROW = { one: matchMedia("(max-width: 620px)"), several: matchMedia("(max-width: 760px)") }; // as in report.css

export class Group {
  // `tools` stand below the figures; `label` names the group and must be its own; `clocks` are those of clips
  constructor(data, image, clocks, maps, label, tools) {
    this.data = data;
    this.image = image;
    this.clocks = clocks;
    this.label = label;
    this.maps = maps;
    this.panel = 0; // whose numbers the words show
    this.selection = new Selection(
      data.prompts,
      beforePaint(() => this.show()),
    );
    const kind = data.panels.length > 1 ? "several" : "one";
    this.figures = data.panels.map((panel, i) => new Figure(image, panel, maps[i], SIDE[kind], clocks));
    this.#makePrompt();
    const said = data.given ? "Given answer" : "Answer";
    this.answer = new Sentence(data.words.slice(data.prompts), data.prompts, said, this.selection);
    this.other = null; // another word in the place of a word: { word, text, said, difference }
    this.details = new Details(!NARROW[kind].matches, data.grounding, image.items ?? [image], (other) => {
      this.other = other;
      this.show();
    });
    this.holders = data.tables.map(({ rows }) => new Map(rows.flatMap((own, word) => own.map((row) => [row, word]))));
    this.bar = make("span", { class: "bar" });
    this.unit = make("span", { class: "unit" });
    this.answer.element.classList.add("said");
    this.element = make(
      "section",
      { class: this.#kinds(), "aria-label": label },
      make("div", { class: "side" }, this.#pictures(), ...tools),
      this.#texts(said),
    );
    const wide = columns(this.figures.length);
    const items = image.items ?? [image];
    const row = columns(items.length); // pictures side by side
    const aspects = items.map(({ shown }) => shown[0] / shown[1]);
    this.element.style.setProperty("--aspect", (row * aspects.reduce((a, b) => a + b, 0)) / items.length);
    this.element.style.setProperty("--abreast", row);
    this.element.style.setProperty("--deep", Math.ceil(items.length / row));
    this.element.style.setProperty("--columns", wide);
    this.element.style.setProperty("--rows", Math.min(2, Math.ceil(this.figures.length / wide)));
  }

  // One prompt, or the turns of a conversation.
  #makePrompt() {
    const { turns, words, prompts } = this.data;
    if (turns) {
      const made = conversation(turns, words.slice(0, prompts), this.image, this.selection);
      this.prompts = made.sentences;
      this.asked = [make("h2", {}, "Conversation"), made.element];
    } else {
      this.prompts = [new Sentence(words.slice(0, prompts), 0, "Prompt", this.selection)];
      this.prompts[0].element.classList.add("asked");
      this.asked = [make("h2", {}, "Prompt"), this.prompts[0].element];
    }
  }

  #kinds() {
    const kinds = ["group"];
    if (this.data.panels.length > 1) kinds.push("several");
    if (this.image.items) kinds.push("pieced");
    if (this.clocks.some(Boolean)) kinds.push(this.clocks.length > 1 ? "moving mixed" : "moving");
    if (this.clocks.length > 2 || this.data.panels.length > 1) kinds.push("crowded");
    return kinds.join(" ");
  }

  #pictures() {
    const several = this.figures.length > 1;
    // it scrolls where figures are many, so it must be reachable without a pointer
    const region = several ? { tabindex: "0", role: "region", "aria-label": "Maps of all methods" } : {};
    return make("div", { class: "figures", ...region }, ...this.figures.map(({ element }) => element));
  }

  #texts(said) {
    const { prompts, words, panels } = this.data;
    const scale = make(
      "div",
      { class: "scale tints", "aria-hidden": "true" },
      this.unit,
      make("span", {}, "0"),
      this.bar,
      make("span", {}, this.data.grounding ? "1" : share(1)),
      ...(this.data.grounding ? [make("span", { class: "guess" }, "guessed")] : []),
    );
    return make(
      "div",
      { class: "texts" },
      ...this.asked,
      make("h2", {}, said),
      this.answer.element,
      words.length > prompts ? scale : make("p", {}, "The model said nothing."),
      ...(panels.length > 1 ? [this.#tintedBy()] : []),
      this.details.element,
      this.details.spoken,
    );
  }

  #tintedBy() {
    const options = this.data.panels.map(({ label }, i) => [String(i), label]);
    const legend = this.data.grounding ? "Numbers by" : "Words tinted by";
    return choice(`by ${this.label}`, legend, options, "0", (value) => {
      this.panel = Number(value);
      this.refresh();
    });
  }

  get table() {
    return this.data.tables[this.data.panels[this.panel].table];
  }

  // The words of a range as text.
  text([start, stop]) {
    return this.data.words
      .slice(start, stop)
      .map(([space, text], i) => (i && space ? " " : "") + text)
      .join("");
  }

  // Which earlier words hold the listed context tokens of a word, and how heavy they are beside the heaviest.
  subtracted(range) {
    const context = this.look.stage === "context" ? this.data.panels[this.panel].context : null;
    if (!range || !context || range[1] - range[0] > 1) return [];
    const listed = context[range[0]][2];
    const words = this.holders[this.data.panels[this.panel].table];
    return listed.filter(([row]) => words.has(row)).map(([row, alpha]) => [words.get(row), alpha / listed[0][1]]);
  }

  // How a figure is called.
  title(panel, drawn, name, other) {
    const several = this.figures.length > 1;
    if (!name) return several ? panel.label : "Choose a word";
    if (several) {
      if (!drawn) return `${panel.label}: ${other ? "has no such map" : "has no such step"}`;
      return drawn.signed ? panel.label : `${panel.label}: ${share(drawn.share)}`;
    }
    if (other) {
      const [said, instead] = [visible(other.said), visible(other.text)];
      return other.difference ? `“${said}” rather than “${instead}”` : `Evidence for “${instead}” in place of “${said}”`;
    }
    return `${this.look.stage === "context" ? "Subtracted from" : "Evidence for"} “${name}”`;
  }

  // Show the words under the pointer or those that were kept.
  show() {
    const { shown, kept } = this.selection;
    const name = shown ? this.text(shown) : "";
    const single = shown && shown[1] - shown[0] === 1;
    const other = single && this.other?.word === shown[0] ? this.other : null;
    const title = (panel, drawn) => this.title(panel, drawn, name, other);
    for (const figure of this.figures) figure.draw(shown, { ...this.look, name, title, other });
    const subtracted = this.subtracted(shown);
    for (const prompt of this.prompts) prompt.mark(shown, kept, subtracted);
    this.answer.mark(shown, kept, subtracted);
    this.details.show(name, shown, this.maps[this.panel], this.table, this.look.stage, other);
  }

  // When a word is kept, clips that stand still go to the moment of most evidence for it.
  #follow(range) {
    const maps = this.maps[this.panel];
    if (!range || !maps.has("result")) return;
    const spread = maps.spread(maps.values("result", range), range, "result");
    this.clocks.forEach((clock, i) => {
      const most = Math.max(...spread[i]);
      if (clock && !clock.playing && most > 0) clock.seek(clock.item.slices.indexOf(spread[i].indexOf(most)));
    });
  }

  // How strongly each word is tinted: as it was seen, or else by its share of what the strongest word reaches.
  #amounts() {
    const { strength } = this.maps[this.panel].panel;
    const { prompts, grounding } = this.data;
    if (grounding) return grounding.words.map((word) => word?.seen ?? 0);
    const most = Math.max(0, ...strength.slice(prompts)) || 1;
    return strength.map((value) => value / most);
  }

  // After a change of colours or step, tint all words again.
  refresh(look = this.look) {
    this.look = look;
    this.selection.extending = look.phrase;
    const { grounding } = this.data;
    this.answer.tint(tints(this.#amounts(), look), grounding?.words);
    this.unit.textContent = grounding ? "tint: seen" : "tint: strength";
    const [[none], [full]] = tints([0, 1], look);
    this.bar.style.backgroundImage = `linear-gradient(to right, ${none}, ${full})`;
    this.show();
  }

  // Open at the asked-for words, else at the answer's word that was seen best, or that is the strongest.
  open() {
    this.selection.keeps = (range) => this.#follow(range);
    const turns = this.element.querySelector(".turns");
    if (turns) turns.scrollTop = turns.scrollHeight; // the question that was answered
    const { prompts, words } = this.data;
    const amounts = this.#amounts().slice(prompts);
    const best = prompts + amounts.indexOf(Math.max(...amounts));
    this.selection.keep(this.data.open ?? (words.length > prompts ? [best, best + 1] : null));
  }
}
