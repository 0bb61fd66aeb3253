// Placements: who held which worker in which round. A lease that was renewed in place is one block.

import { Chart, fitted, openJob } from "./chart.js";
import { byId, fillTable } from "./dom.js";
import { markedJob } from "./highlight.js";
import { colourOf, themed } from "./palette.js";

const FOOT = 22;

/**
 * Draws blocks into #<name>-canvas and #<name>-table. `show({rounds, lanes, blocks, current})`: indices of rounds oldest
 * first, lanes top to bottom, blocks {lane, job, name, generation, first, last, leases, profiling}. `zoom(by)`: called for
 * plus, minus, and the wheel with Ctrl.
 */
export class Gantt {
  constructor(name, { zoom = () => false, open = openJob } = {}) {
    this.name = name;
    this.view = { rounds: [], lanes: [], blocks: [] };
    const canvas = byId(`${name}-canvas`);
    this.chart = new Chart(canvas, {
      heightFor: () => this.view.lanes.length * this.laneHeight() + FOOT,
      draw: (pen, width) => this.draw(pen, width),
      open,
      press: (event) => (event.key === "+" || event.key === "-") && zoom(event.key === "+" ? -1 : 1),
    });
    canvas.addEventListener("wheel", (event) => {
      if (event.ctrlKey && zoom(Math.sign(event.deltaY))) event.preventDefault();
    }, { passive: false });
  }

  show(view) {
    this.view = view;
    const { blocks, lanes, rounds } = view;
    byId(`${this.name}-canvas`).setAttribute("aria-label",
      `Leases of ${lanes.length} lanes over ${rounds.length} rounds: ${blocks.length} blocks`);
    fillTable(byId(`${this.name}-table`), ["Where", "Job", "Rounds", "Profiling"],
      blocks.map((block) => [block.lane, nameOf(block), rangeOf(block), block.profiling ? "yes" : ""]));
    this.chart.redraw();
  }

  laneHeight() {
    return Math.max(9, Math.min(24, Math.floor(560 / Math.max(1, this.view.lanes.length))));
  }

  draw(pen, width) {
    const { rounds, lanes, blocks, current } = this.view;
    const left = Math.min(120, 16 + Math.max(0, ...lanes.map((lane) => pen.measureText(lane).width)));
    const step = (width - left) / Math.max(1, rounds.length);
    const height = this.laneHeight();
    const placeOf = new Map(rounds.map((round, i) => [round, i]));
    const rows = lanes.map((lane, i) => {
      pen.fillStyle = themed("--quiet");
      if (height > 11) pen.fillText(fitted(pen, lane, left - 10), 0, i * height + height / 2);
      pen.fillStyle = themed("--track");
      pen.fillRect(left, i * height + height - 1, width - left, 1);
      const its = blocks.filter((block) => block.lane === lane);
      return its.map((block) => this.block(pen, block, left + placeOf.get(block.first) * step, i * height, step, height));
    });
    this.axis(pen, left, width, step, lanes.length * height, placeOf.get(current));
    return rows;
  }

  block(pen, block, x, y, step, height) {
    const width = (block.last - block.first + 1) * step;
    const cell = { x, y, width, height, text: describe(block), job: block.job };
    const isAhead = block.first > this.view.current;
    const isMuted = markedJob() !== null && markedJob() !== block.job;
    pen.globalAlpha = isAhead || isMuted ? 0.35 : 1;
    pen.fillStyle = block.job ? colourOf(block.job) : themed("--quiet");
    pen.beginPath();
    pen.roundRect(x + 0.5, y + 1.5, Math.max(1, width - 1), height - 3, 3);
    pen.fill();
    if (block.profiling) hatch(pen, cell);
    pen.globalAlpha = 1;
    const label = height > 13 ? fitted(pen, nameOf(block), width - 10, 5) : "";
    if (label) {
      pen.fillStyle = "#0d151c";
      pen.fillText(label, x + 5, y + height / 2 + 0.5);
    }
    return cell;
  }

  axis(pen, left, width, step, y, now) {
    const { rounds } = this.view;
    if (!rounds.length) return;
    pen.fillStyle = themed("--quiet");
    pen.fillText(`round ${rounds[0]}`, left, y + 13);
    pen.textAlign = "right";
    pen.fillText(String(rounds.at(-1)), width, y + 13);
    pen.textAlign = "left";
    if (now === undefined) return;
    pen.fillStyle = themed("--ink");
    pen.fillRect(left + now * step, y + 1, step, 2);
  }
}

const nameOf = (block) => block.name || block.job || "another user's job";
const rangeOf = (block) => (block.first === block.last ? String(block.first) : `${block.first} to ${block.last}`);

function describe(block) {
  const renewals = block.leases - 1;
  const renewed = renewals ? `renewed ${renewals} ${renewals === 1 ? "time" : "times"} in place` : "not renewed";
  const who = block.job ? `\n${block.job}, generation ${block.generation}` : "";
  return `${nameOf(block)} on ${block.lane}\nround ${rangeOf(block)} · ${renewed}${block.profiling ? " · profiling" : ""}${who}`;
}

function hatch(pen, cell) {
  pen.save();
  pen.beginPath();
  pen.rect(cell.x + 0.5, cell.y + 1.5, cell.width - 1, cell.height - 3);
  pen.clip();
  pen.strokeStyle = "rgb(0 0 0 / 45%)";
  pen.lineWidth = 1.5;
  for (let x = cell.x - cell.height; x < cell.x + cell.width; x += 6) {
    pen.beginPath();
    pen.moveTo(x, cell.y + cell.height);
    pen.lineTo(x + cell.height, cell.y);
    pen.stroke();
  }
  pen.restore();
}
