// Line charts by uPlot, in the page's colours: hover for values, drag for a part, double-click for all of it.

import { instant, ticks } from "./format.js";
import { onThemeChange, themed } from "./palette.js";

const HEIGHT = 240;
const WHOLE_STEPS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000]; // between ticks: rounds have no fractions

/** The range of a lone instant: a minute, where uPlot would take years. */
function around(instantS) {
  return [instantS - 30, instantS + 30];
}

/** Pixels from one instant of an axis to the next, so that their texts do not meet: those of other days have a date. */
export const tickSpace = (fromS) => Math.max(90, 7 * instant(fromS).length + 20);

/**
 * One line for each series in `element`; `show(xs, series)`: series are {label, colour, values}. `y(value, digits)` writes a
 * value, `range` is the scale's (by default that of the data). `options()`, asked at each new plot, may set `increments`
 * between ticks, `isTime`, and `behind(plot)`, which paints behind the lines. Plots of one `group` share the pointer.
 */
export class LinePlot {
  constructor(element, { x, y, range, group = null, options = () => ({}) }) {
    Object.assign(this, { element, x, y, range, group, options, plot: null, shown: null, labels: "" });
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
    if (!this.plot || labels !== this.labels) this.redo();
    else if (this.isZoomed()) {
      this.plot.setData(data, false);
      this.plot.redraw();
    } else this.plot.setData(data);
    this.labels = labels;
  }

  /** Whether the reader has chosen a part of the x axis. */
  isZoomed() {
    const xs = this.plot?.data[0] ?? [];
    const { min, max } = this.plot?.scales.x ?? {};
    return xs.length > 1 && Number.isFinite(min) && (min > xs[0] || max < xs.at(-1));
  }

  /** Series, options or colours differ: the plot is made anew. */
  redo() {
    if (!this.shown) return;
    const [xs, series] = this.shown;
    const { increments = WHOLE_STEPS, isTime = false, behind = () => {} } = this.options();
    this.plot?.destroy();
    const axis = { stroke: themed("--quiet"), grid: { stroke: themed("--line"), width: 1 }, ticks: { show: false } };
    this.plot = new uPlot({
      ...this.size(),
      scales: { x: { time: isTime, range: (plot, from, to) => (isTime && plot.data[0].length === 1 ? around(from) : [from, to]) }, y: this.range ? { range: this.range } : {} },
      axes: [{ ...axis, ...(isTime ? { space: (_plot, _axis, from) => tickSpace(from), values: (_, instants) => instants.map(instant) } : { incrs: increments }) },
        { ...axis, size: 62, values: (_, values) => ticks(values, this.y) }],
      cursor: this.group ? { sync: { key: this.group } } : {},
      hooks: { drawClear: [behind] },
      series: [
        { label: this.x },
        ...series.map((each) => ({
          label: each.label, stroke: each.colour(), width: 2, points: { show: each.values.length === 1 }, spanGaps: true,
          value: (_, value) => (value === null || value === undefined ? "" : this.y(value)),
        })),
      ],
    }, [xs, ...series.map((each) => each.values)], this.element);
  }
}
