// The groups of the list, in the order and the words of `lariat ls`. Pure.
import type { Session } from './types';
import { firstLine, row } from './text';

export type Group = 'needs' | 'working' | 'idle' | 'unknown' | 'cut' | 'ended';

export const GROUPS: { group: Group; heading: string; count: (n: number) => string }[] = [
  { group: 'needs', heading: 'Needs you', count: (n) => (n === 1 ? '1 needs you' : `${n} need you`) },
  { group: 'working', heading: 'Working', count: (n) => `${n} working` },
  { group: 'idle', heading: 'Idle', count: (n) => `${n} idle` },
  { group: 'unknown', heading: 'Unknown', count: (n) => `${n} unknown` },
  { group: 'cut', heading: 'Cut off', count: (n) => `${n} cut off` },
  { group: 'ended', heading: 'Ended', count: (n) => `${n} ended` },
];

export function groupOf(session: Session): Group {
  if (session.restorable) return 'cut';
  switch (session.status) {
    case 'waiting': return 'needs';
    case 'working':
    case 'starting': return 'working';
    case 'idle': return 'idle';
    case 'unknown': return 'unknown';
    default: return 'ended';
  }
}

/** A shape for each word, so that no one needs its colour. */
export function glyph(session: Session): string {
  if (session.restorable) return '◐';
  switch (session.status) {
    case 'waiting': return '◆';
    case 'working': return '▶';
    case 'starting': return '▷';
    case 'idle': return '●';
    case 'done': return '○';
    case 'failed': return '✕';
    case 'stopped': return '■';
    case 'interrupted': return '◌';
    default: return '?';
  }
}

/** What a person calls it: the name they launched it under, the handle, or the beginning of its id. */
export function label(session: Session): string {
  const tail = session.native_id.split(/[/:]/).at(-1) ?? session.native_id;
  return row((session.handle && session.name) || session.handle || tail.slice(0, 8), 60);
}

export function title(session: Session): string {
  const named = session.handle ? session.name : null;
  const text = [session.name, session.title, session.prompt].find((t) => t && t !== named);
  return text ? firstLine(text) : '─';
}

/** What it is doing or wants, as in the list of the terminal. */
export function reason(session: Session): string {
  switch (session.status) {
    case 'waiting':
    case 'working':
    case 'unknown': return row(session.reason);
    case 'idle': return session.reason === 'turn over' ? 'idle' : row(`idle, ${session.reason}`);
    case 'done': return 'done';
    default: return row(`${session.status}: ${session.reason}`);
  }
}

export function model(session: Session): string {
  const name = (session.model ?? '').replace(/^claude-/, '').replace(/-\d{8}$/, '');
  return row(name ? `${session.agent}·${name.slice(0, 16)}` : session.agent);
}

export function tokens(session: Session): number | null {
  const t = session.tokens;
  return t ? t.input + t.output + t.cache_read + t.cache_write : null;
}

/** Whether a session fits all words of a search. */
export function fits(session: Session, words: string[]): boolean {
  if (words.length === 0) return true;
  const text = [session.id, session.handle, session.name, session.title, session.status, session.reason, session.cwd,
    session.branch, session.model, session.group, session.prompt?.slice(0, 400)].join('\n').toLowerCase();
  return words.every((word) => text.includes(word));
}

export function words(search: string): string[] {
  return search.toLowerCase().split(/\s+/).filter(Boolean);
}
