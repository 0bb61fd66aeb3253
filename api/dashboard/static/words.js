// A typed command as program and arguments: blanks separate words; quotes and \ keep them together; nothing else is special.

const PIECE = /\s+|"((?:[^"\\]|\\.)*)"|'([^']*)'|\\(.)|([^\s"'\\]+)/gsy;

/** "a 'b c' d\ e" -> ["a", "b c", "d e"]. Throws an error that says what is wrong. */
export function words(text) {
  const found = [];
  let word = null;
  let at = 0;
  for (const [piece, double, single, escaped, plain] of text.matchAll(PIECE)) {
    at += piece.length;
    const part = double?.replace(/\\(["\\])/g, "$1") ?? single ?? escaped ?? plain;
    if (part !== undefined) word = (word ?? "") + part;
    else if (word !== null) word = void found.push(word) ?? null;
  }
  if (at < text.length) throw new Error(text[at] === "\\" ? "a \\ stands at the end" : `a ${text[at]} is not closed`);
  return word === null ? found : [...found, word];
}
