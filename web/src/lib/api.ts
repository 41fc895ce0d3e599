// Asks the daemon, and nobody else: while the line to it is lost nothing is sent, and what was answered by then is
// not believed. Every call carries the pass in a header; an answer that says the pass is not ours shuts the page.
// Nothing else talks to the network but `enter.svelte.ts`, `events.ts` and the terminal.
import { entrance } from './enter.svelte';
import type { JournalEntry } from './types';

/** What the daemon refused or could not do, in its own words. */
export class Refused extends Error {
  constructor(readonly status: number, text: string) {
    super(text);
  }
}

function refusal(status: number, body: string): Refused {
  try {
    const told = JSON.parse(body) as { error?: { text?: string }; outcome?: string; reason?: string | null };
    const text = told.error?.text ?? told.reason ?? told.outcome;
    if (text) return new Refused(status, text);
  } catch {
    // Not JSON: the status must do.
  }
  return new Refused(status, `the daemon answered ${status}`);
}

async function ask(path: string, init: RequestInit): Promise<string> {
  if (!entrance.trusted) throw new Refused(0, 'No word from the daemon: nothing was sent.');
  const turn = entrance.turn;
  const headers = { ...init.headers, Authorization: `Bearer ${entrance.token}` };
  const answer = await fetch(path, { ...init, headers, cache: 'no-store', redirect: 'error' });
  const body = await answer.text();
  if (turn !== entrance.turn) throw new Refused(0, 'The daemon went away meanwhile: look whether it was done.');
  // One that was started a moment ago will prove to be the daemon, or not.
  if (answer.status === 401 && !entrance.keyed) entrance.shut('The token of this tab is no longer known.');
  // A verb that did only a part says so in its answer, which is worth reading.
  if (!answer.ok && !body.startsWith('{"schema"')) throw refusal(answer.status, body);
  return body;
}

export async function get<T>(path: string, signal?: AbortSignal): Promise<T> {
  return JSON.parse(await ask(path, { signal: signal ?? null })) as T;
}

/** The last entries of the journal. */
export async function journal(most: number): Promise<JournalEntry[]> {
  const lines = (await ask(`/v1/journal?lines=${most}`, {})).split('\n');
  return lines.filter(Boolean).map((line) => JSON.parse(line) as JournalEntry);
}

export async function post<T>(path: string, body: object = {}): Promise<T> {
  const init = { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: JSON.stringify(body) };
  return JSON.parse(await ask(path, init)) as T;
}

/** The path of something about a session. */
export function of(id: string, what = ''): string {
  return `/v1/sessions/${encodeURIComponent(id)}${what && `/${what}`}`;
}

export function said(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
