// Line charts over rounds by uPlot, in the page's colours.

import { onThemeChange, themed } from "./palette.js";

const HEIGHT = 240;
const WHOLE_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]; // between ticks: rounds have no fractions

/** One line for each series in `element`; `show(xs, series)`: series are {label, colour, values}. */
export class LinePlot {
  constructor(element, { x, y, range }) {
    Object.assign(this, { element, x, y, range, plot: null, shown: null, labels: "" });
    new ResizeObserver(() => this.plot?.setSize(this.size())).observe(element);
    onThemeChange(() => this.redo());
  }

  size() {
    return { width: Math.max(280, this.element.clientWidth), height: HEIGHT };
  }

  show(xs, series) {
    this.shown = [xs, series];
    const labels = JSON.stringify(series.map((each) => each.label));
    const data = [xs, ...series.map((each) => each.values)];
    if (this.plot && labels === this.labels) this.plot.setData(data);
    else this.redo();
    this.labels = labels;
  }

  /** Series or colours differ: the plot is made anew. */
  redo() {
    if (!this.shown) return;
    const [xs, series] = this.shown;
    this.plot?.destroy();
    const axis = { stroke: themed("--quiet"), grid: { stroke: themed("--line"), width: 1 }, ticks: { show: false } };
    this.plot = new uPlot({
      ...this.size(),
      scales: { x: { time: false }, y: { range: this.range } },
      axes: [{ ...axis, incrs: WHOLE_STEPS }, { ...axis, size: 54, values: (_, values) => values.map(this.y) }],
      series: [
        { label: this.x },
        ...series.map((each) => ({
          label: each.label, stroke: each.colour(), width: 2, points: { show: false },
          value: (_, value) => (value === null ? "" : this.y(value)),
        })),
      ],
    }, [xs, ...series.map((each) => each.values)], this.element);
  }
}
