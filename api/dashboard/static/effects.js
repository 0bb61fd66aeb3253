// What a change would do: tiers and jobs before and after, side by side.

import { now } from "./api.js";
import { make } from "./dom.js";
import { count, duration, percent, quantity } from "./format.js";

const HEADINGS = ["What", "Before", "After", "Change"];
const LEAST = 0.0005; // of a share: less is a solver's rounding

/** Fill a table from the answer of a preview or shadow run; returns a line that sums it up. */
export function showEffects(table, effects) {
  const tiers = effects.tiers.map((each) => ({
    name: `tier ${each.tier}`, before: each.share_before, after: each.share_after, write: percent,
  }));
  const jobs = effects.jobs.map((each) => ({
    name: each.job_id, note: `${each.kind}, ${each.tier}${endsOf(each)}`,
    before: each.steps_per_s_before, after: each.steps_per_s_after, write: (rate) => `${quantity(rate)} steps/s`,
  }));
  const rows = [...tiers, ...jobs.filter((each) => Math.abs(ratioOf(each) - 1) > LEAST)];
  const head = make("tr", {}, ...HEADINGS.map((text) => make("th", { scope: "col" }, text)));
  table.replaceChildren(make("thead", {}, head), make("tbody", {}, ...rows.map(line)));
  const left = [effects.simulated_mean_left_s_before, effects.simulated_mean_left_s_after];
  const time = left.includes(null) ? "" : `; mean time left ${duration(left[0])}, then ${duration(left[1])}`;
  return `${rows.length - tiers.length} of ${count(effects.jobs_total)} jobs change speed${time}`;
}

const ratioOf = ({ before, after }) => (before ? (after ?? 0) / before : after ? Infinity : 1);

function endsOf({ simulated_finish_at_s_before: before, simulated_finish_at_s_after: after }) {
  return before === null || after === null ? "" : `; ends in ${duration(before - now())}, then ${duration(after - now())}`;
}

function line(row) {
  const { name, note = "", before, after, write } = row;
  const ratio = ratioOf(row);
  const tone = ratio > 1 + LEAST ? "more" : ratio < 1 - LEAST ? "less" : "";
  const change = tone && Number.isFinite(ratio) ? `${ratio > 1 ? "+" : "−"}${percent(Math.abs(ratio - 1))}` : tone ? "new" : "";
  const cells = [before, after].map((value) => make("td", {}, value === null ? "–" : write(value)));
  return make("tr", {}, make("th", { scope: "row" }, name, make("small", {}, ` ${note}`)), ...cells, make("td", { className: tone }, change));
}
