// The page of the allocation matrix.

import { Heatmap } from "./heatmap.js";
import { follow } from "./shell.js";

const heatmap = new Heatmap();

follow((summary) => heatmap.refresh(summary.solve !== null));
