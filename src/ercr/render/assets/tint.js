// Background colours of words: from the page's background without evidence to a strong colour of the colour map.

const STRONG = { light: 0.62, dark: 0.8 }; // where on the colour map: dark enough on white, bright enough on black

const luminance = (colour) => {
  const [r, g, b] = colour.map((c) => (c <= 10.3 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};

// Background and letters for each share of evidence; letters are black or white, whichever stands out more.
export const tints = (shares, { table, paper, dark }) => {
  const entry = 3 * Math.round(255 * (dark ? STRONG.dark : STRONG.light));
  const strong = [...table.subarray(entry, entry + 3)];
  return shares.map((share) => {
    const kept = Math.min(1, Math.max(0, share));
    const back = paper.map((c, i) => Math.round(c + (strong[i] - c) * kept));
    const light = luminance(back);
    return [`rgb(${back.join(" ")})`, (light + 0.05) ** 2 > 1.05 * 0.05 ? "#000" : "#fff"];
  });
};
