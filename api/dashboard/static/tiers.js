// The page of tiers: shares over time, and the editor with its preview.

import { get } from "./api.js";
import { byId, fillTable, sayEmpty } from "./dom.js";
import { percent } from "./format.js";
import { colourOfTier } from "./palette.js";
import { LinePlot } from "./plot.js";
import { follow, isOperator } from "./shell.js";
import { TierEditor } from "./tiereditor.js";
import { showTiers } from "./tiertable.js";

const ROUNDS = 200;
const ROUNDS_OF_TABLE = 40;
const plot = new LinePlot(byId("shares-plot"), { x: "round", y: (part) => percent(part), range: [0, 1] });
const editor = isOperator ? new TierEditor(() => refresh()) : null;

async function step(summary) {
  const [tiers, shares] = await Promise.all([get("/v1/tiers"), get("/v1/shares", { rounds: ROUNDS })]);
  const rounds = shares.rounds.map((round) => round.round_index);
  const names = tiers.items.map((tier) => tier.name);
  sayEmpty("shares-empty", ...(rounds.length ? [] : ["No round yet: the first begins when there is a job."]));
  byId("shares-plot").hidden = rounds.length === 0;
  if (rounds.length) {
    plot.show(rounds, names.map((name, i) => ({ label: name, colour: () => colourOfTier(i), values: shares.tiers[name] ?? [] })));
  }
  fillTable(byId("shares-table"), ["Round", ...names],
    rounds.map((round, i) => [String(round), ...names.map((name) => percent(shares.tiers[name]?.[i] ?? 0))]).slice(-ROUNDS_OF_TABLE));
  showTiers({ tiers: tiers.items, shares, own: summary.tiers, onEdit: editor && ((name) => editor.open(name)) });
}

const refresh = follow(step);
