// Colours: a scale for quantities, a hue for each job.

const DARK = [[27, 36, 47], [29, 66, 100], [27, 110, 122], [46, 158, 120], [160, 214, 82]];
const LIGHT = [[240, 244, 247], [201, 226, 236], [126, 197, 196], [45, 150, 140], [12, 84, 92]];
const GOLDEN_ANGLE = 137.508;
const dark = matchMedia("(prefers-color-scheme: dark)");
const hues = new Map();

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

/** The colour of a job: the same on the whole page, far from that of the jobs seen just before. */
export function colourOf(jobId) {
  if (!hues.has(jobId)) hues.set(jobId, (hues.size * GOLDEN_ANGLE + 200) % 360);
  return dark.matches ? `oklch(0.68 0.115 ${hues.get(jobId)})` : `oklch(0.76 0.105 ${hues.get(jobId)})`;
}

/** The colour of the tier at this place of the list: the same on every page. */
export function colourOfTier(index) {
  const hue = (index * GOLDEN_ANGLE + 85) % 360;
  return dark.matches ? `oklch(0.78 0.13 ${hue})` : `oklch(0.55 0.14 ${hue})`;
}
