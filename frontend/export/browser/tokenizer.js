// Tokenizers of language models: byte pair encoding as tokenizer.json describes it, in the forms of GPT-2, Llama 2 and Llama 3.

const GPT2 = "'(?:[sdmt]|ll|ve|re)| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

/** Characters that stand for bytes in vocabularies of bytes, by byte. */
function byteCharacters() {
  const printable = (b) => (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
  let next = 256;
  return Array.from({ length: 256 }, (_, b) => String.fromCharCode(printable(b) ? b : next++));
}

const CHARACTERS = byteCharacters();
const BYTES = new Map(CHARACTERS.map((c, b) => [c, b]));

function unsupported(what) {
  throw new Error(`pages do not support this tokenizer: ${what}; encode the text in Python`);
}

/** Functions from a text to a text, for a normalizer of tokenizer.json. */
function normalizers(entry) {
  if (!entry) return [];
  if (entry.type === "Sequence") return entry.normalizers.flatMap(normalizers);
  if (entry.type === "Prepend") return [(text) => (text ? entry.prepend + text : text)];
  if (entry.type === "Replace" && "String" in entry.pattern) return [(t) => t.replaceAll(entry.pattern.String, entry.content)];
  if (entry.type === "NFC") return [(text) => text.normalize("NFC")];
  return unsupported(`normalizer ${entry.type}`);
}

/** Functions from pieces to pieces, for a pre-tokenizer of tokenizer.json. */
function cutters(entry) {
  if (!entry) return [];
  if (entry.type === "Sequence") return entry.pretokenizers.flatMap(cutters);
  if (entry.type === "Split" && entry.behavior === "Isolated" && !entry.invert && "Regex" in entry.pattern) {
    return [split(entry.pattern.Regex)];
  }
  if (entry.type === "ByteLevel") {
    const prefixed = (pieces) => pieces.map((p, i) => (i === 0 && entry.add_prefix_space && !/^\s/.test(p) ? ` ${p}` : p));
    const encoded = (pieces) => pieces.map((p) => Array.from(new TextEncoder().encode(p), (b) => CHARACTERS[b]).join(""));
    return [prefixed, ...(entry.use_regex === false ? [] : [split(GPT2)]), encoded];
  }
  if (entry.type === "Metaspace") {
    const begin = entry.prepend_scheme ?? (entry.add_prefix_space === false ? "never" : "always");
    const { replacement } = entry;
    const marked = (piece, i) => {
      const text = piece.replaceAll(" ", replacement);
      return begin !== "never" && i === 0 && !text.startsWith(replacement) ? replacement + text : text;
    };
    const cut = (text) => (entry.split === false ? [text] : text.split(new RegExp(`(?=${replacement})`, "u")));
    return [(pieces) => pieces.map(marked).flatMap(cut)];
  }
  return unsupported(`pre-tokenizer ${entry.type}`);
}

/** Cut pieces at the matches of a pattern, which are pieces of their own. */
function split(pattern) {
  let regex;
  try {
    regex = new RegExp(pattern, "gu");
  } catch (error) {
    unsupported(error.message);
  }
  return (pieces) =>
    pieces.flatMap((piece) => {
      const found = [];
      let end = 0;
      for (const match of piece.matchAll(regex)) {
        if (match.index > end) found.push(piece.slice(end, match.index));
        found.push(match[0]);
        end = match.index + match[0].length;
      }
      if (end < piece.length) found.push(piece.slice(end));
      return found;
    });
}

export class Tokenizer {
  /** `data` is the content of tokenizer.json. Throws an Error for a tokenizer of another form. */
  constructor(data) {
    const { model } = data;
    if (model.type !== "BPE") unsupported(`model ${model.type}`);
    if (model.continuing_subword_prefix || model.end_of_word_suffix || model.dropout) unsupported("marks inside of words");
    this.normalizers = normalizers(data.normalizer);
    this.cutters = cutters(data.pre_tokenizer);
    this.numbers = new Map(Object.entries(model.vocab));
    this.texts = new Map([...this.numbers].map(([text, id]) => [id, text]));
    this.special = new Map((data.added_tokens ?? []).map((t) => [t.id, t]));
    for (const token of this.special.values()) this.texts.set(token.id, token.content);
    this.ranks = new Map(model.merges.map((m, rank) => [(typeof m === "string" ? m.split(" ") : m).join("\n"), rank]));
    this.unknown = this.numbers.get(model.unk_token);
    this.byteFallback = Boolean(model.byte_fallback);
    this.ignoreMerges = Boolean(model.ignore_merges);
    this.ofBytes = JSON.stringify(data.pre_tokenizer ?? "").includes('"ByteLevel"');
  }

  /** Token ids of a text, without marks of its beginning or end. */
  encode(text) {
    const whole = this.normalizers.reduce((t, f) => f(t), text);
    const pieces = this.cutters.reduce((p, f) => f(p), whole ? [whole] : []);
    return pieces.flatMap((piece) => this.#encodePiece(piece));
  }

  #encodePiece(piece) {
    if (this.ignoreMerges && this.numbers.has(piece)) return [this.numbers.get(piece)];
    const parts = Array.from(piece).flatMap((c) => this.#known(c));
    for (;;) {
      let [best, at] = [Infinity, -1];
      for (let i = 0; i + 1 < parts.length; i++) {
        const rank = this.ranks.get(`${parts[i]}\n${parts[i + 1]}`) ?? Infinity;
        if (rank < best) [best, at] = [rank, i];
      }
      if (at < 0) return parts.map((p) => this.numbers.get(p) ?? this.unknown).filter((id) => id !== undefined);
      parts.splice(at, 2, parts[at] + parts[at + 1]);
    }
  }

  /** A character in the vocabulary, or the tokens of its bytes. */
  #known(character) {
    if (this.numbers.has(character) || !this.byteFallback) return [character];
    const name = (b) => `<0x${b.toString(16).toUpperCase().padStart(2, "0")}>`;
    return Array.from(new TextEncoder().encode(character), name);
  }

  /** A function from the next token id to the text that is complete with it. */
  stream() {
    const decoder = new TextDecoder();
    let first = true;
    return (id) => {
      const token = this.texts.get(id) ?? "";
      if (this.special.get(id)?.special) return "";
      let text = decoder.decode(new Uint8Array(this.#bytes(token)), { stream: true });
      if (first && !this.ofBytes && text.startsWith(" ")) text = text.slice(1);
      first = false;
      return text;
    };
  }

  #bytes(token) {
    if (this.ofBytes) return [...token].map((c) => BYTES.get(c) ?? 63);
    const byte = /^<0x([0-9A-F]{2})>$/.exec(token);
    return byte ? [parseInt(byte[1], 16)] : [...new TextEncoder().encode(token.replaceAll("▁", " "))];
  }
}
