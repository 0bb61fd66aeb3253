// Throughputs: job kind by accelerator type with the 90 % interval, shaded by the speed relative to the best type.

import { byId, make, sayEmpty } from "./dom.js";
import { percent, quantity } from "./format.js";
import { onThemeChange, shade } from "./palette.js";

let shown = "";
let newest = null;

onThemeChange(() => {
  shown = "";
  if (newest) showThroughputs(newest);
});

/** Fill #throughputs-table from `{types, items, users}`. */
export function showThroughputs(table) {
  newest = table;
  const signature = JSON.stringify(table);
  if (signature === shown) return;
  shown = signature;
  const rows = new Map();
  for (const item of table.items) {
    const key = `${item.kind} ${item.scale_factor}`;
    if (!rows.has(key)) rows.set(key, new Map());
    rows.get(key).set(item.accelerator_type, item);
  }
  const off = table.users.filter((user) => user.is_off);
  byId("throughputs-off").textContent = off
    .map((user) => `${user.user}'s claims are wrong by a factor of ${quantity(user.typical_factor)}.`)
    .join(" ");
  sayEmpty("throughputs-empty", ...(rows.size ? [] : ["Nothing is measured yet: throughputs appear when a job has run."]));
  for (const part of document.querySelectorAll(".needs-kinds")) part.hidden = rows.size === 0;
  const element = byId("throughputs-table");
  const heading = (text) => make("th", { scope: "col", className: text === "Job kind" ? "" : "number" }, text);
  element.replaceChildren(
    make("thead", {}, make("tr", {}, ...["Job kind", ...table.types].map(heading))),
    make("tbody", {}, ...[...rows.values()].map((byType) => rowOf(byType, table.types))),
  );
}

function rowOf(byType, types) {
  const best = Math.max(...[...byType.values()].map((item) => item.steps_per_s));
  const any = byType.values().next().value;
  const label = any.scale_factor > 1 ? `${any.kind} ×${any.scale_factor}` : any.kind;
  return make("tr", {}, make("th", { scope: "row" }, label), ...types.map((type) => cellOf(byType.get(type), best)));
}

function cellOf(item, best) {
  if (!item) return make("td", { className: "cell" });
  const colours = shade(item.steps_per_s / best);
  const known = `±${percent(item.high_steps_per_s / item.steps_per_s - 1)}`;
  const text = make("span", {}, quantity(item.steps_per_s), make("small", {}, known));
  Object.assign(text.style, { background: colours.ground, color: colours.ink });
  const interval = `${quantity(item.low_steps_per_s)} to ${quantity(item.high_steps_per_s)} with 90 %`;
  const refused = item.refused ? `, ${item.refused} rejected reports` : "";
  const title = `${item.source}: ${interval}; ${item.measurements} measurements${refused}, ${percent(item.steps_per_s / best)} of its best type`;
  const cell = make("td", { className: "cell", title }, text);
  cell.dataset.source = item.source; // its look is in style.css
  return cell;
}
