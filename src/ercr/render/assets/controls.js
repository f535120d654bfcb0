// Opacity, colours and the method's step for the whole page; for several methods, whose numbers the words show.

import { make } from "./dom.js";

const GENERIC = {
  raw: ["Raw", "Maps as read from the model."],
  evidence: ["Evidence", "Maps before anything was subtracted."],
  context: [
    "− context",
    "What was taken away: the earlier words’ maps, weighted by α and fitted by β. Those words are underlined.",
  ],
  result: ["Result", "The final maps."],
};

const labelled = (text, control) => make("label", {}, make("span", {}, text), control);

export const choice = (name, legend, options, chosen, change) => {
  const note = make("p", {}, options.find(([value]) => value === chosen)[2] ?? "");
  const buttons = options.map(([value, label, about]) => {
    const input = make("input", { type: "radio", name, value, checked: value === chosen });
    input.addEventListener("change", () => {
      note.textContent = about ?? "";
      change(value);
    });
    return make("label", {}, input, make("span", {}, label));
  });
  const explained = options.some(([, , about]) => about) ? [note] : [];
  return make("fieldset", { class: "choice" }, make("legend", {}, legend), make("div", {}, ...buttons), ...explained);
};

// The steps to choose from, in the order they were made; several methods share general names.
const steps = (panels) => {
  const found = new Map(panels.flatMap((panel) => panel.stages).map((stage) => [stage.key, stage]));
  const keys = [...new Set(["raw", ...found.keys(), "context", "result"])].filter((key) => found.has(key));
  const ordered = keys
    .filter((key) => !["context", "result"].includes(key))
    .concat(
      keys.filter((key) => key === "context"),
      "result",
    );
  return ordered.map((key) => {
    const { label, about } = found.get(key);
    return panels.length > 1 ? [key, ...(GENERIC[key] ?? [key, about])] : [key, label, about];
  });
};

export const controls = (settings, colormaps, panels, warm, changed) => {
  const set = (name) => (value) => {
    settings[name] = value;
    changed();
  };
  const opacity = make("input", { type: "range", min: "0", max: "1", step: "0.05", value: String(settings.opacity) });
  opacity.addEventListener("input", () => set("opacity")(Number(opacity.value)));
  const colours = make(
    "select",
    {},
    ...colormaps.map((name) => make("option", { value: name, selected: name === settings.colormap }, name)),
  );
  colours.addEventListener("change", () => set("colormap")(colours.value));
  const grey = make("input", { type: "checkbox", checked: settings.grey ?? warm });
  grey.addEventListener("change", () => set("grey")(grey.checked));
  const phrase = make("input", { type: "checkbox" });
  phrase.addEventListener("change", () => set("phrase")(phrase.checked));
  const options = steps(panels);
  const stage =
    options.length > 1 ? [choice("stage", "Step of the method", options, settings.stage, set("stage"))] : [];
  return make(
    "div",
    { class: "controls", role: "group", "aria-label": "Display" },
    ...stage,
    labelled("Opacity", opacity),
    labelled("Colours", colours),
    make("label", { title: "On from the start where the image's own colours look like evidence" }, grey, "Image in grey"),
    make("label", { title: "The same as holding Shift, for touch screens" }, phrase, "Clicks make a phrase"),
  );
};
