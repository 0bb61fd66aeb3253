// Creating and updating elements. Text from the service becomes text nodes, never markup.

/** A new element with properties and children (elements or text). */
export function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

/** The element with this id. */
export const byId = (id) => document.getElementById(id);

/** Set the text of an element if it differs, so that a selection in it survives. */
export function say(target, text) {
  const element = typeof target === "string" ? byId(target) : target;
  const wanted = String(text);
  if (element.textContent !== wanted) element.textContent = wanted;
}

/** Show `lines` in an empty-state paragraph, commands as code; hide it when there are none. */
export function sayEmpty(id, ...lines) {
  const element = byId(id);
  element.hidden = lines.length === 0;
  if (element.dataset.said === lines.join("\n")) return;
  element.dataset.said = lines.join("\n");
  element.replaceChildren(...lines.map((line) => (line.startsWith("$ ") ? make("code", {}, line.slice(2)) : line)));
}

/** The commands that submit a first job. */
export function howToSubmit() {
  const { kind } = document.body.dataset;
  return [
    "Submit one here (page Submit), from the command line:",
    `$ gavel job submit --kind ${kind} --steps 500`,
    "or over REST:",
    `$ curl -X POST ${location.origin}/v1/jobs -H "Authorization: Bearer $GAVEL_TOKEN" ` +
      `-H "Content-Type: application/json" -d '{"kind": "${kind}", "total_steps": 500}'`,
  ];
}

/** Fill a plain table. `rows`: arrays of text, the first of each a row header. */
export function fillTable(table, headings, rows) {
  const signature = JSON.stringify([headings, rows]);
  if (table.dataset.signature === signature) return;
  table.dataset.signature = signature;
  const head = make("tr", {}, ...headings.map((text) => make("th", { scope: "col" }, text)));
  const body = rows.map(([first, ...rest]) =>
    make("tr", {}, make("th", { scope: "row" }, first), ...rest.map((text) => make("td", {}, text))));
  table.replaceChildren(make("thead", {}, head), make("tbody", {}, ...body));
  labelCells(table);
}

/** Keep one row per item in a table body, in order; `update(row, item)` fills rows that `create(item)` made. */
export function keepRows(body, items, keyOf, create, update) {
  const known = new Map([...body.children].map((row) => [row.dataset.key, row]));
  items.forEach((item, index) => {
    const key = keyOf(item);
    const row = known.get(key) ?? create(item);
    row.dataset.key = key;
    known.delete(key);
    update(row, item);
    if (body.children[index] !== row) body.insertBefore(row, body.children[index] ?? null);
  });
  for (const row of known.values()) row.remove();
  labelCells(body.parentElement);
}

/** Give each cell of a table the heading of its column, which narrow screens show beside it (panels.css). */
export function labelCells(table) {
  const headings = [...(table.tHead?.rows[0]?.cells ?? [])].map((cell) => cell.textContent);
  for (const row of [...table.tBodies].flatMap((body) => [...body.rows])) {
    [...row.cells].forEach((cell, i) => {
      if (cell.dataset.label !== headings[i]) cell.dataset.label = headings[i] ?? "";
    });
  }
}
