// The page: one heading, then for every group of explanations its figures, its words and what is known of them.

import { beforePaint, make, number } from "./dom.js";
import { Maps, bytes } from "./unpack.js";
import { lookup } from "./paint.js";
import { Selection } from "./selection.js";
import { Sentence } from "./sentence.js";
import { tints } from "./tint.js";
import { Figure } from "./figure.js";
import { Details } from "./details.js";
import { choice, controls } from "./controls.js";
import { about, heading } from "./about.js";

const SIDE = { one: 768, several: 384 }; // pixels of a map's longer side; more figures are smaller and must stay quick
const NARROW = matchMedia("(max-width: 760px)");
const DARK = matchMedia("(prefers-color-scheme: dark)");

class Group {
  constructor(data, image, maps, number) {
    this.data = data;
    this.maps = maps;
    this.panel = 0; // whose numbers the words show
    this.selection = new Selection(data.prompts, beforePaint(() => this.show()));
    const side = data.panels.length > 1 ? SIDE.several : SIDE.one;
    this.figures = data.panels.map((panel, i) => new Figure(image, panel, maps[i], side));
    this.prompt = new Sentence(data.words.slice(0, data.prompts), 0, "Prompt", this.selection);
    const said = data.given ? "Given answer" : "Answer";
    this.answer = new Sentence(data.words.slice(data.prompts), data.prompts, said, this.selection);
    this.details = new Details(!NARROW.matches);
    this.holders = data.tables.map(({ rows }) => new Map(rows.flatMap((own, word) => own.map((row) => [row, word]))));
    const options = data.panels.map(({ label }, i) => [String(i), label]);
    const by = choice(`panel-${number}`, "Words tinted by", options, "0", (value) => {
      this.panel = Number(value);
      this.refresh();
    });
    this.bar = make("span", { class: "bar" });
    const scale = make("div", { class: "scale tints", "aria-hidden": "true" }, make("span", { class: "unit" }, "tint: a word’s strongest evidence"), make("span", {}, "0"), this.bar, make("span", {}, "1"));
    const spoken = data.words.length > data.prompts ? scale : make("p", {}, "The model said nothing.");
    this.texts = make("div", { class: "texts" },
      make("h2", {}, "Prompt"), this.prompt.element,
      make("h2", {}, said), this.answer.element, spoken,
      ...(options.length > 1 ? [by] : []), this.details.element, this.details.spoken);
    this.prompt.element.classList.add("asked");
    this.answer.element.classList.add("said");
  }

  get table() {
    return this.data.tables[this.data.panels[this.panel].table];
  }

  // The words of a range as text.
  text([start, stop]) {
    return this.data.words.slice(start, stop).map(([space, text], i) => (i && space ? " " : "") + text).join("");
  }

  // Which earlier words hold the listed context tokens of a word, and how heavy they are beside the heaviest.
  subtracted(range) {
    const context = this.look.stage === "context" ? this.data.panels[this.panel].context : null;
    if (!range || !context || range[1] - range[0] > 1) return [];
    const listed = context[range[0]][2];
    const words = this.holders[this.data.panels[this.panel].table];
    return listed.filter(([row]) => words.has(row)).map(([row, alpha]) => [words.get(row), alpha / listed[0][1]]);
  }

  // Show the words under the pointer or those that were kept.
  show() {
    const { shown, kept } = this.selection;
    const name = shown ? this.text(shown) : "";
    const several = this.figures.length > 1;
    const title = (panel, evidence) => {
      if (!shown) return several ? panel.label : "Choose a word";
      const amount = evidence === null ? "has no such step" : number(evidence);
      return several ? `${panel.label}: ${amount}` : `Evidence for “${name}”`;
    };
    for (const figure of this.figures) figure.draw(shown, { ...this.look, name, title });
    const subtracted = this.subtracted(shown);
    this.prompt.mark(shown, kept, subtracted);
    this.answer.mark(shown, kept, subtracted);
    this.details.show(name, shown, this.maps[this.panel], this.table, this.look.stage);
  }

  // Colours or the step changed: tint all words anew.
  refresh(look = this.look) {
    this.look = look;
    this.selection.extending = look.phrase;
    const maps = this.maps[this.panel];
    const stage = maps.has(look.stage) ? look.stage : "result";
    const colours = tints(maps.panel.evidence[maps.stages.indexOf(stage)], look.table, look.paper, DARK.matches);
    this.answer.tint(colours);
    this.bar.style.backgroundImage = `linear-gradient(to right, ${tints([0, 1], look.table, look.paper, DARK.matches).map(([back]) => back).join(", ")})`;
    this.show();
  }

  // Open at the asked-for words, else at the answer's word with the strongest evidence.
  open() {
    const { prompts, words } = this.data;
    const strengths = this.maps[0].panel.evidence[this.maps[0].stages.indexOf("result")].slice(prompts);
    const best = prompts + strengths.indexOf(Math.max(...strengths));
    this.selection.keep(this.data.open ?? (words.length > prompts ? [best, best + 1] : null));
  }
}

const mount = async (root, data) => {
  const settings = { opacity: 0.7, colormap: Object.keys(data.colormaps)[0], stage: "result", phrase: false };
  const tables = Object.fromEntries(Object.entries(data.colormaps).map(([name, text]) => [name, bytes(text)]));
  const maps = await Promise.all(data.groups.map((group) => Promise.all(group.panels.map((panel) => Maps.of(panel)))));
  const groups = data.groups.map((group, i) => new Group(group, data.images[group.image], maps[i], i));
  const panels = data.groups.flatMap((group) => group.panels);
  const refresh = beforePaint(() => {
    const table = tables[settings.colormap];
    const paper = getComputedStyle(root).backgroundColor.match(/\d+/g).slice(0, 3).map(Number);
    const look = { ...settings, table, paper, colours: lookup(table, settings.opacity) };
    for (const group of groups) group.refresh(look);
  });
  const panel = controls(settings, Object.keys(tables), panels, refresh);
  root.append(heading(panels), ...groups.map(({ data: { panels: own }, figures, texts }, i) => {
    const pictures = make("div", { class: "figures", ...(own.length > 1 ? { tabindex: "0", role: "region", "aria-label": "Maps of all methods" } : {}) }, ...figures.map(({ element }) => element));
    const side = make("div", { class: "side" }, pictures, ...(i === 0 ? [panel] : []));
    const section = make("section", { class: own.length > 1 ? "group several" : "group", "aria-label": groups.length > 1 ? `Answer ${i + 1} of ${groups.length}` : "Answer and evidence" }, side, texts);
    section.style.setProperty("--aspect", data.images[data.groups[i].image].shown.reduce((width, height) => width / height));
    return section;
  }), about(data));
  DARK.addEventListener("change", refresh);
  refresh();
  for (const group of groups) group.open();
  requestAnimationFrame(() => requestAnimationFrame(() => root.setAttribute("data-ready", "")));
};

const root = document.querySelector("main.ercr");
mount(root, JSON.parse(document.getElementById("ercr-data").textContent)).catch((error) => {
  root.append(make("p", { role: "alert" }, "This page could not be drawn; it needs a browser of 2023 or later."));
  throw error;
});
