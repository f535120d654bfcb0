// The page: a heading, every group of explanations, and notes about them.

import { beforePaint, make } from "./dom.js";
import { Maps, bytes } from "./unpack.js";
import { lookup } from "./paint.js";
import { controls } from "./controls.js";
import { about, heading } from "./about.js";
import { Group } from "./group.js";
import { Clock } from "./clock.js";

const DARK = matchMedia("(prefers-color-scheme: dark)");

const mount = async (root, data) => {
  const [colormap] = Object.keys(data.colormaps);
  const settings = { opacity: 0.7, colormap, stage: "result", phrase: false, grey: null };
  const coldTable = bytes(data.cold);
  const tables = Object.fromEntries(Object.entries(data.colormaps).map(([name, text]) => [name, bytes(text)]));
  const maps = await Promise.all(data.groups.map(({ panels }) => Promise.all(panels.map((panel) => Maps.of(panel)))));
  const clocks = await Promise.all(
    data.groups.map(({ image }) => {
      const { items = [] } = data.images[image];
      return Promise.all(items.length ? items.map((item) => (item.frames ? Clock.of(item) : null)) : [null]);
    }),
  );
  const panels = data.groups.flatMap((group) => group.panels);
  const refresh = beforePaint(() => {
    const table = tables[settings.colormap];
    const paper = getComputedStyle(root).backgroundColor.match(/\d+/g).slice(0, 3).map(Number);
    const [colours, cold] = [table, coldTable].map((colours) => lookup(colours, settings.opacity));
    const look = { ...settings, table, coldTable, paper, dark: DARK.matches, colours, cold };
    for (const group of groups) group.refresh(look);
  });
  const warm = data.images[data.groups[0].image].warm;
  const tools = controls(settings, Object.keys(tables), panels, warm, refresh);
  const groups = data.groups.map((group, i) => {
    const label = data.groups.length > 1 ? `Answer ${i + 1} of ${data.groups.length}` : "Answer and evidence";
    return new Group(group, data.images[group.image], clocks[i], maps[i], label, i === 0 ? [tools] : []);
  });
  root.append(heading(panels, data.images[data.groups[0].image], clocks[0].some(Boolean)), ...groups.map(({ element }) => element), about(data));
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
