// The stream of events: read by fetch, because an EventSource cannot carry a token in a header. It goes on
// after the last event it has seen, tries again by itself for ever, and tells how the line is. It is proven to come
// from the daemon, and while it lasts the daemon lives and has its port: so everything else leans on it.
import { STRANGER, entrance, nonce } from './enter.svelte';
import type { Told } from './types';

export type Line = 'connecting' | 'live' | 'lost';

/** The daemon says something every 15 seconds; after this long, nobody is there. */
const SILENCE = 40_000;
const FIRST_PAUSE = 250;
const LONGEST_PAUSE = 5_000;

export interface Ears {
  told(event: Told): void;
  line(line: Line, why: string): void;
}

/** One block of the stream: its id and its data. */
export function read(text: string): { id: string; data: string } | null {
  let id = '';
  const data: string[] = [];
  for (const line of text.split('\n')) {
    if (line.startsWith('id: ')) id = line.slice(4);
    else if (line.startsWith('data: ')) data.push(line.slice(6));
  }
  return data.length > 0 ? { id, data: data.join('\n') } : null;
}

/** Listens until told to stop. */
export function listen(ears: Ears): () => void {
  let last = '';
  let pause = FIRST_PAUSE;
  let over = false;
  let current: AbortController | null = null;
  let waiting: { timer: number; go: () => void } | null = null;

  async function once(): Promise<void> {
    const abort = new AbortController();
    current = abort;
    let alarm = 0;
    const awake = () => {
      clearTimeout(alarm);
      alarm = window.setTimeout(() => abort.abort(), SILENCE);
    };
    try {
      awake();
      if (!(await entrance.meet(abort.signal))) throw new Error(STRANGER);
      const number = nonce();
      const headers: Record<string, string> = { Authorization: `Bearer ${entrance.token}`, 'Lariat-Nonce': number };
      if (last) headers['Last-Event-ID'] = last;
      const answer = await fetch('/v1/events', { headers, signal: abort.signal, cache: 'no-store', redirect: 'error' });
      if (answer.status === 401 && !entrance.keyed) return entrance.shut('The token of this tab is no longer known.');
      if (!answer.ok || !answer.body) throw new Error(`the daemon answered ${answer.status}`);
      if (!(await entrance.proven(number, answer.headers.get('Lariat-Proof') ?? ''))) throw new Error(STRANGER);
      entrance.trusted = true;
      ears.line('live', '');
      pause = FIRST_PAUSE;
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = '';
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return;
        awake();
        const blocks = (rest + value).split('\n\n');
        rest = blocks.pop() ?? '';
        for (const block of blocks) {
          const event = read(block);
          if (!event) continue;
          if (event.id) last = event.id;
          ears.told(JSON.parse(event.data) as Told);
        }
      }
    } finally {
      clearTimeout(alarm);
    }
  }

  async function run(): Promise<void> {
    while (!over && entrance.door === 'open') {
      let why = 'the daemon is gone';
      try {
        await once();
      } catch (error) {
        if (error instanceof Error && error.name !== 'AbortError' && error.name !== 'TypeError') why = error.message;
      }
      current?.abort();
      entrance.lost();
      if (over || entrance.door !== 'open') return;
      ears.line('lost', why);
      await new Promise<void>((go) => (waiting = { timer: window.setTimeout(go, pause), go }));
      pause = Math.min(pause * 2, LONGEST_PAUSE);
    }
  }

  // Back on the line or back in view: no need to wait any longer.
  const now = () => {
    if (document.visibilityState !== 'visible' || !waiting) return;
    clearTimeout(waiting.timer);
    waiting.go();
  };
  addEventListener('online', now);
  document.addEventListener('visibilitychange', now);
  ears.line('connecting', '');
  void run();
  return () => {
    over = true;
    current?.abort();
    removeEventListener('online', now);
    document.removeEventListener('visibilitychange', now);
  };
}
