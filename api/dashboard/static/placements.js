// The page of placements: the workers of one node, over a chosen number of rounds.

import { get } from "./api.js";
import { byId, make } from "./dom.js";
import { PlacementsPanel, showNotes } from "./placing.js";
import { follow, quietly } from "./shell.js";

const node = byId("placements-node");
const panel = new PlacementsPanel(() => node.value);

node.addEventListener("change", () => quietly(panel.refresh()));

follow(async (summary) => {
  const [nodes] = await Promise.all([get("/v1/nodes"), panel.refresh(summary.round?.round_index)]);
  const known = new Set([...node.options].map((option) => option.value));
  node.append(...nodes.items.filter((each) => !known.has(each.name)).map((each) => make("option", {}, each.name)));
  showNotes(summary.notes);
});
