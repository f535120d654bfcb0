// Small helpers around the document. Text is only ever set as text, so nothing a model said can become markup.

export const make = (tag, attributes = {}, ...children) => {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children);
  return node;
};

// The text for a mouse or for touch; some phones claim to support hovering, so the pointer is checked, too.
const TOUCH = matchMedia("(hover: none), (pointer: coarse)").matches;
export const byPointer = (pointed, touched) => (TOUCH ? touched : pointed);

// Run once before the next paint, however often it was asked for.
export const beforePaint = (run) => {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      run();
    });
  };
};

export const number = (value, digits = 2) => {
  const least = 10 ** -digits;
  return value > 0 && value < least / 2 ? `<${least}` : value.toFixed(digits);
};

export const share = (value) => `${Math.round(100 * value)} %`;

export const visible = (text) => text.trim() || (text.includes("\n") ? "⏎" : "␣");

// A list of names with bars and numbers: [text, value, shown, the value of a full bar].
export const bars = (entries, label) =>
  make(
    "ul",
    { class: "bars", "aria-label": label },
    ...entries.map(([text, value, shown, most]) => {
      const row = make(
        "li",
        {},
        make("bdi", {}, visible(text)),
        make("span", { class: "amount" }),
        make("span", {}, shown),
      );
      row.style.setProperty("--share", Math.min(1, Math.max(0, most > 0 ? value / most : 0)).toFixed(3));
      return row;
    }),
  );
