(() => {
  const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const make = (tag, attributes = {}, text = "") => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.textContent = text;
    return node;
  };

  const build = (section) => {
    const holder = section.querySelector("script.ercr-data");
    if (!holder || section.dataset.ready) return;
    section.dataset.ready = "yes";
    const data = JSON.parse(holder.textContent);
    const [rows, columns] = data.grid;
    const [left, top, right, bottom] = data.box;
    const maps = Object.fromEntries(Object.entries(data.colormaps).map(([name, table]) => [name, bytes(table)]));
    const state = { word: null, pinned: null, opacity: 0.7, colormap: "inferno" };

    const figure = make("figure");
    const picture = make("img", { src: data.image, alt: "The image that was explained", width: data.size[0], height: data.size[1] });
    const canvas = make("canvas", { width: columns, height: rows, "aria-hidden": "true" });
    const percent = (value) => `${100 * value}%`;
    Object.assign(canvas.style, { left: percent(left), top: percent(top), width: percent(right - left), height: percent(bottom - top) });
    figure.append(picture, canvas);
    const strips = [
      [0, 0, 1, top], [0, bottom, 1, 1], [0, Math.max(top, 0), left, Math.min(bottom, 1)], [right, Math.max(top, 0), 1, Math.min(bottom, 1)],
    ];
    for (const [x0, y0, x1, y1] of strips) {
      if (x1 - x0 <= 0.001 || y1 - y0 <= 0.001) continue;
      const strip = make("div", { class: "unseen", title: "The model was not shown this part" });
      Object.assign(strip.style, { left: percent(x0), top: percent(y0), width: percent(x1 - x0), height: percent(y1 - y0) });
      figure.append(strip);
    }

    const side = make("div");
    const facts = make("div", { class: "facts", "aria-live": "polite" });

    const paint = () => {
      const pen = canvas.getContext("2d");
      pen.clearRect(0, 0, columns, rows);
      picture.style.filter = state.word ? `brightness(${1 - 0.55 * state.opacity})` : "";
      if (!state.word) return;
      const pixels = pen.createImageData(columns, rows);
      const levels = bytes(state.word.map);
      const table = maps[state.colormap];
      // the strongest cell at full strength, unless the whole map is faint: nothing must not look like something
      const top = Math.max(64, levels.reduce((a, b) => Math.max(a, b), 0));
      levels.forEach((level, i) => {
        const light = level / top;
        const entry = 3 * Math.round(255 * (0.3 + 0.7 * light));
        pixels.data.set(table.subarray(entry, entry + 3), 4 * i);
        pixels.data[4 * i + 3] = 255 * state.opacity * light;
      });
      pen.putImageData(pixels, 0, 0);
    };
    const describe = () => {
      facts.replaceChildren();
      if (!state.word) {
        facts.append(make("p", {}, "Point at a word, or use the arrow keys. Click to keep it."));
        return;
      }
      const list = make("dl");
      const row = (name, value) => list.append(make("dt", {}, name), make("dd", {}, value));
      row("word", state.word.text);
      row("evidence", state.word.evidence.toFixed(2));
      row("probability", state.word.p.toFixed(3));
      row("candidates", state.word.candidates.map(([text, p]) => `${text.trim() || "␣"} ${p < 0.005 ? "<0.01" : p.toFixed(2)}`).join(", "));
      if (state.word.context && state.word.context.length) {
        row("subtracted", `beta ${state.word.beta.toFixed(2)}`);
        row("context", state.word.context.map(([text, a]) => `“${text.trim() || "␣"}” ${a.toFixed(2)}`).join(", "));
      }
      facts.append(list);
    };
    const select = (word) => {
      state.word = word;
      for (const button of section.querySelectorAll("button.word")) button.classList.toggle("on", button.word === word);
      paint();
      describe();
    };

    const sentence = (words, label, name) => {
      const block = make("p", { class: name, "aria-label": label });
      words.forEach((word, i) => {
        if (i && word.space) block.append(" ");
        const button = make("button", { class: "word", type: "button", "aria-pressed": "false" }, word.text);
        button.word = word;
        const level = Math.round(255 * word.evidence);
        const [r, g, b] = maps.inferno.subarray(3 * level, 3 * level + 3);
        if (name === "said") {
          button.style.background = `rgb(${r},${g},${b})`;
          button.style.color = 0.299 * r + 0.587 * g + 0.114 * b < 128 ? "#fff" : "#000";
        }
        button.addEventListener("mouseenter", () => select(word));
        button.addEventListener("mouseleave", () => select(state.pinned));
        button.addEventListener("focus", () => select(word));
        button.addEventListener("click", () => {
          state.pinned = state.pinned === word ? null : word;
          for (const other of section.querySelectorAll("button.word")) other.setAttribute("aria-pressed", String(other.word === state.pinned));
          select(word);
        });
        block.append(button);
      });
      block.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
        if (!step) return;
        const buttons = [...block.querySelectorAll("button.word")];
        const next = buttons[buttons.indexOf(document.activeElement) + step];
        if (next) { next.focus(); event.preventDefault(); }
      });
      return block;
    };

    const opacity = make("input", { type: "range", min: "0", max: "1", step: "0.05", value: String(state.opacity) });
    opacity.addEventListener("input", () => { state.opacity = Number(opacity.value); paint(); });
    const choice = make("select");
    for (const name of Object.keys(maps)) choice.append(make("option", { value: name }, name));
    choice.addEventListener("change", () => { state.colormap = choice.value; paint(); });
    const labelled = (text, control) => { const label = make("label", {}, text); label.append(control); return label; };

    side.append(make("h2", {}, "Prompt"), sentence(data.prompt, "Prompt", "asked"));
    side.append(make("h2", {}, data.answer === "given" ? "Given answer" : "Answer"), sentence(data.words, "Answer", "said"));
    side.append(labelled("Opacity", opacity), labelled("Colours", choice), facts);
    const legend = "A word's colour is its strongest evidence in the image, from 0 (dark) to 1 (bright); beta is how much of the earlier words' mean map was subtracted. ";
    const unseen = data.seen < 0.9995 ? ` The model was shown ${(100 * data.seen).toFixed(0)} % of the image; the rest is hatched.` : "";
    section.append(figure, side, make("footer", {}, `${legend}${data.model}, method ${data.method}, ${rows} x ${columns} cells.${unseen}`));
    const strongest = data.words.reduce((best, word) => (!best || word.evidence > best.evidence ? word : best), null);
    state.pinned = data.open === null ? strongest : data.words[data.open];
    select(state.pinned);
  };

  document.querySelectorAll("section.ercr").forEach(build);
})();
