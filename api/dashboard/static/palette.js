// Colours: a scale for quantities, one for each job.

const DARK = [[27, 36, 47], [29, 66, 100], [27, 110, 122], [46, 158, 120], [160, 214, 82]];
const LIGHT = [[240, 244, 247], [201, 226, 236], [126, 197, 196], [45, 150, 140], [12, 84, 92]];
/** Told apart with each kind of colour vision (tests/dashboard/test_colours.py); readable below dark text. */
const COLOURS = ["#f75528", "#b828f7", "#82e567", "#7970af", "#dcdc28", "#3ac1f7", "#a67055", "#28eee5", "#d3dca6", "#f7709d"];
const JOBS_KEPT = 1000;
const KEPT_AS = "colours of jobs";
const places = keptPlaces();
let isToKeep = false;
const dark = matchMedia("(prefers-color-scheme: dark)");

/** Call back when the reader switches between light and dark. */
export const onThemeChange = (callback) => dark.addEventListener("change", callback);

/** Value of a style sheet variable in the current theme. */
export const themed = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** Background and text colours for a value between 0 and 1. */
export function shade(part) {
  const stops = dark.matches ? DARK : LIGHT;
  const place = Math.min(1, Math.max(0, part)) * (stops.length - 1);
  const below = Math.min(Math.floor(place), stops.length - 2);
  const rgb = stops[below].map((low, i) => Math.round(low + (stops[below + 1][i] - low) * (place - below)));
  const [red, green, blue] = rgb.map(linear);
  const luminance = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return { ground: `rgb(${rgb.join(" ")})`, ink: luminance > 0.179 ? "#000" : "#fff" }; // 4.58 : 1 at the least
}

/** Relative luminance (WCAG 2.2) of a channel of 0 to 255. */
const linear = (value) => (value <= 10 ? value / 3294.6 : ((value / 255 + 0.055) / 1.055) ** 2.4);

/** The colour of a job: the same on every page and at every later visit, another than that of jobs seen just before. */
export function colourOf(jobId) {
  if (!places.has(jobId)) {
    places.set(jobId, (([...places.values()].at(-1) ?? -1) + 1) % COLOURS.length);
    if (places.size > JOBS_KEPT) places.delete(places.keys().next().value);
    keepSoon();
  }
  return COLOURS[places.get(jobId)];
}

/** Places of jobs among the colours, oldest first, as this browser has kept them. */
function keptPlaces() {
  try {
    return new Map(JSON.parse(localStorage.getItem(KEPT_AS) ?? "[]"));
  } catch {
    return new Map(); // storage is switched off, or holds something else
  }
}

function keepSoon() {
  if (isToKeep) return;
  isToKeep = true;
  queueMicrotask(() => {
    isToKeep = false;
    try {
      localStorage.setItem(KEPT_AS, JSON.stringify([...places]));
    } catch {
      // storage is full or switched off: colours last as long as the page
    }
  });
}

/** The colour of the tier at this place of the list: the same on every page. */
export const colourOfTier = (index) => COLOURS[index % COLOURS.length];
