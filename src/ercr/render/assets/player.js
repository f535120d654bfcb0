// Below a clip: play and pause, a slider over its time, and how the evidence for a word is spread over it.

import { byPointer, make, share } from "./dom.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDE = 1000; // units of the drawing, which is stretched to the room
const HIGH = 100;

const draw = (tag, attributes) => {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  return node;
};

// Round steps of seconds, at most five of them.
const step = (end) => {
  const rough = end / 5;
  const power = 10 ** Math.floor(Math.log10(rough));
  return [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough * 0.999);
};

export const seconds = (time, end) => time.toFixed(end < 20 ? 1 : 0);

const ticks = (end) => {
  const each = step(end);
  const digits = each < 1 ? Math.ceil(-Math.log10(each)) : 0;
  const found = Array.from({ length: Math.floor(end / each + 1e-6) + 1 }, (_, i) => i * each);
  return found.map((time) => {
    const node = make("span", {}, `${time.toFixed(digits)}${time ? "" : " s"}`);
    node.style.left = `${(100 * time) / end}%`;
    return node;
  });
};

export class Player {
  constructor(clock, name) {
    this.clock = clock;
    this.name = name;
    this.button = make("button", { type: "button", class: "play" });
    this.button.addEventListener("click", () => clock.toggle());
    this.moment = make("span", { class: "moment", "aria-hidden": "true" });
    this.slider = make("input", {
      type: "range",
      min: "0",
      max: String(clock.end),
      step: "any",
      value: "0",
      "aria-label": `Moment of ${name === "Clip" ? "the clip" : name}`,
    });
    this.slider.addEventListener("input", () => this.#seek(clock.near(Number(this.slider.value))));
    this.slider.addEventListener("keydown", (event) => this.#key(event));
    this.#makeCurve();
    this.highest = make("span", {});
    this.legend = make("div", { class: "legend", "aria-hidden": "true" });
    this.element = make(
      "div",
      { class: "player" },
      make("div", { class: "buttons" }, this.button, this.moment),
      this.legend,
      make("div", { class: "amounts", "aria-hidden": "true" }, this.highest, make("span", {}, "0")),
      this.curve,
      this.slider,
      make("div", { class: "ticks", "aria-hidden": "true" }, ...ticks(clock.end)),
    );
    this.show();
  }

  #makeCurve() {
    this.area = draw("path", { class: "area" });
    this.line = draw("path", { class: "line", "vector-effect": "non-scaling-stroke" });
    this.span = draw("rect", { class: "span", y: 0, height: HIGH });
    this.now = draw("line", { class: "now", y1: 0, y2: HIGH, "vector-effect": "non-scaling-stroke" });
    this.curve = draw("svg", { class: "curve", role: "img", viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none" });
    this.curve.append(this.span, this.area, this.line, this.now);
    const seek = (event) => {
      const { left, width } = this.curve.getBoundingClientRect();
      this.#seek(this.clock.near((this.clock.end * (event.clientX - left)) / width));
    };
    this.curve.addEventListener("pointerdown", (event) => {
      this.curve.setPointerCapture(event.pointerId);
      seek(event);
    });
    this.curve.addEventListener("pointermove", (event) => event.buttons && seek(event));
  }

  #seek(frame) {
    this.clock.pause();
    this.clock.seek(frame);
    this.show(); // the thumb goes to the frame, also where it is the one that was shown
  }

  #key(event) {
    const { frame, last } = this.clock;
    const page = Math.max(1, Math.round((last + 1) / 10));
    const to = {
      ArrowRight: frame + 1,
      ArrowUp: frame + 1,
      ArrowLeft: frame - 1,
      ArrowDown: frame - 1,
      PageUp: frame + page,
      PageDown: frame - page,
      Home: 0,
      End: last,
    }[event.key];
    if (to === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    this.#seek(to);
  }

  // The moment that the clock shows.
  show() {
    const { clock } = this;
    const { times, spans, slices } = clock.item;
    const [time, last] = [times[clock.frame], times.length];
    const told = `${seconds(time, clock.end)} of ${seconds(clock.end, clock.end)} seconds, frame ${clock.frame + 1} of ${last}`;
    this.slider.value = String(time);
    this.slider.setAttribute("aria-valuetext", told);
    this.moment.textContent = `${seconds(time, clock.end)} s of ${seconds(clock.end, clock.end)} s, frame ${clock.frame + 1} of ${last}`;
    const faster = clock.speed > 1.01 ? `, ${Math.round(clock.speed)} times as fast as it was` : "";
    this.button.textContent = clock.playing ? "❚❚ Pause" : "▶ Play";
    this.button.setAttribute("aria-label", `${clock.playing ? "Pause" : "Play"} ${this.name.toLowerCase()}${faster}`);
    const [from, to] = spans[slices[clock.frame]].map((at) => (WIDE * at) / clock.end);
    this.span.setAttribute("x", from);
    this.span.setAttribute("width", to - from);
    for (const end of ["x1", "x2"]) this.now.setAttribute(end, (WIDE * time) / clock.end);
  }

  // The shares of a word's evidence in each slice; null where no word is shown.
  plot(shares, word) {
    const { spans } = this.clock.item;
    const most = Math.max(0, ...(shares ?? []));
    const points = spans.flatMap(([start, stop], i) => {
      const y = HIGH - (most > 0 ? (0.96 * HIGH * shares[i]) / most : 0);
      return [start, stop].map((at) => `${((WIDE * at) / this.clock.end).toFixed(1)} ${y.toFixed(1)}`);
    });
    this.line.setAttribute("d", shares ? `M${points.join("L")}` : "");
    this.area.setAttribute("d", shares ? `M0 ${HIGH}L${points.join("L")}L${WIDE} ${HIGH}Z` : "");
    this.legend.textContent = shares ? `Evidence for “${word}” over time` : "Choose a word";
    this.highest.textContent = shares ? share(most) : "";
    this.curve.setAttribute("aria-label", shares ? this.#told(shares, most, word) : "No word is shown.");
  }

  #told(shares, most, word) {
    const [start, stop] = this.clock.item.spans[shares.indexOf(most)];
    const [from, to] = [start, stop].map((time) => seconds(time, this.clock.end));
    const peak = most > 0 ? `, most from ${from} to ${to} seconds: ${share(most)}` : ": none";
    return `Share of the evidence for “${word}” over time${peak}. ${byPointer("Click", "Tap")} to go to a moment.`;
  }
}
