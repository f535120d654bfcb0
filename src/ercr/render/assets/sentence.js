// The words of the prompt or the answer: a list to point at, click, and walk through with the arrow keys.

import { make } from "./dom.js";
import { isGuess } from "./grounding.js";

export class Sentence {
  constructor(words, first, label, selection) {
    this.first = first; // index of the first word among all words
    this.selection = selection;
    // the background of a word directly after another must not cover its last letter
    this.nodes = words.map(([space, text], i) =>
      make(
        "span",
        { class: i && !space ? "word tight" : "word", role: "option", "aria-selected": "false", tabindex: "-1" },
        text,
      ),
    );
    const children = words.flatMap(([space], i) => (space ? [space, this.nodes[i]] : [this.nodes[i]]));
    this.element = make(
      "div",
      {
        class: "sentence",
        role: "listbox",
        dir: "auto",
        "aria-label": label,
        "aria-multiselectable": "true",
        "aria-orientation": "horizontal",
        "aria-describedby": "ercr-keys",
      },
      ...children,
    );
    this.places = new Map(this.nodes.map((node, i) => [node, i]));
    this.marked = [];
    if (this.nodes.length) this.nodes[0].tabIndex = 0;
    this.#listen();
  }

  #at(target) {
    const node = target.closest?.(".word");
    return node ? this.places.get(node) : undefined;
  }

  #listen() {
    const { element, selection } = this;
    element.addEventListener("pointerover", (event) => {
      const place = this.#at(event.target);
      if (event.pointerType !== "touch" && place !== undefined) selection.look(this.first + place);
    });
    element.addEventListener("pointerleave", () => selection.look(null));
    element.addEventListener("focusin", (event) => {
      this.#rove(this.#at(event.target));
      if (event.target.matches(":focus-visible") && !this.extending)
        selection.look(this.first + this.#at(event.target));
    });
    element.addEventListener("focusout", () => selection.look(null));
    element.addEventListener("mousedown", (event) => event.shiftKey && event.preventDefault()); // no text selection
    element.addEventListener("click", (event) => {
      const place = this.#at(event.target);
      if (place === undefined) return;
      this.#focus(place, { preventScroll: true }); // a shift-click does not move the focus by itself
      if (event.shiftKey || selection.extending) selection.extend(this.first + place);
      else selection.toggle(this.first + place);
    });
    element.addEventListener("keydown", (event) => this.#key(event));
  }

  #key(event) {
    const place = this.#at(document.activeElement);
    if (place === undefined || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") this.selection.keep(null);
    else if (event.key === "Enter" || event.key === " ") this.selection.toggle(this.first + place);
    else {
      const next = this.#next(event.key, place);
      if (next === undefined) return;
      if (event.shiftKey) this.#focus(next);
      else this.nodes[next].focus();
      if (event.shiftKey) this.selection.extend(this.first + next, this.first + place);
    }
    event.preventDefault();
  }

  #next(key, place) {
    const forward = getComputedStyle(this.element).direction === "rtl" ? "ArrowLeft" : "ArrowRight";
    const last = this.nodes.length - 1;
    if (key === "Home") return 0;
    if (key === "End") return last;
    if (key === "ArrowDown" || key === "ArrowUp") return this.#line(place, key === "ArrowDown" ? 1 : -1);
    if (key === "ArrowLeft" || key === "ArrowRight")
      return Math.min(last, Math.max(0, place + (key === forward ? 1 : -1)));
    return undefined;
  }

  // The word nearest above or below.
  #line(place, step) {
    const here = this.nodes[place];
    let best;
    for (let i = place + step; i >= 0 && i < this.nodes.length; i += step) {
      const node = this.nodes[i];
      if (Math.abs(node.offsetTop - here.offsetTop) < here.offsetHeight / 2) continue;
      if (best !== undefined && Math.abs(node.offsetTop - this.nodes[best].offsetTop) > here.offsetHeight / 2) break;
      const far = (word) => Math.abs(word.offsetLeft + word.offsetWidth / 2 - here.offsetLeft - here.offsetWidth / 2);
      if (best === undefined || far(node) < far(this.nodes[best])) best = i;
    }
    return best ?? place;
  }

  // Focus a word without previewing it.
  #focus(place, options) {
    this.extending = true;
    this.nodes[place].focus(options);
    this.extending = false;
  }

  // One word at a time can be reached with Tab.
  #rove(place) {
    for (const node of this.element.querySelectorAll('.word[tabindex="0"]')) node.tabIndex = -1;
    this.nodes[place].tabIndex = 0;
  }

  // Mark what is shown, what is kept, and the earlier words [index, 0..1] that were subtracted.
  mark(shown, kept, subtracted) {
    for (const node of this.marked) {
      node.classList.remove("on", "context");
      node.setAttribute("aria-selected", "false");
    }
    this.marked = [];
    const each = (range, act) => {
      const stop = Math.min(range[1] - this.first, this.nodes.length);
      for (let i = Math.max(range[0] - this.first, 0); i < stop; i++) this.#mark(i, act);
    };
    if (shown) each(shown, (node) => node.classList.add("on"));
    if (kept) each(kept, (node) => node.setAttribute("aria-selected", "true"));
    for (const [word, weight] of subtracted) {
      each([word, word + 1], (node) => {
        node.classList.add("context");
        node.style.setProperty("--weight", weight.toFixed(2));
      });
    }
  }

  #mark(place, act) {
    act(this.nodes[place]);
    this.marked.push(this.nodes[place]);
  }

  // Colour the words, and mark guessed ones in a way that needs no colour.
  tint(colours, grounding) {
    this.nodes.forEach((node, i) => {
      const [back, ink] = colours[this.first + i];
      const found = grounding?.[this.first + i];
      node.style.backgroundColor = back;
      node.style.color = ink;
      node.classList.toggle("guess", isGuess(found));
      if (isGuess(found)) node.setAttribute("aria-description", "probably guessed");
    });
  }
}
