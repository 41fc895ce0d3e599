// The one way for text that an agent, a repository or a stranger chose to get onto the page: whatever would
// act on its neighbours instead of being seen (controls, format characters, line separators) is shown as an
// escape, by the same rule as in the terminal (`core/src/text.rs`). Svelte escapes the rest.

import type { UsageRow } from './types';

const HIDDEN =
  // eslint-disable-next-line no-control-regex
  /[\u0000-\u001f\u007f-\u009f\u00ad\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{110bd}\u{110cd}\u{13430}-\u{1343f}\u{1bca0}-\u{1bca3}\u{1d173}-\u{1d17a}\u{e0001}\u{e0020}-\u{e007f}]/gu;

function escaped(c: string): string {
  const code = c.codePointAt(0) ?? 0;
  const hex = code.toString(16);
  return code < 0x100 ? `\\x${hex.padStart(2, '0')}` : `\\u{${hex}}`;
}

/** On one row: line breaks and tabs are shown too. */
export function row(text: string | null | undefined, longest = 400): string {
  if (!text) return '';
  const cut = text.length > longest ? `${text.slice(0, longest)}…` : text;
  return cut.replace(HIDDEN, (c) => ({ '\n': '\\n', '\r': '\\r', '\t': '\\t' })[c] ?? escaped(c));
}

/** Over several rows: line breaks stay, a tab is four spaces. */
export function block(text: string): string {
  return text.replace(/\r\n/g, '\n').replace(HIDDEN, (c) => (c === '\n' ? c : c === '\t' ? '    ' : escaped(c)));
}

/** The first line that says something. */
export function firstLine(text: string): string {
  const line = text.slice(0, 4000).split('\n').find((l) => l.trim());
  return row((line ?? '').trim(), 200);
}

/** The address as it would be opened, if it may be: http or https only. */
export function safeTarget(text: string): string | null {
  if (text.length > 4000) return null;
  try {
    const url = new URL(text);
    return url.protocol === 'http:' || url.protocol === 'https:' ? url.href : null;
  } catch {
    return null;
  }
}

const UNITS: [number, string][] = [[86400, 'd'], [3600, 'h'], [60, 'm'], [1, 's']];

/** `12m`, `3d`; as coarse as the terminal's. */
export function age(at: string | null, now: number): string {
  if (!at) return '─';
  const seconds = Math.max(0, Math.floor((now - Date.parse(at)) / 1000));
  const [size, unit] = UNITS.find(([size]) => seconds >= size) ?? [1, 's'];
  return `${Math.floor(seconds / size)}${unit}`;
}

/** `950`, `12.3k`, `4.5M`; `─` for what is not known. */
export function count(n: number | null | undefined): string {
  if (n === null || n === undefined) return '─';
  const scaled = (unit: number, suffix: string) => {
    const value = n / unit;
    return `${value < 99.95 ? value.toFixed(1) : value.toFixed(0)}${suffix}`;
  };
  if (n < 1e3) return String(n);
  if (n < 1e6) return scaled(1e3, 'k');
  return n < 1e9 ? scaled(1e6, 'M') : scaled(1e9, 'G');
}

export function dollars(usd: number | null | undefined): string {
  if (usd === null || usd === undefined) return '─';
  return usd > 0 && usd < 0.01 ? `$${usd.toFixed(4)}` : `$${usd.toFixed(2)}`;
}

/** What is known of a row's cost; less than it costs where some of its tokens have no price. */
export function known(row: UsageRow): number | null {
  return row.cost_usd ?? (row.recorded_usd + row.table_usd || null);
}

/** A row's cost as a person reads it: `≥` if a part has no price, `─` if all of it has none. */
export function cost(row: UsageRow): string {
  return (row.cost_usd === null && known(row) !== null ? '≥' : '') + dollars(known(row));
}

/** The last two parts of a path. */
export function place(path: string | null): string {
  if (!path) return '─';
  const parts = path.split('/').filter(Boolean);
  return row(parts.length > 2 ? `…/${parts.slice(-2).join('/')}` : path);
}

/** A moment for people, in their own time zone. */
export function moment(at: string | null): string {
  if (!at) return '─';
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return row(at);
  const two = (n: number) => String(n).padStart(2, '0');
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}
