// Numbers and instants for people.

const DASH = "–";

/** 0.2816 -> "0.28"; null -> a dash. */
export const fixed = (value, digits = 2) => (value === null || value === undefined ? DASH : value.toFixed(digits));

/** 0.713 -> "71 %". */
export const percent = (part) => (Number.isFinite(part) ? `${Math.round(part * 100)} %` : DASH);

/** Three significant digits or more, thousands grouped: 12.5, 1 817. */
export function quantity(value, digits = 3) {
  if (!Number.isFinite(value)) return DASH;
  if (Math.abs(value) >= 10 ** (digits - 1)) return count(Math.round(value));
  return String(Number(value.toPrecision(digits)));
}

/** The values of an axis as `write(value, digits)` writes them, with as many digits as tell them apart. */
export function ticks(values, write) {
  for (let digits = 3; digits < 10; digits++) {
    const texts = values.map((value) => write(value, digits));
    if (new Set(texts).size === texts.length) return texts;
  }
  return values.map((value) => write(value));
}

/** 1234567 -> "1 234 567", with narrow spaces. */
export const count = (value) => String(value).replace(/\B(?=(\d{3})+$)/g, "\u202f");

/** Seconds as one or two units: "4 s", "3 min 20 s", "5 h 2 min", "3 d 4 h". */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return DASH;
  if (seconds < 10) return `${Math.max(0, seconds).toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

/** Local time of day of an instant. */
export const timeOfDay = (atS) => new Date(atS * 1000).toLocaleTimeString([], { hour12: false });

/** The same, with the date where it was on another day. */
export function instant(atS) {
  const [at, today] = [new Date(atS * 1000), new Date()];
  return at.toDateString() === today.toDateString() ? timeOfDay(atS) : `${at.toLocaleDateString()} ${timeOfDay(atS)}`;
}

/** What people call a job. */
export const labelOf = (job) => job.name || job.id || job.job_id;

/** 3200000 -> "3.2 MB". */
export function bytes(value, digits = 3) {
  const power = Math.min(4, Math.floor(Math.log10(Math.max(1, value)) / 3));
  return `${quantity(value / 1000 ** power, digits)} ${["B", "kB", "MB", "GB", "TB"][power]}`;
}
