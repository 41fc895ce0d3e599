// A small part of Markdown, read into a tree of plain values. There is no HTML in it: what looks like a tag
// is text. Components draw the tree, so nothing an agent writes is ever parsed by the browser.
//
// Reading takes time in proportion to the text, whatever it is: a closing mark is searched for only near its
// opening one, nesting is bounded, and a line beyond all measure is taken as it is.
import { block, safeTarget } from './text';

export type Inline =
  | { kind: 'text'; text: string }
  | { kind: 'code'; text: string }
  | { kind: 'strong'; parts: Inline[] }
  | { kind: 'em'; parts: Inline[] }
  | { kind: 'del'; parts: Inline[] }
  | { kind: 'link'; parts: Inline[]; target: string };

export type Block =
  | { kind: 'p'; parts: Inline[] }
  | { kind: 'heading'; level: number; parts: Inline[] }
  | { kind: 'code'; text: string; lang: string }
  | { kind: 'quote'; blocks: Block[] }
  | { kind: 'list'; ordered: boolean; start: number; items: Block[][] }
  | { kind: 'table'; head: Inline[][]; rows: Inline[][][] }
  | { kind: 'rule' };

const NEAR = 1000;
const DEEPEST = 6;
const LONGEST_LINE = 4000;

export function parse(text: string): Block[] {
  return blocks(block(text).split('\n'), 0);
}

const FENCE = /^ {0,3}(```+|~~~+)\s*([\w+#.-]{0,20})/;
const ITEM = /^( {0,8})([-*+]|\d{1,9}[.)]) +(.*)$/;
const HEADING = /^ {0,3}(#{1,6}) +(.*?)#* *$/;
const RULE = /^ {0,3}([-*_])( *\1){2,} *$/;
const DIVIDER = /^ *\|?( *:?-+:? *\|)+( *:?-+:? *)?$/;

function blocks(lines: string[], depth: number): Block[] {
  const found: Block[] = [];
  let at = 0;
  const line = (i: number) => (lines[i] ?? '').slice(0, LONGEST_LINE);
  while (at < lines.length) {
    const here = line(at);
    if (!here.trim()) {
      at += 1;
      continue;
    }
    const fence = FENCE.exec(here);
    if (fence) {
      const mark = fence[1] ?? '```';
      const body: string[] = [];
      at += 1;
      while (at < lines.length && !line(at).trim().startsWith(mark)) body.push(lines[at++] ?? '');
      at += 1;
      found.push({ kind: 'code', text: body.join('\n'), lang: fence[2] ?? '' });
      continue;
    }
    const heading = HEADING.exec(here);
    if (heading) {
      found.push({ kind: 'heading', level: heading[1]?.length ?? 1, parts: inline(heading[2] ?? '', depth) });
      at += 1;
      continue;
    }
    if (RULE.test(here)) {
      found.push({ kind: 'rule' });
      at += 1;
      continue;
    }
    if (here.startsWith('>') && depth < DEEPEST) {
      const body: string[] = [];
      while (at < lines.length && line(at).startsWith('>')) body.push((lines[at++] ?? '').replace(/^> ?/, ''));
      found.push({ kind: 'quote', blocks: blocks(body, depth + 1) });
      continue;
    }
    if (here.includes('|') && DIVIDER.test(line(at + 1))) {
      const head = cells(here, depth);
      const rows: Inline[][][] = [];
      at += 2;
      while (at < lines.length && line(at).includes('|')) rows.push(cells(line(at++), depth));
      found.push({ kind: 'table', head, rows });
      continue;
    }
    const item = ITEM.exec(here);
    if (item && depth < DEEPEST) {
      const [list, next] = readList(lines, at, item, depth);
      found.push(list);
      at = next;
      continue;
    }
    const body: string[] = [];
    while (at < lines.length && line(at).trim() && (body.length === 0 || !begins(line(at)))) body.push(lines[at++] ?? '');
    found.push({ kind: 'p', parts: inline(body.join('\n'), depth) });
  }
  return found;
}

/** Whether a line ends the paragraph before it. */
function begins(line: string): boolean {
  return FENCE.test(line) || HEADING.test(line) || ITEM.test(line) || line.startsWith('>') || RULE.test(line);
}

function readList(lines: string[], at: number, first: RegExpExecArray, depth: number): [Block, number] {
  const indent = first[1]?.length ?? 0;
  const ordered = /\d/.test(first[2] ?? '');
  const items: Block[][] = [];
  let body: string[] = [];
  const close = () => {
    if (body.length > 0) items.push(blocks(body, depth + 1));
    body = [];
  };
  while (at < lines.length) {
    const text = (lines[at] ?? '').slice(0, LONGEST_LINE);
    const item = ITEM.exec(text);
    const deep = text.length - text.trimStart().length;
    if (item && (item[1]?.length ?? 0) <= indent) {
      if (/\d/.test(item[2] ?? '') !== ordered || (item[1]?.length ?? 0) < indent) break;
      close();
      body.push(item[3] ?? '');
    } else if (!text.trim()) {
      const next = lines[at + 1] ?? '';
      if (next.trim() && !ITEM.test(next.slice(0, LONGEST_LINE)) && !next.startsWith(' ')) break;
      body.push('');
    } else if (deep > indent) {
      body.push((lines[at] ?? '').slice(Math.min(deep, indent + 2 + (ordered ? 1 : 0))));
    } else if (begins(text)) {
      break;
    } else {
      body.push(lines[at] ?? '');
    }
    at += 1;
  }
  close();
  return [{ kind: 'list', ordered, start: ordered ? Number.parseInt(first[2] ?? '1', 10) : 1, items }, at];
}

function cells(line: string, depth: number): Inline[][] {
  const inner = line.trim().replace(/^\|/, '').replace(/\|$/, '');
  return inner.split('|').slice(0, 40).map((cell) => inline(cell.trim(), depth));
}

const MARKS = [
  { mark: '**', kind: 'strong' },
  { mark: '__', kind: 'strong' },
  { mark: '~~', kind: 'del' },
  { mark: '*', kind: 'em' },
  { mark: '_', kind: 'em' },
] as const;

export function inline(text: string, depth: number): Inline[] {
  if (depth > DEEPEST || text.length > LONGEST_LINE * 10) return [{ kind: 'text', text }];
  const parts: Inline[] = [];
  let plain = '';
  const flush = () => {
    if (plain) parts.push({ kind: 'text', text: plain });
    plain = '';
  };
  const closing = (mark: string, from: number) => {
    const at = text.slice(from, from + NEAR).indexOf(mark);
    return at < 0 ? -1 : from + at;
  };
  let at = 0;
  while (at < text.length) {
    const c = text[at] ?? '';
    if (c === '\\' && /[\\`*_~[\]()#>|-]/.test(text[at + 1] ?? '')) {
      plain += text[at + 1];
      at += 2;
      continue;
    }
    if (c === '`') {
      const ticks = /^`+/.exec(text.slice(at, at + 8))?.[0] ?? '`';
      const end = closing(ticks, at + ticks.length);
      if (end > 0) {
        flush();
        parts.push({ kind: 'code', text: text.slice(at + ticks.length, end).trim() });
        at = end + ticks.length;
        continue;
      }
      plain += ticks;
      at += ticks.length;
      continue;
    }
    if (c === '[') {
      const middle = closing('](', at + 1);
      const end = middle > 0 ? closing(')', middle + 2) : -1;
      const target = end > 0 ? safeTarget(text.slice(middle + 2, end).trim().split(/\s/)[0] ?? '') : null;
      if (target) {
        flush();
        parts.push({ kind: 'link', target, parts: inline(text.slice(at + 1, middle), depth + 1).map(unlinked) });
        at = end + 1;
        continue;
      }
    }
    if (c === 'h' && !/\w/.test(text[at - 1] ?? ' ')) {
      const bare = /^https?:\/\/[^\s<>"'`|\\]{1,1000}/.exec(text.slice(at, at + NEAR))?.[0].replace(/[.,;:!?)\]*_~]+$/, '');
      const target = bare ? safeTarget(bare) : null;
      if (bare && target) {
        flush();
        parts.push({ kind: 'link', target, parts: [{ kind: 'text', text: bare }] });
        at += bare.length;
        continue;
      }
    }
    const mark = MARKS.find((m) => text.startsWith(m.mark, at));
    if (mark) {
      const from = at + mark.mark.length;
      const inWord = mark.mark.startsWith('_') && /\w/.test(text[at - 1] ?? ' ');
      const end = /\S/.test(text[from] ?? ' ') && !inWord ? closing(mark.mark, from + 1) : -1;
      if (end > 0 && /\S/.test(text[end - 1] ?? ' ')) {
        flush();
        parts.push({ kind: mark.kind, parts: inline(text.slice(from, end), depth + 1) });
        at = end + mark.mark.length;
        continue;
      }
      plain += mark.mark;
      at = from;
      continue;
    }
    plain += c;
    at += 1;
  }
  flush();
  return parts;
}

/** A link within a link is its text. */
function unlinked(part: Inline): Inline {
  if (part.kind === 'link') return { kind: 'text', text: part.parts.map((p) => ('text' in p ? p.text : '')).join('') };
  return part;
}
